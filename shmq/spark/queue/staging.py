"""Stages one task's rows for their queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.errors import Full
from shmq.spark.shared import sink_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from shmq.spark.queue.sink import Sink
    from shmq.spark.shared.batch_id import BatchId

__all__ = ["Staged", "stage"]


@dataclasses.dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """A task's message to the driver: which part of which batch it has staged, and where."""

    batch_id: BatchId
    queues: tuple[str, ...]
    rows: int


class _Part:
    """A task's part in each queue for which it has rows."""

    def __init__(self, sink: Sink, batch_id: BatchId, broker: shmq.Broker) -> None:
        self._sink = sink
        self._batch_id = batch_id
        self._broker = broker
        #: None: the queue already has this batch.
        self._publishers: dict[str, shmq.StagedPublisher | None] = {}
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch, each for its queue."""
        batch_id, sink = self._batch_id, self._sink
        if not batch.num_rows:
            return
        for name, rows in sink_rows.by_queue(batch, sink.columns, sink.topic):
            publisher = self._publisher(name)
            if publisher is None:
                continue
            try:
                publisher.stage(
                    batch_id.batch,
                    batch_id.part,
                    rows.prepared_puts(),
                    staging_bytes=sink.staging_bytes,
                )
            except Full as error:
                raise Full(
                    f"{error}; a batch is staged whole before it is published: give it more with "
                    f".option('stagingBytes', …), make smaller batches of it, or put it straight "
                    f"into the queue, at least once, with .option('staged', 'false')"
                ) from None
            self._rows += len(rows)

    def _publisher(self, name: str) -> shmq.StagedPublisher | None:
        if name not in self._publishers:
            publisher = self._broker.queue(name).staged_publisher(self._batch_id.publisher)
            sealed = publisher.sealed()
            done = sealed is not None and sealed >= self._batch_id.batch
            self._publishers[name] = None if done else publisher
            if not done:  # parts left by an earlier run would take up room
                publisher.sweep(keep=self._sink.run)
        return self._publishers[name]

    def message(self) -> Staged:
        """The message to the driver."""
        return Staged(self._batch_id, tuple(self._publishers), self._rows)


def stage(sink: Sink, batch_id: BatchId, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Stage a task's rows; rows of a batch that a queue already has are read and dropped.

    Committing the batch removes the parts of failed tasks. Raises what
    ``StagedPublisher.stage`` and :func:`shmq.spark.shared.sink_rows.by_queue` raise.
    """
    with sink.address.connect() as broker:
        part = _Part(sink, batch_id, broker)
        for batch in batches:
            part.add(batch)
        return part.message()
