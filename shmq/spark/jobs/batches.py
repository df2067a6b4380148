"""Passes on batches together with their name: the query's id and the batch's number."""

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

#: The file of a checkpoint that has the name of rows that are read once.
_NAME: Final = "once.json"

#: Writes the rows of a batch, given the query's id and the batch's number. After a crash it is
#: called again with the same arguments, and must not add anything twice.
Put = Callable[["DataFrame", str, int], None]


def each_batch(rows: DataFrame, put: Put) -> DataStreamWriter:
    """The writer of a query that passes its batches to ``put``."""

    def handle(batch: DataFrame, number: int) -> None:
        context = batch.sparkSession.sparkContext
        put(batch, str(context.getLocalProperty("sql.streaming.queryId")), number)

    return rows.writeStream.foreachBatch(handle)


@dataclasses.dataclass(frozen=True, slots=True)
class SingleBatch:
    """Finite rows, written as one batch with number 0 and a name of its own."""

    rows: DataFrame
    put: Put

    def run(self, session: SparkSession, checkpoint: str) -> Progress:
        """Write the rows. With the same checkpoint it is the same batch again, and adds nothing."""
        from pyspark.sql import Observation, functions  # noqa: PLC0415 - heavy, and an extra

        folder = Folder(session, checkpoint)
        folder.write_json(_NAME, {"id": str(uuid.uuid4())})
        seen = Observation()
        counted = self.rows.observe(seen, functions.count(functions.lit(1)).alias("rows"))
        self.put(counted, folder.read_json(_NAME)["id"], 0)
        return Progress(batch=0, rows=int(seen.get["rows"]))
