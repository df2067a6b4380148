"""Appends one task's rows to streams, each once, however often the task runs.

Each task of each batch appends as a producer of its own, with producer sequence numbers that
begin with the batch's number, so a stream drops rows that it already has. A task's rows for one
partition are appended in one piece if they fit. Such a piece is appended whole or not at all,
and the order of its rows does not matter. If there are several pieces, the rows must come in
the same order when the task runs again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.errors import Full, InvalidOption
from shmq.native import _arrow
from shmq.native._core import codec_number
from shmq.spark.shared import sink_rows
from shmq.spark.shared.wait_report import WaitReport

if TYPE_CHECKING:
    import pyarrow as pa

    from shmq.api.options import Confirm
    from shmq.spark.shared.columns import SinkColumns
    from shmq.spark.shared.sink import BatchId, Sink

#: This many consecutive rows without a key go to the same partition.
STICKY: Final = 4096

#: The codecs that a record's value may have.
_CODECS: Final = ("bytes", "text", "msgpack", "json", "command", "event")

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Codecs = np.ndarray[Any, np.dtype[np.uint8]]


@dataclasses.dataclass(frozen=True, slots=True)
class Records:
    """Records for one stream, as columns of texts or bytes."""

    values: pa.Array
    #: None: no record has a key.
    keys: pa.Array | None
    #: For each record a msgpack map, or no bytes; None: no record has headers.
    headers: pa.Array | None
    #: The partition that each row asks for, or null; None: no row asks for one.
    partitions: pa.Array | None
    #: The number of the codec of all records, or of each record.
    codec: int | Codecs

    def __len__(self) -> int:
        return len(self.values)

    def taken(self, order: Numbers) -> Records:
        """The records at these places, in this order."""
        values, keys, headers, partitions = (
            None if each is None else each.take(order)
            for each in (self.values, self.keys, self.headers, self.partitions)
        )
        codec = self.codec if isinstance(self.codec, int) else self.codec[order]
        return Records(values, keys, headers, partitions, codec)

    def block(self, start: int, end: int, most: int) -> tuple[bytes, int]:
        """The records ``start`` to before ``end`` for ``append_block``, up to ``most`` bytes."""
        keys, headers = (
            None if each is None else sink_rows.buffers_of(each)
            for each in (self.keys, self.headers)
        )
        codec = self.codec if isinstance(self.codec, int) else self.codec.data
        values = sink_rows.buffers_of(self.values)
        return _arrow.pack_columns(values, keys, headers, codec, start, end, max_bytes=most)


class Partitioner:
    """Chooses the partition of each record of a task, from the rows and their order alone.

    Partitions before ``begin`` take no more records.
    """

    def __init__(self, partitions: int, task: int, begin: int = 0) -> None:
        self._count = partitions
        self._begin = begin
        self._open = partitions - begin
        self._task = task
        self._rows = 0

    def of(self, records: Records) -> Numbers:
        """The partition of each record: the requested one, else its key's, else the one in turn.

        Raises :class:`~shmq.InvalidOption` for a partition that does not exist.
        """
        found = self._partition_in_turn(len(records))
        if records.keys is not None:
            found = _choose_place(records.keys, self._partition_by_key(records.keys), found)
        if records.partitions is not None:
            found = _choose_place(records.partitions, self._request(records.partitions), found)
        return found

    def _partition_in_turn(self, count: int) -> Numbers:
        rows = np.arange(self._rows, self._rows + count)
        self._rows += count
        return self._begin + (rows // STICKY + self._task) % self._open

    def _partition_by_key(self, keys: pa.Array) -> Numbers:
        """The partition by the CRC-32 of the key, as in ``Stream.append``."""
        made = _arrow.partitions_of(sink_rows.buffers_of(keys), len(keys), self._begin, self._open)
        found: Numbers = np.frombuffer(made, np.int64)
        return found

    def _request(self, partitions: pa.Array) -> Numbers:
        asked: Numbers = partitions.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        strange = asked[(asked < 0) | (asked >= self._count)]
        if len(strange):
            raise InvalidOption(
                f"the column partition has {strange[0]}, and the stream has the partitions 0 to "
                f"{self._count - 1}: drop the column, or give the stream as many"
            )
        return asked


def by_stream(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None
) -> Iterator[tuple[str, Records]]:
    """The rows of a batch by their target stream, in their order.

    Raises :class:`~shmq.InvalidOption` for a row without a value or a stream.
    """
    for name, part in sink_rows.parts_by_topic(batch, columns, topic):
        yield name, _make_records(part, columns)


def _make_records(batch: pa.RecordBatch, columns: SinkColumns) -> Records:
    bodies = sink_rows.bodies_of(batch, columns)
    named = {argument: batch.column(at) for argument, at in columns.arguments}
    keys, headers = named.get("key"), named.get("headers")
    codec = codec_number("text" if sink_rows.is_text(bodies.type) else "bytes")
    return Records(
        bodies,
        None if keys is None or keys.null_count == len(keys) else keys,
        None if headers is None else sink_rows.packed_headers(headers),
        named.get("partition"),
        codec if named.get("codec") is None else _read_codecs(named["codec"], codec),
    )


def _read_codecs(column: pa.Array, default: int) -> int | Codecs:
    """The number of each codec; ``default`` for null. Raises InvalidOption."""
    alike = column.dictionary_encode()
    names: list[str] = alike.dictionary.to_pylist()
    strange = [name for name in names if name not in _CODECS]
    if strange:
        raise InvalidOption(
            f"the column codec has {strange[0]!r}, and a record's codec is {', '.join(_CODECS)}"
        )
    numbers = np.array([*map(codec_number, names), default], np.uint8)
    places: Numbers = alike.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
    return numbers[places]


def _choose_place(column: pa.Array, there: Numbers, otherwise: Numbers) -> Numbers:
    if not column.null_count:
        return there
    found: Numbers = np.where(column.is_valid().to_numpy(zero_copy_only=False), there, otherwise)
    return found


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


def append(
    sink: Sink, batch_id: BatchId, batches: Iterable[pa.RecordBatch], confirm: Confirm | None = None
) -> Written:
    """Append a task's rows, except those that an earlier run has appended.

    Without ``confirm`` it waits for the confirmation that the stream's options name.

    Raises :class:`~shmq.Full` if there was no room in time, and what
    ``Stream.append_block`` raises.
    """
    with sink.address.connect() as broker:
        targets: dict[str, _Target] = {}
        for batch in batches:
            for name, records in by_stream(batch, sink.columns, sink.topic):
                if name not in targets:
                    targets[name] = _Target(broker.stream(name), sink, batch_id, confirm)
                targets[name].add(records)
        for target in targets.values():
            target.finish()
        counts = [(target.rows, target.before) for target in targets.values()]
    return Written(sum(rows for rows, _ in counts), sum(before for _, before in counts))


class _Target:
    """A stream for which a task has rows."""

    def __init__(
        self, stream: shmq.Stream, sink: Sink, batch_id: BatchId, confirm: Confirm | None
    ) -> None:
        self._stream = stream
        self._timeout = sink.timeout
        self._report = WaitReport(sink.wait_file)
        self._confirm: Confirm = confirm or stream.options.confirm
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
        append = functools.partial(
            self._stream.append_block,
            b"".join(piece.blocks),
            partition=partition,
            producer=self._producer,
            sequence=self._sequence + piece.before,
            gaps=True,
        )
        try:
            done = append(wait=False, confirm=confirm, timeout=self._timeout)
        except Full:
            done = self._append_later(append)
            append(wait=False, confirm=confirm, timeout=self._timeout)  # only waits for the disk
        self.before += piece.rows if done.duplicate else 0
        self._pieces[partition] = _Piece(before=piece.before + piece.rows)

    def _append_later(self, append: Callable[..., shmq.AppendedRange]) -> shmq.AppendedRange:
        """Append once there is room."""
        try:
            return self._report.until_room(
                lambda seconds: append(wait=True, confirm="memory", timeout=seconds), self._timeout
            )
        except Full as error:
            raise Full(
                f"{error}; publishTimeout={self._timeout:g} s has expired: have its records read, "
                f"or wait longer"
            ) from None


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
