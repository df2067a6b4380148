"""Appending to a stream: records in blocks for each partition, and waits for room."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from shmq import api, errors
from shmq.api.options import Confirm, check_whole
from shmq.client.handles.put import is_durable
from shmq.client.ports.stream import AppendedEntries, Entries
from shmq.client.shared.backoff import RoomBackoff
from shmq.native import _clock as time
from shmq.native import _core, _stream

#: The longest block of one append, in bytes.
_BATCH_BYTES: Final = 4 << 20
#: The size of an entry without its value, in bytes.
_HEAD: Final = 48
#: After this many bytes without a key, the next partition is used.
_STICKY_BYTES: Final = 64 << 10

_Key = bytes | str | None
_Headers = Mapping[str, Any] | None


class AppendOptions:
    """The options of an append, without the records. Raises InvalidOption, TypeError."""

    __slots__ = ("durable", "gaps", "producer", "sequence", "until", "waits")

    def __init__(
        self,
        stream: api.Stream,
        block: bool | None,
        timeout: float | None,
        confirm: Confirm | None,
        producer: int | None,
        sequence: int | None,
        gaps: bool = False,
    ) -> None:
        if timeout is not None:
            timeout = _core.check_timeout(timeout)
        if (producer is None) != (sequence is None):
            raise errors.InvalidOption(
                f"producer={producer!r}, sequence={sequence!r}: give both of them, or none"
            )
        if producer is not None:
            check_whole("producer", producer, 0)
            check_whole("sequence", sequence, 0)
        self.durable = is_durable(stream, confirm, "stream")
        self.waits = stream.options.overflow == "block" or timeout is not None
        if block is not None:
            self.waits = block
        self.until = None if timeout is None else time.monotonic() + timeout
        self.producer = producer
        self.sequence = sequence
        self.gaps = gaps

    def check_place(self, partition: int | None) -> None:
        """Raise InvalidOption for a sequence without a partition."""
        if self.producer is not None and partition is None:
            raise errors.InvalidOption("a producer's sequence is of one partition: give it")


class Appender:
    """The appending part of a :class:`~shmq.client.handles.stream.StreamHandle`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._sticky = random.randrange(1 << 16)
        self._left = _STICKY_BYTES
        self._most = min(_BATCH_BYTES, stream.max_block_bytes)

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
            self._stream.default,
        )
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
            batches = self._split_by_partition(
                _PartitionBatch(all_values, keys, headers), partition
            )
            # All are encoded before the first is appended: one that cannot be fails the call.
            ready = self._encode(batches, codec, timestamp)
            while ready:
                place, batch, blocks = ready.pop(0)
                rest = self._append_batch(place, batch, blocks, partition, options, done)
                if rest is not None:
                    again = self._split_by_partition(rest, None)
                    ready[:0] = self._encode(again, codec, timestamp)
        except errors.ShmqError as error:
            error.appended = done  # type: ignore[attr-defined]
            raise
        return done

    def _append_batch(
        self,
        place: int,
        batch: _PartitionBatch,
        blocks: list[tuple[bytes, int]],
        partition: int | None,
        options: AppendOptions,
        done: list[api.AppendedRange],
    ) -> _PartitionBatch | None:
        """Append a batch; returns the rest if its partition is sealed. Raises PartitionSealed."""
        appended = 0
        for block, count in blocks:
            try:
                range_ = self.block(block, place, count, options)
            except errors.PartitionSealed:
                if partition is not None:
                    raise
                return batch.cut(appended, len(batch.values))
            done.append(_stream.AppendedRange(place, range_.first, count, range_.duplicate))
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
    ) -> AppendedEntries:
        """Append entries, waiting for room as long as asked for."""
        entries = Entries(
            partition=self._stream.check_partition(partition),
            block=block,
            count=count,
            compression=compression,
            raw_bytes=raw_bytes,
            producer=options.producer,
            sequence=options.sequence,
            gaps=options.gaps,
            durable=options.durable,
            until=options.until,
        )
        backoff = None
        while True:
            try:
                done: AppendedEntries = self._stream.append_entries(entries)
            except errors.Full:
                left = None if options.until is None else options.until - time.monotonic()
                if not options.waits or (left is not None and left <= 0):
                    raise
            else:
                return done
            backoff = backoff or RoomBackoff()
            time.sleep(backoff.pause(left))

    # ---- where to ----

    def _place(self, key: _Key, partition: int | None, value: Any) -> int:
        """The partition of one record. Raises InvalidOption, TypeError."""
        if partition is not None:
            return int(self._stream.check_partition(partition))
        opened: range = self._stream.open_partitions
        if key is not None:
            return opened[zlib.crc32(_encode_key(key)) % len(opened)]
        self._left -= _HEAD + (len(value) if isinstance(value, (bytes, str)) else _HEAD)
        if self._left < 0:
            self._left = _STICKY_BYTES
            self._sticky += 1
        return opened[self._sticky % len(opened)]

    def _split_by_partition(
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

    def _encode(
        self, batches: list[tuple[int, _PartitionBatch]], codec: str | None, timestamp: float | None
    ) -> list[tuple[int, _PartitionBatch, list[tuple[bytes, int]]]]:
        """The batches with their blocks."""
        return [
            (place, batch, list(self._encode_blocks(batch, codec, timestamp)))
            for place, batch in batches
        ]

    def _encode_blocks(
        self, batch: _PartitionBatch, codec: str | None, timestamp: float | None
    ) -> Iterator[tuple[bytes, int]]:
        """The records as entries, as many at once as fit into a frame."""
        count = len(batch.values)
        if count == 1 or batch.least_bytes() <= self._most:
            block = _stream.pack_records(
                batch.values, batch.keys, batch.headers, codec, timestamp, self._stream.default
            )
            if len(block) <= self._most or count == 1:
                yield block, count
                return
        for half in (batch.cut(0, count // 2), batch.cut(count // 2, count)):
            yield from self._encode_blocks(half, codec, timestamp)


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


def _encode_key(key: bytes | str) -> bytes:
    if isinstance(key, str):
        return key.encode()
    try:
        return key if isinstance(key, bytes) else bytes(memoryview(key))
    except TypeError:
        raise TypeError(
            f"key={key!r:.80} must be bytes or a str, not {type(key).__name__}"
        ) from None
