"""Stages one task's rows for their queues."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.api.names import staging_name, staging_target
from shmq.errors import Full, NoSuchQueue, NotConfirmed, QueueDeleted, ShmqError
from shmq.spark.shared import sink_rows
from shmq.spark.shared.wait_report import INTERVAL, WaitReport

if TYPE_CHECKING:
    import pyarrow as pa

    from shmq.spark.shared.sink import BatchId, Sink


@dataclasses.dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """A task's message to the driver: which part of which batch it has staged, and where."""

    batch_id: BatchId
    queues: tuple[str, ...]
    rows: int


class _Part:
    """A task's part in each queue for which it has rows."""

    def __init__(
        self, sink: Sink, batch_id: BatchId, staging_bytes: int, broker: shmq.Broker
    ) -> None:
        self._sink = sink
        self._staging_bytes = staging_bytes
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
            publisher = self._get_publisher(name)
            if publisher is None:
                continue
            try:
                publisher.stage(
                    batch_id.batch, batch_id.part, rows, staging_bytes=self._staging_bytes
                )
            except Full as error:
                raise Full(
                    f"{error}; a batch is staged whole before it is published: give it more with "
                    f".option('stagingBytes', …), make smaller batches of it, or put it straight "
                    f"into the queue, at least once, with .option('staged', 'false')"
                ) from None
            self._rows += len(rows)

    def _get_publisher(self, name: str) -> shmq.StagedPublisher | None:
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


def stage(
    sink: Sink, batch_id: BatchId, batches: Iterable[pa.RecordBatch], staging_bytes: int
) -> Staged:
    """Stage a task's rows; rows of a batch that a queue already has are read and dropped.

    Committing the batch removes the parts of failed tasks. Raises what
    ``StagedPublisher.stage`` and :func:`shmq.spark.shared.sink_rows.by_queue` raise.
    """
    with sink.address.connect() as broker:
        part = _Part(sink, batch_id, staging_bytes, broker)
        for batch in batches:
            part.add(batch)
        return part.message()


log = logging.getLogger("shmq")

#: How long to wait for each of several full queues in turn, in seconds.
_TURN: Final = 0.1


@dataclasses.dataclass(slots=True)
class _QueueBatch:
    """One queue's share of a batch."""

    queue: str
    publisher: shmq.StagedPublisher
    batch: int
    parts: list[str]
    #: Why it is not published yet.
    reason: str = ""

    def publish(self, timeout: float, *, last: bool) -> bool:
        """Publish it; True if all of it is published and, if required, on disk.

        ``last``: no other share waits for its turn, and no limit is set, so what is published
        waits for the disk. Raises :class:`~shmq.NotConfirmed` if the disk fails then.
        """
        try:
            self.publisher.commit_batch(self.batch, self.parts, timeout=timeout)
        except Full as error:
            self.reason = str(error)
            return False
        except NotConfirmed as error:
            self.reason = str(error)
            if last:
                self.publisher.commit_batch(self.batch, self.parts)
            return last
        return True


def publish(sink: Sink, messages: Iterable[Staged | None], *, forget: bool) -> None:
    """Publish the staged rows of all tasks, in the order of their partitions.

    Waits while a queue is full; a full queue does not delay the others. If the publishing is
    interrupted, whether by an error or a death, each queue has the first rows of its share, in
    order, and the rest stays staged, unseen by consumers: publishing the batch again puts just
    the rest. ``forget``: the publisher has no further batch, so nobody can do that. Raises
    :class:`~shmq.Full` if there was no room in time.
    """
    with sink.address.connect() as broker:
        shares = _split_shares(broker, messages)
        _publish_all(shares, sink.timeout, WaitReport(sink.wait_file), forget=forget)
        if forget:
            for share in shares:
                share.publisher.discard()


def _split_shares(broker: shmq.Broker, messages: Iterable[Staged | None]) -> list[_QueueBatch]:
    shares: dict[str, _QueueBatch] = {}
    staged = [message for message in messages if message is not None]
    for message in sorted(staged, key=lambda message: message.batch_id.partition):
        batch_id = message.batch_id
        for name in message.queues:
            if name not in shares:
                publisher = broker.queue(name).staged_publisher(batch_id.publisher)
                shares[name] = _QueueBatch(name, publisher, batch_id.batch, [])
            shares[name].parts.append(batch_id.part)
    return list(shares.values())


#: What an interrupted publishing leaves, by whether its publisher is forgotten.
_LEFT: Final = {
    True: "rows that are in the queue already stay there, the rest is discarded; a write that "
    "names its .option('publisher', NAME) and batch keeps it, and is finished by a retry",
    False: "the same write with the same publisher and batch finishes it",
}


def _publish_all(
    shares: Sequence[_QueueBatch], timeout: float | None, report: WaitReport, *, forget: bool
) -> None:
    until = math.inf if timeout is None else time.monotonic() + timeout
    waiting = [share for share in shares if not share.publish(0, last=False)]
    while waiting:
        left = max(0.0, until - time.monotonic())
        single = len(waiting) == 1
        turn = min(INTERVAL if single else _TURN, left)
        last = single and timeout is None
        waiting = [share for share in waiting if not share.publish(turn, last=last)]
        if waiting and time.monotonic() >= until:
            raise Full(
                f"within publishTimeout={timeout:g} s not all of the batch had room, or was in its "
                f"journal: {'; '.join(share.reason for share in waiting)}: have its messages "
                f"consumed, or wait longer; {_LEFT[forget]}"
            )
        report.waits(share.reason for share in waiting)
    report.ends()


def discard(sink: Sink, publisher: str, messages: Iterable[Staged | None]) -> None:
    """Remove everything that a publisher has staged, for a name used only once. Never fails.

    If the rows name their queues, the staging queues show which queues to clean up, including
    those that no task has reported.
    """
    names = {name for message in messages if message is not None for name in message.queues}
    try:
        with sink.address.connect() as broker:
            there = broker.queue_names()
            names |= {sink.topic} if sink.topic is not None else _find_targets(there, publisher)
            for name in names.intersection(there):
                with contextlib.suppress(NoSuchQueue, QueueDeleted), broker.queue(name) as queue:
                    queue.staged_publisher(publisher).discard()
    except (ShmqError, OSError) as error:
        log.warning("what %s has staged in %s stays there: %s", publisher, sink.address, error)


def _find_targets(there: Iterable[str], publisher: str) -> set[str]:
    """The queues for which the publisher has staged rows."""
    targets = ((name, staging_target(name)) for name in there)
    return {
        target for name, target in targets if target and name == staging_name(target, publisher)
    }
