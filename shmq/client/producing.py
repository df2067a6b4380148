"""Producers: records gathered into a batch of each partition, and appended in one piece."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any

from shmq import codecs, contract
from shmq.compression import LARGEST, compressor
from shmq.core import _log
from shmq.errors import (
    InvalidOption,
    MessageTooLarge,
    NotConfirmed,
    PartitionSealed,
    ShmqError,
)
from shmq.options import Confirm, check_one_of, check_seconds, check_whole

__all__ = ["Producer", "producer"]

log = logging.getLogger("shmq")

#: What a record takes beside its value, its key and its headers, in bytes.
_HEAD = 48


class _Batch:
    """Records of one partition. Once an attempt was made to append them, no more are added."""

    __slots__ = ("headers", "keys", "sequence", "since", "size", "tried", "values")

    def __init__(self, sequence: int) -> None:
        self.values: list[Any] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Mapping[str, Any] | None] = []
        #: That of the first record.
        self.sequence = sequence
        self.since = time.monotonic()
        self.size = 0
        self.tried = False


class Producer(contract.Producer):
    """See :class:`shmq.contract.Producer`."""

    def __init__(
        self,
        stream: contract.Stream,
        *,
        partitioner: contract.Partitioner | None = None,
        batch_bytes: int = 16 << 10,
        linger: float = 0.0,
        acks: contract.Acks = "memory",
        idempotent: bool = True,
        codec: str | None = None,
        compression: contract.Compression | None = None,
    ) -> None:
        check_one_of("acks", acks, ("none", "memory", "disk"))
        if partitioner is not None and not callable(partitioner):
            raise TypeError(
                f"partitioner={partitioner!r} must be called with a key and the number of "
                f"partitions, and cannot be"
            )
        if acks == "disk" and stream.options.durability != "journal":
            raise InvalidOption(
                f"acks='disk': stream {stream.name!r} keeps no journal: make it with "
                f"durability='journal'"
            )
        self._stream = stream
        self._partitioner = partitioner or _by_key
        self._batch_bytes = check_whole("batch_bytes", batch_bytes, 1)
        self._linger = check_seconds("linger", linger, 0.0)
        self._drops = acks == "none"
        #: For room: as the stream's overflow says, unless what finds none is dropped.
        self._waits = False if self._drops else None
        self._confirm: Confirm = "disk" if acks == "disk" else "memory"
        self._id = secrets.randbits(63) | 1 if idempotent else None
        self._codec = codec
        self._compression = compression
        self._compress = None if compression is None else compressor(compression)
        self._batches: dict[int, deque[_Batch]] = {}
        self._next: dict[int, int] = {}
        self._opened = stream.open_partitions
        self._sticky = itertools.count(secrets.randbelow(1 << 16))
        self._stuck_to = next(self._sticky)
        self._lock = threading.RLock()
        self._stirred = threading.Condition(self._lock)
        self._clock: threading.Thread | None = None
        #: How many were sent, and what became of them: the rest is in the batches.
        self._sent = self._appended = self._failed = 0
        self._closed = False

    @property
    def id(self) -> int | None:
        """See :class:`shmq.contract.Producer`."""
        return self._id

    @property
    def pending(self) -> int:
        """See :class:`shmq.contract.Producer`."""
        over = self._appended + self._failed  # before those that are sent meanwhile
        return self._sent - over

    @property
    def appended(self) -> int:
        """See :class:`shmq.contract.Producer`."""
        return self._appended

    @property
    def failed(self) -> int:
        """See :class:`shmq.contract.Producer`."""
        return self._failed

    def send(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> int:
        """See :class:`shmq.contract.Producer`."""
        known_as = _bytes_of(key)
        size = self._size_of(value, known_as, headers)
        with self._lock:
            if self._closed:
                raise ShmqError(f"this producer of stream {self._stream.name!r} is closed")
            chosen = self._chosen(known_as, partition)
            batch = self._open_batch(chosen, size)
            batch.values.append(value)
            batch.keys.append(known_as)
            batch.headers.append(headers)
            batch.size += size
            self._sent += 1
            if batch.size >= self._batch_bytes or not self._linger:
                self._stuck_to = next(self._sticky)
                self._append(chosen)
            else:
                self._keep_time()
            return chosen

    def _size_of(self, value: Any, key: bytes | None, headers: Mapping[str, Any] | None) -> int:
        size: int = memoryview(codecs.encode_body(value, self._codec)[0]).nbytes
        size += len(key or b"")
        if headers is not None and not isinstance(headers, Mapping):
            raise TypeError(f"headers={headers!r:.80} must be a map, not {type(headers).__name__}")
        size += len(codecs.pack_properties(dict(headers))) if headers else 0
        most = self._stream.options.max_record_bytes
        if most is not None and size > most:
            raise MessageTooLarge(
                f"the record has {size} bytes, and stream {self._stream.name!r} takes {most}: "
                f"make it with a larger max_record_bytes"
            )
        return size + _HEAD

    def _chosen(self, key: bytes | None, partition: int | None) -> int:
        opened = self._stream.open_partitions
        if opened != self._opened:
            self._go_over(opened)
        if partition is None:
            if key is None and self._partitioner is _by_key:
                return opened[self._stuck_to % len(opened)]
            return opened[self._checked(self._partitioner(key, len(opened)), range(len(opened)))]
        return self._checked(partition, opened)

    def _checked(self, partition: Any, possible: range) -> int:
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(f"partition={partition!r:.40} must be an int")
        if partition not in possible:
            raise InvalidOption(
                f"partition={partition}: those of stream {self._stream.name!r} that take records "
                f"are {possible.start} to {possible.stop - 1}"
            )
        return partition

    def _open_batch(self, partition: int, size: int) -> _Batch:
        """The batch that takes a record of that size."""
        found = self._batches.setdefault(partition, deque())
        full = found and found[-1].values and found[-1].size + size > self._batch_bytes
        if full:
            self._stuck_to = next(self._sticky)
            self._append(partition)
        if not found or found[-1].tried:
            sequence = self._next.get(partition, 0)
            if found:
                sequence = found[-1].sequence + len(found[-1].values)
            found.append(_Batch(sequence))
        return found[-1]

    # ---- appending ----

    def _append(self, partition: int) -> None:
        """Append the partition's batches in their order. What cannot be waits for the next call."""
        found = self._batches.get(partition)
        while found:
            batch = found[0]
            batch.tried = True
            try:
                self._append_batch(partition, batch)
            except NotConfirmed:  # it is there, though not known to be on disk
                self._over(partition, batch)
                self._appended += len(batch.values)
                raise
            except PartitionSealed as error:
                self._move(partition, _appended_before(error))
                return
            except ShmqError as error:
                if not self._drops:
                    raise
                log.warning("stream %s: records are dropped: %s", self._stream.name, error)
                self._over(partition, batch)
                appended = _appended_before(error)
                self._appended += appended
                self._failed += len(batch.values) - appended
            else:
                self._over(partition, batch)
                self._appended += len(batch.values)

    def _over(self, partition: int, batch: _Batch) -> None:
        """The batch is not tried again. Its numbers are spent: it may be there after all."""
        self._batches[partition].popleft()
        self._next[partition] = batch.sequence + len(batch.values)

    def _go_over(self, opened: range) -> None:
        """What waits for partitions that are sealed goes before what comes."""
        self._opened = opened
        for partition in sorted(self._batches):
            if partition not in opened:
                self._append(partition)

    def _move(self, sealed: int, appended: int) -> None:
        """Append to other partitions what is left for a sealed one, as if it were sent now.

        The first ``appended`` records of it are in the sealed one.
        """
        self._appended += appended
        left = self._batches.pop(sealed)
        self._next.pop(sealed, None)
        chosen = set()
        for batch in left:
            for value, key, headers in zip(batch.values, batch.keys, batch.headers, strict=True):
                if appended:
                    appended -= 1
                    continue
                partition = self._chosen(key, None)
                into = self._open_batch(partition, 0)
                into.values.append(value)
                into.keys.append(key)
                into.headers.append(headers)
                chosen.add(partition)
        for partition in sorted(chosen):
            self._append(partition)

    def _append_batch(self, partition: int, batch: _Batch) -> None:
        keys = batch.keys if any(key is not None for key in batch.keys) else None
        headers = batch.headers if any(batch.headers) else None
        how: dict[str, Any] = {"partition": partition}
        if self._drops or self._confirm == "disk":
            how["confirm"] = self._confirm
        if self._id is not None:
            # Those of a batch that was dropped are left out.
            how |= {"producer": self._id, "sequence": batch.sequence, "gaps": self._drops}
        if self._compress is None or not self._append_compressed(batch, keys, headers, how):
            self._stream.append_many(
                batch.values,
                keys=keys,
                headers=headers,
                codec=self._codec,
                block=self._waits,
                **how,
            )

    def _append_compressed(
        self,
        batch: _Batch,
        keys: list[bytes | None] | None,
        headers: list[Mapping[str, Any] | None] | None,
        how: dict[str, Any],
    ) -> bool:
        """Whether it was appended; not if it gets no smaller, or is too large for one piece."""
        assert self._compress is not None
        block = _log.pack_records(batch.values, keys, headers, self._codec)
        if len(block) > min(LARGEST, self._stream.options.ring_bytes // 2):
            return False
        packed = self._compress(block)
        if len(packed) + _HEAD >= len(block):
            return False
        count, raw_bytes = len(batch.values), len(block)
        with contextlib.suppress(MessageTooLarge):
            self._stream.append_block(
                packed,
                count=count,
                compression=self._compression,
                raw_bytes=raw_bytes,
                wait=self._waits,
                **how,
            )
            return True
        return False

    def flush(self) -> None:
        """See :class:`shmq.contract.Producer`."""
        with self._lock:
            for partition in sorted(self._batches):
                self._append(partition)  # which may have another one take its records

    # ---- time ----

    def _keep_time(self) -> None:
        """Have a thread append what has waited for long enough."""
        if self._clock is None:
            self._clock = threading.Thread(target=self._tick, name="shmq linger", daemon=True)
            self._clock.start()
        self._stirred.notify()

    def _tick(self) -> None:
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                due = {
                    partition: found[0].since + self._linger - now
                    for partition, found in self._batches.items()
                    if found and not found[0].tried
                }
                for partition in [each for each, left in due.items() if left <= 0]:
                    self._append_late(partition)
                    del due[partition]
                self._stirred.wait(min(due.values(), default=None))

    def _append_late(self, partition: int) -> None:
        try:
            self._append(partition)
        except ShmqError as error:  # the next call of the application is told
            log.warning("stream %s: a batch waits: %s", self._stream.name, error)

    def close(self) -> None:
        """See :class:`shmq.contract.Producer`."""
        with self._lock:
            if self._closed:
                return
            try:
                self.flush()
            finally:
                self._closed = True
                self._stirred.notify_all()


def _appended_before(error: ShmqError) -> int:
    """How many records of its batch were appended before the error."""
    return sum(done.count for done in getattr(error, "appended", ()))


def _bytes_of(key: bytes | str | None) -> bytes | None:
    if key is None or isinstance(key, str):
        return key.encode() if key is not None else None
    try:
        return bytes(memoryview(key))
    except TypeError:
        raise TypeError(f"key={key!r} must be bytes or a str, not {type(key).__name__}") from None


def _by_key(key: bytes | None, partitions: int) -> int:
    return zlib.crc32(key or b"") % partitions


def producer(
    self: contract.Stream,
    *,
    partitioner: contract.Partitioner | None = None,
    batch_bytes: int = 16 << 10,
    linger: float = 0.0,
    acks: contract.Acks = "memory",
    idempotent: bool = True,
    codec: str | None = None,
    compression: contract.Compression | None = None,
) -> Producer:
    """``Stream.producer`` of any stream."""
    return Producer(
        self,
        partitioner=partitioner,
        batch_bytes=batch_bytes,
        linger=linger,
        acks=acks,
        idempotent=idempotent,
        codec=codec,
        compression=compression,
    )
