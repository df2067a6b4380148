"""Appending to a stream of a server: batches that fit into frames, and waits for room."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from shmq import api, errors
from shmq.api.options import Confirm, check_whole
from shmq.client.handles.put import is_durable
from shmq.client.remote.connection import Await, RoomBackoff
from shmq.client.remote.durable_wait import confirmed
from shmq.native import _clock as time
from shmq.native import _core, _stream
from shmq.protocol.messages.stream import Append, Appended
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import stream_error_of

#: The longest batch of one APPEND, in bytes of entries.
_BATCH_BYTES: Final = 4 << 20
#: The size of a request without its entries, and of an entry without its value, in bytes.
_BESIDE, _HEAD = 256, 48
#: After this many bytes without a key, the next partition is used.
_STICKY_BYTES: Final = 64 << 10

_Key = bytes | str | None
_Headers = Mapping[str, Any] | None


class AppendOptions:
    """The options of an append, without the records."""

    __slots__ = ("confirm", "gaps", "producer", "sequence", "until", "wait")

    def __init__(
        self,
        wait: bool | None,
        timeout: float | None,
        confirm: Confirm | None,
        producer: int | None,
        sequence: int | None,
        gaps: bool = False,
    ) -> None:
        if timeout is not None:
            _core.check_timeout(timeout)
        if (producer is None) != (sequence is None):
            raise errors.InvalidOption(
                f"producer={producer!r}, sequence={sequence!r}: give both of them, or none"
            )
        if producer is not None:
            check_whole("producer", producer, 0)
            check_whole("sequence", sequence, 0)
        self.wait = wait
        self.until = None if timeout is None else time.monotonic() + timeout
        self.confirm = confirm
        self.producer = producer
        self.sequence = sequence
        self.gaps = gaps

    def check_place(self, partition: int | None) -> None:
        """Raise InvalidOption for a sequence without a partition."""
        if self.producer is not None and partition is None:
            raise errors.InvalidOption("a producer's sequence is of one partition: give it")

    def waits(self, options: Any) -> bool:
        """Whether the append waits for room."""
        if self.wait is None:
            return bool(options.overflow == "block") or self.until is not None
        return self.wait

    def confirmed(self, stream: Any) -> Await:
        """The function that waits for an answer that comes once all is on disk."""
        return lambda wire, answer: confirmed(stream, wire, answer, self.until)


class Appender:
    """The appending part of a :class:`~shmq.client.remote.stream.RemoteStream`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._options = stream.options
        self._sticky = random.randrange(1 << 16)
        self._left = _STICKY_BYTES
        self._most = min(_BATCH_BYTES, self.max_block_bytes)

    @property
    def max_block_bytes(self) -> int:
        """The largest block, in bytes."""
        half = int(self._options.ring_bytes) // 2 - 2 * _HEAD
        return min(half, int(self._stream.max_frame) - _BESIDE)

    def one(
        self,
        value: Any,
        key: _Key,
        headers: _Headers,
        timestamp: float | None,
        partition: int | None,
        codec: str | None,
        options: AppendOptions,
    ) -> api.Appended:
        """See :meth:`shmq.api.Stream.append`."""
        options.check_place(partition)
        block = _stream.pack_records(
            [value],
            None if key is None else [key],
            None if headers is None else [headers],
            codec,
            timestamp,
        )
        self._check_size(len(block))
        while True:
            place = self._place(key, partition, value)
            try:
                done = self.block(block, place, 1, options)
            except errors.PartitionSealed:
                if partition is None:
                    continue
                raise
            return _stream.Appended(place, done.first, done.timestamp_ns, done.duplicate)

    def many(
        self,
        values: Iterable[Any],
        keys: Sequence[_Key] | None,
        headers: Sequence[_Headers] | None,
        timestamp: float | None,
        partition: int | None,
        codec: str | None,
        options: AppendOptions,
    ) -> list[api.AppendedRange]:
        """See :meth:`shmq.api.Stream.append_many`."""
        options.check_place(partition)
        _stream.check_many(values)
        all_values = values if isinstance(values, list) else list(values)
        _stream.check_each("keys", keys, len(all_values))
        _stream.check_each("headers", headers, len(all_values))
        done: list[api.AppendedRange] = []
        try:
            batches = self._batches(_PartitionBatch(all_values, keys, headers), partition)
            while batches:
                place, batch = batches.pop(0)
                rest = self._append_batch(place, batch, codec, timestamp, partition, options, done)
                if rest is not None:
                    batches[:0] = self._batches(rest, None)
        except errors.ShmqError as error:
            error.appended = done  # type: ignore[attr-defined]
            raise
        return done

    def _append_batch(
        self,
        place: int,
        batch: _PartitionBatch,
        codec: str | None,
        timestamp: float | None,
        partition: int | None,
        options: AppendOptions,
        done: list[api.AppendedRange],
    ) -> _PartitionBatch | None:
        """Append a batch; returns the rest if its partition is sealed. Raises PartitionSealed."""
        appended = 0
        for block, count in self._blocks(batch, codec, timestamp):
            try:
                told = self.block(block, place, count, options)
            except errors.PartitionSealed:
                if partition is not None:
                    raise
                return batch.cut(appended, len(batch.values))
            done.append(_stream.AppendedRange(place, told.first, count, told.duplicate))
            appended += count
            if options.sequence is not None:
                options.sequence += count
        return None

    def block(
        self,
        block: bytes,
        partition: int,
        count: int,
        options: AppendOptions,
        compression: api.Compression | None = None,
        raw_bytes: int = 0,
    ) -> Appended:
        """Append entries, waiting for room as long as asked for."""
        self._checked(partition)
        durable = is_durable(self._stream, options.confirm, "stream")
        rest = Append(
            identity=self._stream.identity,
            partition=partition,
            count=count,
            block=block,
            durable=durable,
            compression=compression,
            raw_bytes=raw_bytes,
            producer=options.producer,
            sequence=options.sequence,
            gaps=options.gaps,
        ).pack()
        backoff = None
        while True:
            answer = self._ask(rest, durable, options)
            if answer.status in (Status.OK, Status.DUPLICATE):
                return Appended.unpack(answer)
            if answer.status == Status.FENCED:
                raise self._sealed(partition)
            left = None if options.until is None else options.until - time.monotonic()
            over = left is not None and left <= 0
            if answer.status != Status.QUEUE_FULL or over or not options.waits(self._options):
                raise stream_error_of(answer, self._stream.name)
            backoff = backoff or RoomBackoff()
            time.sleep(backoff.pause(left))

    def _ask(self, rest: bytes, durable: bool, options: AppendOptions) -> _core.Answer:
        answer: _core.Answer = self._stream.connection.call(
            lambda wire: wire.request(Type.APPEND, True, rest),
            again=options.producer is not None,
            await_=options.confirmed(self._stream) if durable else None,
        )
        return answer

    # ---- where to ----

    def _sealed(self, partition: int) -> errors.PartitionSealed:
        self._stream.refresh()
        opened = self._stream.open_partitions
        return errors.PartitionSealed(
            f"partition {partition} of stream {self._stream.name!r} takes no records any more: "
            f"since it was repartitioned, {opened.start} to {opened.stop - 1} do"
        )

    def _checked(self, partition: int) -> int:
        if not isinstance(partition, int) or isinstance(partition, bool):
            raise TypeError(f"partition={partition!r} must be int, not {type(partition).__name__}")
        if partition >= self._stream.partitions:
            self._stream.refresh()
        count = self._stream.partitions
        if not 0 <= partition < count:
            raise errors.InvalidOption(
                f"partition={partition} is out of range: 0 to {count - 1} in stream "
                f"{self._stream.name!r}"
            )
        return partition

    def _place(self, key: _Key, partition: int | None, value: Any) -> int:
        """The partition of one record. Raises InvalidOption, TypeError."""
        if partition is not None:
            return self._checked(partition)
        opened: range = self._stream.open_partitions
        if key is not None:
            return opened[zlib.crc32(_raw(key)) % len(opened)]
        self._left -= _HEAD + (len(value) if isinstance(value, (bytes, str)) else _HEAD)
        if self._left < 0:
            self._left = _STICKY_BYTES
            self._sticky += 1
        return opened[self._sticky % len(opened)]

    def _batches(
        self, whole: _PartitionBatch, partition: int | None
    ) -> list[tuple[int, _PartitionBatch]]:
        """The records by partition, in the order in which the partitions first occur."""
        if partition is not None or whole.keys is None:
            place = self._place(None, partition, b"")
            self._left -= _HEAD * len(whole.values)
            return [(place, whole)] if whole.values else []
        found: dict[int, list[int]] = {}
        for i, key in enumerate(whole.keys):
            found.setdefault(self._place(key, None, whole.values[i]), []).append(i)
        return [(place, whole.picked(numbers)) for place, numbers in found.items()]

    # ---- how many at once ----

    def _blocks(
        self, batch: _PartitionBatch, codec: str | None, timestamp: float | None
    ) -> Iterator[tuple[bytes, int]]:
        """The records as entries, as many at once as fit into a frame."""
        count = len(batch.values)
        if count == 1 or batch.least_bytes() <= self._most:
            block = _stream.pack_records(batch.values, batch.keys, batch.headers, codec, timestamp)
            if len(block) <= self._most:
                yield block, count
                return
            if count == 1:
                self._check_size(len(block))
                yield block, 1
                return
        for half in (batch.cut(0, count // 2), batch.cut(count // 2, count)):
            yield from self._blocks(half, codec, timestamp)

    def _check_size(self, size: int) -> None:
        """Check the size of one entry. Raises MessageTooLarge if it does not fit into a frame."""
        most = self._stream.max_frame - _BESIDE
        if size > most:
            raise errors.MessageTooLarge(
                f"the record has {size} bytes, and one for stream {self._stream.name!r} of this "
                f"server may have {most}"
            )


class _PartitionBatch:
    """Records for one partition."""

    def __init__(
        self, values: list[Any], keys: Sequence[_Key] | None, headers: Sequence[_Headers] | None
    ) -> None:
        self.values = values
        self.keys = keys
        self.headers = headers

    def cut(self, start: int, end: int) -> _PartitionBatch:
        keys, headers = self.keys, self.headers
        return _PartitionBatch(
            self.values[start:end],
            None if keys is None else keys[start:end],
            None if headers is None else headers[start:end],
        )

    def picked(self, numbers: list[int]) -> _PartitionBatch:
        if len(numbers) == len(self.values):
            return self
        keys, headers = self.keys, self.headers
        return _PartitionBatch(
            [self.values[i] for i in numbers],
            None if keys is None else [keys[i] for i in numbers],
            None if headers is None else [headers[i] for i in numbers],
        )

    def least_bytes(self) -> int:
        """The least size of its entries."""
        known = sum(len(each) for each in self.values if isinstance(each, (bytes, str)))
        return known + _HEAD * len(self.values)


def _raw(key: bytes | str) -> bytes:
    if isinstance(key, str):
        return key.encode()
    try:
        return key if isinstance(key, bytes) else bytes(memoryview(key))
    except TypeError:
        raise TypeError(
            f"key={key!r:.80} must be bytes or a str, not {type(key).__name__}"
        ) from None
