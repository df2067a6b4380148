"""A queue leased, archived as Parquet, and acknowledged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import shmq
from bench.disk.folder import scratch_folder
from bench.machine import now
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.peek import QUEUE
from bench.spark.session import begin
from bench.stage import Failed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: Messages of a batch of the stream: the option's default.
TRIGGER = 500_000


class Archive(OnSpark):
    """All messages of the queue, batch after batch, from the start of the query to its end."""

    label = "readStream, Parquet"
    note = f"{TRIGGER:,} a batch, the query's start and every commit included"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker, scratch_folder() as folder:
            queue = broker.create_queue(QUEUE, **numbered.queue_options(self.rows))
            numbered.fill(broker.namespace, QUEUE, self.rows)
            begun = now()
            query = archiving(broker.namespace, folder, available_now=True)
            query.awaitTermination()
            taken = now() - begun
            settled(queue, self.rows)
            numbered.check(begin().read.parquet(str(folder / "rows")), self.rows)
        return {"rate": self.rows * 1e9 / taken}


def streaming(namespace: str, **wanted: Any) -> DataFrame:
    """The queue, or the stream of its name, as a stream."""
    reader = begin().readStream.format("shmq").option("url", namespace)
    given = {"subscribe": QUEUE, "maxOffsetsPerTrigger": TRIGGER, **wanted}
    return reader.options(**given).load()


def archiving(
    namespace: str, folder: Path, *, available_now: bool, **wanted: Any
) -> StreamingQuery:
    """A query that writes the queue or stream into ``rows`` of the folder."""
    writer = (
        streaming(namespace, **wanted)
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def settled(queue: shmq.Queue, rows: int) -> None:
    """Raise Failed unless that many messages were acknowledged and none is left."""
    stats = queue.stats()
    if stats.acked != rows or stats.depth or stats.in_flight:
        raise Failed(
            f"{stats.acked} messages of {rows} are acknowledged, {stats.depth} wait and "
            f"{stats.in_flight} are leased"
        )
