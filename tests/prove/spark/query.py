"""One streaming query after another upon one checkpoint, and what was in their batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

#: How long a query may take, in seconds.
PATIENCE = 120

#: A trigger's interval in seconds after whose first batch no other begins in a test. Spark begins
#: batches at multiples of the interval since 1970, so the next one of a shorter interval, as of an
#: hour, may begin at once.
NEVER = 100_000 * 86_400.0
ONCE = {"processingTime": f"{NEVER:.0f} seconds"}


class Query:
    """Queries upon one checkpoint, and the rows of each batch that ended well."""

    def __init__(self, spark: SparkSession, checkpoint: str, given: dict[str, Any]) -> None:
        self._spark = spark
        self.checkpoint = Path(checkpoint)
        self.given = given
        self.batches: dict[int, list[Row]] = {}
        self.seen: list[tuple[int, list[Row]]] = []
        self.fail_at: int | None = None
        #: Called before each batch is taken.
        self.before: Callable[[DataFrame], None] = lambda _: None

    def start(self, trigger: dict[str, Any], **more: Any) -> StreamingQuery:
        """A query that runs."""
        frame = self._spark.readStream.format("shmq").options(**{**self.given, **more}).load()
        writer = frame.writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def run(self, **more: Any) -> StreamingQuery:
        """All there is, in as many batches as that takes."""
        query = self.start({"availableNow": True}, **more)
        try:
            assert query.awaitTermination(PATIENCE)
        finally:
            query.stop()
        return query

    def fails(self, **more: Any) -> str:
        """What the query says that ends it; only the error of shmq, if there is one."""
        with pytest.raises(StreamingQueryException) as error:
            self.run(**more)
        said = str(error.value)
        ours = [line for line in said.splitlines() if line.startswith("shmq.errors.")]
        return ours[0] if ours else said

    def newest_offset(self) -> str:
        """What the checkpoint has of the batch that was planned last."""
        offsets = (self.checkpoint / "offsets").glob("[0-9]*")
        return max(offsets, key=lambda path: int(path.name)).read_text().splitlines()[-1]

    def _take(self, frame: DataFrame, batch: int) -> None:
        self.before(frame)
        rows = frame.collect()
        self.seen.append((batch, rows))
        if batch == self.fail_at:
            raise RuntimeError(f"the sink fails at batch {batch}")
        self.batches[batch] = rows

    @property
    def values(self) -> list[bytes]:
        """What the output holds, sorted."""
        return sorted(row.value for rows in self.batches.values() for row in rows)


def until(there: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Wait for it; a query that ends before is an error."""
    deadline = time.monotonic() + PATIENCE
    while not there():
        if query is not None and (error := query.exception()) is not None:
            raise error
        assert time.monotonic() < deadline
        time.sleep(0.02)
