"""Batches that are handed on with their name: the query's id, and their number."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Put", "SingleBatch", "each_batch"]

#: Where a checkpoint keeps the name of rows that are read once.
_NAME: Final = "once.json"

#: Puts the rows of a batch where they belong, given the query's id and the batch's number.
#: It is called again with the same ones after a crash, and must then add nothing more.
Put = Callable[["DataFrame", str, int], None]


def each_batch(rows: DataFrame, put: Put) -> DataStreamWriter:
    """The writer of a query whose batches ``put`` is given."""

    def handle(batch: DataFrame, number: int) -> None:
        context = batch.sparkSession.sparkContext
        put(batch, str(context.getLocalProperty("sql.streaming.queryId")), number)

    return rows.writeStream.foreachBatch(handle)


@dataclasses.dataclass(frozen=True, slots=True)
class SingleBatch:
    """Rows that come to an end, which are one batch: the first, of a name of its own."""

    rows: DataFrame
    put: Put

    def run(self, session: SparkSession, checkpoint: str) -> Progress:
        """Put them. Under the same checkpoint that is the same batch again, and adds nothing."""
        from pyspark.sql import Observation, functions  # noqa: PLC0415 - heavy, and an extra

        folder = Folder(session, checkpoint)
        folder.write_json(_NAME, {"id": str(uuid.uuid4())})
        seen = Observation()
        counted = self.rows.observe(seen, functions.count(functions.lit(1)).alias("rows"))
        self.put(counted, folder.read_json(_NAME)["id"], 0)
        return Progress(batch=0, rows=int(seen.get["rows"]))
