"""Appends one task's rows to streams, each once, however often the task runs.

Each task of each batch appends as a producer of its own, with producer sequence numbers that
begin with the batch's number, so a stream drops rows that it already has. A task's rows for one
partition are appended in one piece if they fit. Such a piece is appended whole or not at all,
and the order of its rows does not matter. If there are several pieces, the rows must come in
the same order when the task runs again.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.errors import Full
from shmq.spark.stream.rows import Partitioner, Records, by_stream

if TYPE_CHECKING:
    import pyarrow as pa

    from shmq.api.options import Confirm
    from shmq.spark.shared.batch_id import BatchId
    from shmq.spark.stream.sink import StreamSink

__all__ = ["Written", "append"]

#: The largest piece, in bytes, and the part of a ring that it may fill.
_MOST: Final = 8 << 20
_PART: Final = 4

#: How many sequence numbers each batch has for the rows of one task.
_ROWS: Final = 1 << 32


@dataclasses.dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's message to the driver: how many rows it had, and how many existed already."""

    rows: int
    before: int


def append(sink: StreamSink, batch_id: BatchId, batches: Iterable[pa.RecordBatch]) -> Written:
    """Append a task's rows, except those that an earlier run has appended.

    Raises :class:`~shmq.Full` if there was no room in time, and what
    ``Stream.append_block`` raises.
    """
    with sink.address.connect() as broker:
        targets: dict[str, _Target] = {}
        for batch in batches:
            for name, records in by_stream(batch, sink.columns, sink.topic):
                if name not in targets:
                    targets[name] = _Target(broker.stream(name), sink, batch_id)
                targets[name].add(records)
        for target in targets.values():
            target.finish()
        counts = [(target.rows, target.before) for target in targets.values()]
    return Written(sum(rows for rows, _ in counts), sum(before for _, before in counts))


class _Target:
    """A stream for which a task has rows."""

    def __init__(self, stream: shmq.Stream, sink: StreamSink, batch_id: BatchId) -> None:
        self._stream = stream
        self._timeout = sink.timeout
        self._confirm: Confirm = sink.confirm or stream.options.confirm
        self._producer = _producer(batch_id)
        self._sequence = batch_id.batch * _ROWS
        self._most = min(_MOST, stream.options.ring_bytes // _PART)
        begin = stream.open_partitions.start
        self._spread = Partitioner(stream.partitions, batch_id.partition, begin)
        self._pieces = [_Piece() for _ in range(stream.partitions)]
        self.rows = 0
        self.before = 0

    def add(self, records: Records) -> None:
        """Append full pieces, and keep the rest for later."""
        partitions = self._spread.of(records)
        if len(records) and (partitions != partitions[0]).any():
            order = np.argsort(partitions, kind="stable")
            partitions, records = partitions[order], records.taken(order)
        numbers, firsts = np.unique(partitions, return_index=True)
        ends = [*firsts[1:].tolist(), len(records)]
        for number, start, end in zip(numbers.tolist(), firsts.tolist(), ends, strict=True):
            self._add(number, records, start, end)
        self.rows += len(records)

    def finish(self) -> None:
        """Append the rest, and wait for the disk if the sink asks for it."""
        for partition, piece in enumerate(self._pieces):
            if piece.rows:
                self._append(partition, self._confirm)

    def _add(self, partition: int, records: Records, start: int, end: int) -> None:
        while start < end:
            piece = self._pieces[partition]
            room = self._most - piece.size
            block, until = records.block(start, end, max(room, 1))
            if piece.rows and len(block) > room:
                self._append(partition, "memory")
                continue
            piece.blocks.append(block)
            piece.size += len(block)
            piece.rows += until - start
            start = until

    def _append(self, partition: int, confirm: Confirm) -> None:
        piece = self._pieces[partition]
        try:
            done = self._stream.append_block(
                b"".join(piece.blocks),
                partition=partition,
                wait=True,
                timeout=self._timeout,
                confirm=confirm,
                producer=self._producer,
                sequence=self._sequence + piece.before,
                gaps=True,
            )
        except Full as error:
            if self._timeout is None:
                raise
            raise Full(
                f"{error}; publishTimeout={self._timeout:g} s were over: have its records read, or "
                f"wait longer"
            ) from None
        self.before += piece.rows if done.duplicate else 0
        self._pieces[partition] = _Piece(before=piece.before + piece.rows)


@dataclasses.dataclass(slots=True)
class _Piece:
    """Rows to append to one partition at once."""

    blocks: list[bytes] = dataclasses.field(default_factory=list)
    size: int = 0
    rows: int = 0
    #: How many rows of the task went to the partition before these.
    before: int = 0


def _producer(batch_id: BatchId) -> int:
    """The producer's number, different for each task of each publisher."""
    name = f"{batch_id.publisher}/{batch_id.partition}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 1
