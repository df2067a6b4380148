"""Appends one task's rows to streams, each once, however often the task runs.

Each task of each batch appends as a producer of its own, with producer sequence numbers that
begin with the batch's number, so a stream drops rows that it already has. A task's rows for one
partition are appended in one piece if they fit. Such a piece is appended whole or not at all,
and the order of its rows does not matter. If there are several pieces, the rows must come in
the same order when the task runs again. Its pieces may be of other sizes then, as their size
depends on the ring, which may be altered: the sequence numbers count rows.

If the stream was repartitioned since an earlier run of the task, this one finds what that run has
appended in the partitions that are sealed now, and appends the rest to later ones.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.errors import Full, InvalidOption, OutOfSequence, PartitionSealed
from shmq.native import _arrow, _stream
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

    Records that do not ask for one of the ``partitions`` are divided ``among`` some of them.
    """

    def __init__(self, partitions: int, task: int, among: range) -> None:
        self._count = partitions
        self._among = among
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
        return self._among.start + (rows // STICKY + self._task) % len(self._among)

    def _partition_by_key(self, keys: pa.Array) -> Numbers:
        """The partition by the CRC-32 of the key, as in ``Stream.append``."""
        begin, count = self._among.start, len(self._among)
        made = _arrow.partitions_of(sink_rows.buffers_of(keys), len(keys), begin, count)
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

    Raises :class:`~shmq.Full` if there was no room in time, :class:`~shmq.PartitionSealed` if the
    stream is repartitioned in the meantime, and what ``Stream.append_block`` raises.
    """
    with sink.address.connect() as broker:
        targets: dict[str, _Target] = {}
        for batch in batches:
            for name, records in by_stream(batch, sink.columns, sink.topic):
                if not len(records):
                    continue
                if name not in targets:
                    producer = _Producer.of(broker.stream(name), sink, batch_id, confirm)
                    targets[name] = _find_target(producer, records)
                targets[name].add(records)
        for target in targets.values():
            target.finish()
        counts = [(target.rows, target.before) for target in targets.values()]
    return Written(sum(rows for rows, _ in counts), sum(before for _, before in counts))


@dataclasses.dataclass(frozen=True, slots=True)
class _Producer:
    """A task as a producer of records of a stream."""

    stream: shmq.Stream
    sink: Sink
    confirm: Confirm
    #: The task's number, and its name, which no other task of any publisher has.
    task: int
    name: str
    #: The sequence number of the task's first row in each partition.
    sequence: int

    @classmethod
    def of(
        cls, stream: shmq.Stream, sink: Sink, batch_id: BatchId, confirm: Confirm | None
    ) -> Self:
        """The producer of a task's part of a batch."""
        name = f"{batch_id.publisher}/{batch_id.partition}"
        sequence = batch_id.batch * _ROWS
        confirm = confirm or stream.options.confirm
        return cls(stream, sink, confirm, batch_id.partition, name, sequence)

    def of_rest(self, partition: int) -> _Producer:
        """The producer of the rows that a sealed partition does not have, in later partitions."""
        return dataclasses.replace(self, name=f"{self.name}/{partition} sealed")

    def append(
        self,
        block: bytes,
        partition: int,
        row: int,
        *,
        wait: bool = False,
        confirm: Confirm = "memory",
        timeout: float | None = None,
    ) -> shmq.AppendedRange:
        """Append a block whose first row is the task's row number ``row`` in that partition."""
        return self.stream.append_block(
            block,
            partition=partition,
            producer=_hash_name(self.name),
            sequence=self.sequence + row,
            gaps=True,
            wait=wait,
            confirm=confirm,
            timeout=timeout,
        )

    def count_rows(self) -> list[int]:
        """How many of the task's rows each partition has; they are the first ones."""
        newest = self.stream.produced(_hash_name(self.name))
        return [0 if each is None else max(0, each + 1 - self.sequence) for each in newest]


def _find_target(producer: _Producer, records: Records, begin: int = 0) -> _Target:
    """Where to append these records and those that follow, in partitions from ``begin`` on.

    An earlier run of the task may have appended some of them before the stream was repartitioned.
    The sealed partitions remember that, and then this run must divide the rows as that one did.
    Whether it has appended any is certain, because sealed partitions never change.
    """
    opened = producer.stream.open_partitions
    there = producer.count_rows() if opened.start > begin else []
    first = next((p for p in range(begin, opened.start) if there[p]), None)
    if first is None:
        return _OpenTarget(producer, opened)
    begins = sorted({each.behind for each in producer.stream.offsets()})
    sealed = next(range(*each) for each in itertools.pairwise(begins) if first < each[1])
    block, _ = records.block(0, 1, 1)
    return _SealedTarget(producer, sealed, {p: there[p] for p in sealed}, block)


class _Target(abc.ABC):
    """Where a task's rows for a stream go: each to a partition."""

    def __init__(self, producer: _Producer, spread: Partitioner) -> None:
        self._producer = producer
        self._spread = spread
        self.rows = 0
        #: How many of them an earlier run has appended; final after `finish`.
        self.before = 0

    def add(self, records: Records) -> None:
        """Append the records, or keep some of them for later."""
        partitions = self._spread.of(records)
        if (partitions != partitions[0]).any():
            order = np.argsort(partitions, kind="stable")
            partitions, records = partitions[order], records.taken(order)
        numbers, firsts = np.unique(partitions, return_index=True)
        ends = [*firsts[1:].tolist(), len(records)]
        for number, start, end in zip(numbers.tolist(), firsts.tolist(), ends, strict=True):
            self._add(number, records, start, end)
        self.rows += len(records)

    @abc.abstractmethod
    def _add(self, partition: int, records: Records, start: int, end: int) -> None:
        """Append the records ``start`` to before ``end`` to that partition, or keep them."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Append the rest, and wait for the disk if the sink asks for it."""


class _OpenTarget(_Target):
    """The partitions that take records."""

    def __init__(self, producer: _Producer, opened: range) -> None:
        super().__init__(producer, Partitioner(opened.stop, producer.task, opened))
        self._opened = opened
        self._timeout = producer.sink.timeout
        self._report = WaitReport(producer.sink.wait_file)
        self._most = min(_MOST, producer.stream.options.ring_bytes // _PART)
        self._pieces = [_Piece() for _ in range(opened.stop)]

    def finish(self) -> None:
        for partition, piece in enumerate(self._pieces):
            if piece.rows:
                self._append(partition, self._producer.confirm)

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
        block = b"".join(piece.blocks)
        append = functools.partial(self._producer.append, block, partition, piece.before)
        try:
            try:
                done = append(confirm=confirm, timeout=self._timeout)
            except Full:
                done = self._append_later(append)
                append(confirm=confirm, timeout=self._timeout)  # only waits for the disk
        except OutOfSequence as error:  # an earlier run had the first of these rows in its pieces
            there = error.expected - error.given
            self.before += there
            self._pieces[partition] = piece.behind(there)
            self._append(partition, confirm)
            return
        except PartitionSealed as error:
            if partition not in self._opened:
                raise  # the row asks for it
            raise PartitionSealed(
                f"{error}; that was while this task appended its rows: run again, it appends those "
                f"that are missing to the new partitions"
            ) from None
        self.before += piece.rows if done.duplicate else 0
        self._pieces[partition] = _Piece(before=piece.before + piece.rows)

    def _append_later(self, append: Callable[..., shmq.AppendedRange]) -> shmq.AppendedRange:
        """Append once there is room."""
        try:
            return self._report.until_room(
                lambda seconds: append(wait=True, timeout=seconds), self._timeout
            )
        except Full as error:
            raise Full(
                f"{error}; publishTimeout={self._timeout:g} s has expired: have its records read, "
                f"or wait longer"
            ) from None


class _SealedTarget(_Target):
    """Partitions that were sealed after an earlier run of the task had appended rows to them.

    Each has the first ones of its rows, which are left out. The rest of each goes to later
    partitions, by a producer of its own: so its rows there, and their order, are the same whenever
    the task runs again.
    """

    def __init__(
        self, producer: _Producer, sealed: range, there: dict[int, int], block: bytes
    ) -> None:
        super().__init__(producer, Partitioner(producer.stream.partitions, producer.task, sealed))
        self._sealed = sealed
        #: How many of its rows each partition has, and how many rows were added for it.
        self._there = there
        self._added = dict.fromkeys(there, 0)
        self._block = block
        self._rest: dict[int, _Target] = {}

    def finish(self) -> None:
        for partition, there in self._there.items():
            found = min(there, self._added[partition])
            self.before += found
            if found:
                self._wait_for_disk(partition, found - 1)
        for target in self._rest.values():
            target.finish()
            self.before += target.before

    def _wait_for_disk(self, partition: int, row: int) -> None:
        """Wait until that row, which the partition has, is on disk, if the sink asks for it."""
        confirm, timeout = self._producer.confirm, self._producer.sink.timeout
        self._producer.append(self._block, partition, row, confirm=confirm, timeout=timeout)

    def _add(self, partition: int, records: Records, start: int, end: int) -> None:
        if partition in self._sealed:
            added = self._added[partition]
            self._added[partition] += end - start
            start = min(max(start, start + self._there[partition] - added), end)
        if start == end:
            return
        rest = records.taken(np.arange(start, end))
        if partition not in self._rest:
            producer = self._producer.of_rest(partition)
            self._rest[partition] = _find_target(producer, rest, self._sealed.stop)
        self._rest[partition].add(rest)


@dataclasses.dataclass(slots=True)
class _Piece:
    """Rows to append to one partition at once."""

    blocks: list[bytes] = dataclasses.field(default_factory=list)
    size: int = 0
    rows: int = 0
    #: How many rows of the task went to the partition before these.
    before: int = 0

    def behind(self, rows: int) -> _Piece:
        """The piece without its first ``rows``."""
        records = _stream.records_of(b"".join(self.blocks), 0, 0)
        rest = records.select([row >= rows for row in range(self.rows)]).data
        return _Piece([rest], len(rest), self.rows - rows, self.before + rows)


def _hash_name(name: str) -> int:
    """The number of the producer of that name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1
