"""Producers: records are collected in a batch for each partition and appended together."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from shmq import api
from shmq.api.options import Confirm, check_one_of, check_whole
from shmq.errors import (
    Forbidden,
    Full,
    InvalidOption,
    LockTimeout,
    MessageTooLarge,
    NoSpace,
    NotConfirmed,
    OutOfSequence,
    PartitionSealed,
    ShmqError,
    StreamDeleted,
    Unauthorized,
    Unsupported,
)
from shmq.fork_safe import new_lock
from shmq.model.codec.compression import LARGEST, compressor
from shmq.native import _clock as time
from shmq.native import _core, _stream
from shmq.native._core import check_seconds

log = logging.getLogger("shmq")

#: The size of an entry without its value, its key and its headers, in bytes.
_HEAD: Final = _stream.ENTRY_HEAD

#: Errors after which nothing of the batch was appended. After any other error it may have been.
_REFUSALS: Final = (
    Forbidden,
    Full,
    InvalidOption,
    LockTimeout,
    MessageTooLarge,
    NoSpace,
    OutOfSequence,
    PartitionSealed,
    StreamDeleted,
    Unauthorized,
    Unsupported,
)


class _Record:
    """A record in the form in which it is appended."""

    __slots__ = ("block", "key", "partition")

    def __init__(self, block: bytes, key: bytes | None, partition: int) -> None:
        self.block = block
        self.key = key
        self.partition = partition


class _Batch:
    """Records of one partition. After a failed attempt to append it, a batch takes no more."""

    __slots__ = ("records", "sequence", "since", "size", "tried", "uncertain")

    def __init__(self) -> None:
        self.records: list[_Record] = []
        #: The first record's sequence, set by the first attempt.
        self.sequence: int | None = None
        self.since = time.monotonic()
        self.size = 0
        self.tried = False
        #: Whether it may have been appended.
        self.uncertain = False

    def add(self, record: _Record) -> None:
        self.records.append(record)
        self.size += len(record.block)


class Producer(api.Producer):
    """Implements :class:`shmq.api.Producer`."""

    def __init__(
        self,
        stream: api.Stream,
        *,
        partitioner: api.Partitioner | None = None,
        batch_bytes: int = 16 << 10,
        linger: float = 0.0,
        acks: api.Acks = "memory",
        idempotent: bool = True,
        codec: str | None = None,
        compression: api.Compression | None = None,
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
        self._partitioner = partitioner or _choose_by_key
        self._linger = check_seconds("linger", linger, 0.0)
        self._drops = acks == "none"
        #: Whether to wait for room: as the stream's overflow says, unless such records are dropped.
        self._waits = False if self._drops else None
        self._confirm: Confirm = "disk" if acks == "disk" else "memory"
        self._idempotent = idempotent
        self._codec = codec
        self._default = getattr(stream, "default", None)
        self._compression = compression
        self._max_record_bytes = stream.options.max_record_bytes
        self._max_block_bytes = stream.max_block_bytes
        #: A batch is appended as one block, so it must not exceed the longest block.
        self._most = min(check_whole("batch_bytes", batch_bytes, 1), self._max_block_bytes)
        #: The open partitions; and the open ones when no record of a sealed one was left last.
        self._opened = self._settled = stream.open_partitions
        self._sticky = itertools.count(secrets.randbelow(1 << 16))
        self._stuck_to = next(self._sticky)
        self._lock = new_lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._id = secrets.randbits(63) | 1 if self._idempotent else None
        self._compress = None if self._compression is None else compressor(self._compression)
        self._batches: dict[int, deque[_Batch]] = {}
        self._next: dict[int, int] = {}
        self._stirred = threading.Condition(self._lock)
        self._clock: threading.Thread | None = None
        #: Counters of records sent, appended and failed; the others are in the batches.
        self._sent = self._appended = self._failed = 0
        #: The error of records that are in the stream, but not known to be on disk.
        self._unconfirmed: NotConfirmed | None = None
        self._generation = _core.generation()

    def _renew_in_child(self) -> None:
        """In the child of a fork, become another producer: the parent appends what it was sent.

        With the parent's id, the stream would take the records of one of the two for repetitions.
        """
        if _core.generation() != self._generation:
            with self._lock:
                if _core.generation() != self._generation:
                    self._start()

    @property
    def id(self) -> int | None:
        self._renew_in_child()
        return self._id

    @property
    def pending(self) -> int:
        self._renew_in_child()
        over = self._appended + self._failed  # before ``_sent``, which may grow in the meantime
        return self._sent - over

    @property
    def appended(self) -> int:
        self._renew_in_child()
        return self._appended

    @property
    def failed(self) -> int:
        self._renew_in_child()
        return self._failed

    def send(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> int:
        self._renew_in_child()
        known_as = _encode_key(key)
        block = self._pack(value, known_as, headers)
        with self._lock:
            if self._closed:
                raise ShmqError(f"this producer of stream {self._stream.name!r} is closed")
            self._raise_unconfirmed()
            record = _Record(block, known_as, self._choose(known_as, partition))
            self._make_room(record)
            self._take(record)
            self._sent += 1
            if self._is_due(record.partition):
                self._append_taken(record)
            else:
                self._keep_time()
            return record.partition

    def _pack(self, value: Any, key: bytes | None, headers: Mapping[str, Any] | None) -> bytes:
        if headers is not None and not isinstance(headers, Mapping):
            raise TypeError(f"headers={headers!r:.80} must be a map, not {type(headers).__name__}")
        block, size = _stream.pack_record(value, key, headers or None, self._codec, self._default)
        if size > self._max_record_bytes:
            raise MessageTooLarge(
                f"the record has {size} bytes, and stream {self._stream.name!r} takes "
                f"{self._max_record_bytes}: make it with a larger max_record_bytes"
            )
        if len(block) > self._max_block_bytes:
            raise MessageTooLarge(
                f"the record has {len(block)} bytes, and the server takes "
                f"{self._max_block_bytes} of stream {self._stream.name!r} in one request"
            )
        return block

    def _choose(self, key: bytes | None, partition: int | None) -> int:
        if self._stream.open_partitions != self._settled:
            self._move_to_new_partitions()
        return self._place_of(key) if partition is None else self._check(partition, self._opened)

    def _place_of(self, key: bytes | None) -> int:
        opened = self._opened
        if key is None and self._partitioner is _choose_by_key:
            return opened[self._stuck_to % len(opened)]
        return opened[self._check(self._partitioner(key, len(opened)), range(len(opened)))]

    def _check(self, partition: Any, possible: range) -> int:
        partition = _core.plain_number(partition)
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(f"partition={partition!r:.40} must be an int")
        if partition not in possible:
            raise InvalidOption(
                f"partition={partition}: those of stream {self._stream.name!r} that take records "
                f"are {possible.start} to {possible.stop - 1}"
            )
        return int(partition)

    # ---- taking ----

    def _make_room(self, record: _Record) -> None:
        """Append the batches that precede the record and cannot take it; raises if that fails.

        Afterwards the record may belong to another partition.
        """
        found = self._batches.get(record.partition)
        if not found or not (found[0].tried or self._is_too_large(found[-1], record)):
            return
        if not found[0].tried:
            self._stuck_to = next(self._sticky)
        partition = record.partition
        self._append(partition)
        if partition not in self._opened:  # it was sealed in the meantime
            record.partition = self._place_of(record.key)

    def _is_too_large(self, batch: _Batch, record: _Record) -> bool:
        return bool(batch.records) and batch.size + len(record.block) > self._most

    def _take(self, record: _Record) -> None:
        """Add the record to the last batch of its partition, or to a new one."""
        found = self._batches.setdefault(record.partition, deque())
        if not found or found[-1].tried or self._is_too_large(found[-1], record):
            found.append(_Batch())
        found[-1].add(record)

    def _is_due(self, partition: int) -> bool:
        return not self._linger or self._batches[partition][-1].size >= self._most

    def _append_taken(self, record: _Record) -> None:
        """Append the batches of its partition. Raises if the record is in none of them then."""
        self._stuck_to = next(self._sticky)
        try:
            self._append(record.partition)
        except Exception as error:
            if self._take_back(record):
                raise
            log.warning("stream %s: a batch waits: %s", self._stream.name, error)

    def _take_back(self, record: _Record) -> bool:
        """Take back the record, the last one that was sent; whether that was possible."""
        found = self._batches.get(record.partition)
        batch = found[-1] if found else None
        if batch is None or batch.uncertain or batch.records[-1] is not record:
            return False  # it was appended, or may have been
        batch.records.pop()
        batch.size -= len(record.block)
        if not batch.records:
            self._batches[record.partition].pop()
        self._sent -= 1
        return True

    # ---- appending ----

    def _append(self, partition: int) -> None:
        """Append the partition's batches in order; those that fail wait for the next call.

        Raises what the stream raises; the records are still in their batches then.
        """
        found = self._batches.get(partition)
        while found:
            batch = found[0]
            try:
                self._append_batch(partition, batch)
            except PartitionSealed:
                self._move(partition)
                return
            except ShmqError as error:
                self._handle_failure(partition, batch, error)
            except BaseException:
                batch.tried = batch.uncertain = True
                raise
            else:
                self._finish_batch(partition, batch)
                self._appended += len(batch.records)

    def _handle_failure(self, partition: int, batch: _Batch, error: ShmqError) -> None:
        """Drop the batch, or keep it and raise."""
        if self._drops:
            log.warning("stream %s: records are dropped: %s", self._stream.name, error)
            self._finish_batch(partition, batch)
            self._failed += len(batch.records)
            return
        batch.tried = True
        batch.uncertain |= not isinstance(error, _REFUSALS)
        if isinstance(error, NotConfirmed) and self._id is None:
            # The records are in the stream, which could not detect a repetition.
            self._finish_batch(partition, batch)
            self._appended += len(batch.records)
            self._unconfirmed = error
        raise error

    def _finish_batch(self, partition: int, batch: _Batch) -> None:
        """Finish the batch. Its sequences are used up, since it may have been appended."""
        self._batches[partition].popleft()
        self._next[partition] = (batch.sequence or 0) + len(batch.records)

    def _move_to_new_partitions(self) -> None:
        """Move to the new partitions: batches of sealed ones are appended before later records."""
        self._opened = opened = self._stream.open_partitions
        for partition in sorted(self._batches):
            if partition not in opened:
                self._append(partition)
        self._settled = opened

    def _move(self, sealed: int) -> None:
        """Append the remaining records of a sealed partition to others, as if sent now."""
        self._opened = self._stream.open_partitions
        left = [record for batch in self._batches[sealed] for record in batch.records]
        places = [self._place_of(record.key) for record in left]  # a partitioner may raise
        del self._batches[sealed]
        self._next.pop(sealed, None)
        for record, partition in zip(left, places, strict=True):
            record.partition = partition
            self._take(record)
        for partition in sorted(set(places)):
            self._append(partition)

    def _append_batch(self, partition: int, batch: _Batch) -> None:
        block = b"".join(record.block for record in batch.records)
        how: dict[str, Any] = {"partition": partition, "wait": self._waits}
        if self._drops or self._confirm == "disk":
            how["confirm"] = self._confirm
        if self._id is not None:
            if batch.sequence is None:
                batch.sequence = self._next.get(partition, 0)
            # The sequences of dropped batches are skipped.
            how |= {"producer": self._id, "sequence": batch.sequence, "gaps": self._drops}
        count = len(batch.records)
        if self._compress is None or not self._append_compressed(block, count, how):
            self._stream.append_block(block, count=count, **how)

    def _append_compressed(self, block: bytes, count: int, how: dict[str, Any]) -> bool:
        """Whether it was appended; not if compression does not shrink it, or it is too large."""
        assert self._compress is not None
        if len(block) > LARGEST:
            return False
        packed = self._compress(block)
        if len(packed) + _HEAD >= len(block):
            return False
        with contextlib.suppress(MessageTooLarge):
            self._stream.append_block(
                packed, count=count, compression=self._compression, raw_bytes=len(block), **how
            )
            return True
        return False

    # ---- the end ----

    def flush(self) -> None:
        self._renew_in_child()
        with self._lock:
            failed = self._append_all()
            if failed:
                raise self._combine_errors(failed)
            self._raise_unconfirmed()

    def _append_all(self) -> dict[int, ShmqError]:
        """Append every batch; returns the errors of partitions that have records left."""
        failed: dict[int, ShmqError] = {}
        while left := [each for each, found in self._batches.items() if found]:
            left = [partition for partition in sorted(left) if partition not in failed]
            if not left:
                break
            for partition in left:  # moving them may fill batches of other partitions
                try:
                    self._append(partition)
                except ShmqError as error:
                    failed[partition] = error
        return failed

    def _combine_errors(self, failed: dict[int, ShmqError]) -> ShmqError:
        """The first of the errors, extended by what is left of all of them."""
        left = [each for each, found in self._batches.items() if found]
        error = next(iter(failed.values()))
        name = self._stream.name
        error.args = (
            (
                f"{self.pending} records that were sent to stream {name!r} are not known to be "
                f"appended, to {_format_partitions(sorted(left))}: {error}"
            ),
            *error.args[1:],
        )
        return error

    def _raise_unconfirmed(self) -> None:
        error, self._unconfirmed = self._unconfirmed, None
        if error is not None:
            raise error

    # ---- time ----

    def _keep_time(self) -> None:
        """Start a thread that appends batches that have waited long enough."""
        if self._clock is None:
            self._clock = threading.Thread(target=self._flush_due, name="shmq linger", daemon=True)
            self._clock.start()
        self._stirred.notify()

    def _flush_due(self) -> None:
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
        except Exception as error:  # noqa: BLE001 - the next call raises it
            log.warning("stream %s: a batch waits: %s", self._stream.name, error)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self.flush()
            finally:
                self._closed = True
                self._stirred.notify_all()


def _format_partitions(partitions: Iterable[int]) -> str:
    numbers = ", ".join(map(str, partitions))
    return f"partitions {numbers}" if "," in numbers else f"partition {numbers}"


def _encode_key(key: bytes | str | None) -> bytes | None:
    if key is None or isinstance(key, str):
        return key.encode() if key is not None else None
    try:
        return bytes(memoryview(key))
    except TypeError:
        raise TypeError(f"key={key!r} must be bytes or a str, not {type(key).__name__}") from None


def _choose_by_key(key: bytes | None, partitions: int) -> int:
    return zlib.crc32(key or b"") % partitions
