"""A transaction of this host: how its operations are collected and committed.

The steps of a commit, with the process's file held (shmq/client/transaction/transaction_log.py):

1. the messages to put are staged in their queues, invisible (shmq/core/queue/transfer.h);
2. the inputs are checked: members own their partitions, messages are leased, and for long;
3. the file gets the list of what is to be done;
4. the commit point: a byte of the file;
5. it is done (shmq/client/transaction/apply.py), and the file is removed.

A death before the commit point leaves copies that are never published, and leases and offsets
unchanged; after it, the next process that is about to take something from the dead one does the
rest (shmq/client/transaction/recover.py).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from shmq import api
from shmq.client.handles.member import Member
from shmq.client.local.group_store import LocalGroupStore
from shmq.client.shared import durable_wait
from shmq.client.transaction.apply import entries_of, happen, put_out, take_in
from shmq.client.transaction.recover import handles_in
from shmq.client.transaction.transaction_log import TRANSACTION, TransactionLog, hold
from shmq.errors import (
    Full,
    InvalidOption,
    LeaseExpired,
    LockTimeout,
    MessageTooLarge,
    NoSpace,
    NotConfirmed,
    PartitionSealed,
    QueueDeleted,
    ShmqError,
    StreamDeleted,
)
from shmq.host.namespace.namespace import Namespace
from shmq.model.codec.codecs import Default, pack_properties
from shmq.native import _clock as time
from shmq.native import _core, _stream
from shmq.native.lock_holder import until_locked

log = logging.getLogger("shmq")

#: How long messages stay leased from the commit on, in seconds: until all of it has happened. The
#: lease of a dead process ends with it.
_HOLD: Final = 86_400.0
#: How long a failed commit tries to shorten these leases again while a stopped process holds a
#: lock, in seconds. It has its own limit: the transaction's timeout may have passed, or be None.
_SHORTENED: Final = 5.0
#: How long one wait of a commit for room in a queue lasts, in seconds.
_PAUSE: Final = 0.002
#: How long to wait until everything is on disk, in seconds.
_WRITTEN: Final = 30.0
#: The stored properties that a message does not take along to another queue.
_LEFT_BEHIND: Final = frozenset({"dedupe", "delay", "error"})
#: The most bytes of an entry beside its block: the producer's number and sequence.
_BESIDE: Final = 96


class _Put(NamedTuple):
    """A message to put, as `Transfer.stage_copy` takes it."""

    body: bytes
    properties: bytes
    codec: int
    priority: int
    group: str | None
    ttl: float | None = 0.0


#: The receipts of staged messages by queue, each with the number of its origin.
_Staged = dict[Any, list[tuple[int, int]]]

_numbers = itertools.count(1)
_sequences: dict[int, int] = {}


class LocalTransaction(api.Transaction):
    """Implements :class:`shmq.api.Transaction`."""

    def __init__(
        self,
        namespace: Namespace,
        find: Callable[[str, str], Any],
        timeout: float | None,
        default: Default | None,
    ) -> None:
        self._namespace = namespace
        self._default = default
        self._find = find
        self._timeout = timeout
        self._handles = handles_in(namespace)
        self._over: str | None = None
        self._generation = _core.generation()
        self._blocks: dict[tuple[Any, int], list[bytes]] = {}
        self._puts: dict[Any, list[_Put]] = {}
        self._members: dict[Member, dict[int, int]] = {}
        self._acks: dict[Any, list[Any]] = {}
        self._sticky = secrets.randbits(31)

    # ---- collecting ----

    def append(
        self,
        stream: str | api.Stream,
        value: api.Body,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
        codec: str | None = None,
    ) -> None:
        keys = None if key is None else [key]
        labels = None if headers is None else [headers]
        self._append(stream, [value], keys, labels, partition, codec)

    def append_many(
        self,
        stream: str | api.Stream,
        values: Sequence[api.Body],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        partition: int | None = None,
        codec: str | None = None,
    ) -> None:
        self._append(stream, values, keys, headers, partition, codec)

    def _append(
        self,
        stream: str | api.Stream,
        values: Sequence[api.Body],
        keys: Sequence[bytes | str | None] | None,
        headers: Sequence[Mapping[str, Any] | None] | None,
        partition: int | None,
        codec: str | None,
    ) -> None:
        target = self._open("stream", stream)
        if partition is not None:
            target.latest(partition)  # raises if no such partition exists
            if partition not in target.open_partitions:
                raise PartitionSealed(
                    f"partition {partition} of stream {target.name!r} takes no records any more"
                )
        most, opened = target.options.max_record_bytes, target.open_partitions
        packed = _stream.pack_records(values, keys, headers, codec, default=self._default)
        pieces: list[tuple[int, bytes]] = []
        for entry, size, key in entries_of(packed):
            if size > most:
                raise MessageTooLarge(
                    f"a record of {size} bytes can never fit into stream {target.name!r}: "
                    f"max_record_bytes={most}"
                )
            where = self._sticky if key is None else zlib.crc32(key)
            at = opened[where % len(opened)] if partition is None else partition
            pieces.append((at, entry))
        for at, entry in pieces:
            self._blocks.setdefault((target, at), []).append(entry)

    def put(self, queue: str | api.Queue, body: api.Body, **properties: Any) -> None:
        target = self._open("queue", queue)
        buffer, number, meta, level, *_ = _core.encode_message(
            body, properties, target.options.priorities, staged=True, default=self._default
        )
        group = properties.get("group")
        self._puts.setdefault(target, []).append(_Put(bytes(buffer), meta, number, level, group))

    def move(self, source: Any, target: Any, message: _core.Message) -> None:
        """Put a message that ``source`` has leased into ``target``, and acknowledge it."""
        target = self._open("queue", target)
        properties = {k: v for k, v in message.properties.items() if k not in _LEFT_BEHIND}
        self._puts.setdefault(target, []).append(
            _Put(
                bytes(message.view),
                pack_properties(properties),
                _core.codec_number(message.codec),
                message.priority,
                message.group,
                message.ttl_left() if "ttl" in properties else 0.0,
            )
        )
        self._acks.setdefault(self._open("queue", source), []).append(message)

    def commit(self, member: api.Member, offsets: Mapping[int, int] | None = None) -> None:
        self._check_open()
        if not isinstance(member, Member) or not self._is_here(member):
            raise _make_elsewhere("member", member)
        self._members.setdefault(member, {}).update(member.to_commit(offsets))

    def _is_here(self, member: Member) -> bool:
        store = member.store
        return isinstance(store, LocalGroupStore) and store.namespace is self._namespace

    def ack(self, queue: api.Queue, *messages: api.Message) -> None:
        self._acks.setdefault(self._open("queue", queue), []).extend(messages)

    def _open(self, kind: str, target: Any) -> Any:
        """The handle of a queue or a stream, given by name or as a handle."""
        self._check_open()
        if isinstance(target, str):
            target = self._find(kind, target)
        if getattr(target, "namespace", None) is not self._namespace:
            raise _make_elsewhere(kind, target)
        self._handles.open.setdefault((kind, target.identity, target.name), target)
        return target

    def _check_open(self) -> None:
        if self._over is not None:
            raise ShmqError(f"this transaction was {self._over} already: begin another")
        if _core.generation() != self._generation:
            raise ShmqError("a transaction does not survive a fork: begin another")

    def abort(self) -> None:
        if self._over is None:
            self._over = "aborted"

    @property
    def aborted(self) -> bool:
        return self._over == "aborted"

    # ---- committing ----

    def finish(self) -> None:
        self._check_open()
        self._over = "aborted"
        self._check_blocks()
        self._wait_for_inputs()
        process, number = self._namespace.processes.own_number(), next(_numbers)
        with self._own_ledger(process) as transaction_log:
            with (
                self._staged(process, transaction_log) as staged,
                self._leased(transaction_log),
                self._noted(transaction_log, number),
            ):
                self._check_members()
                transaction_log.write(self._record(process, staged))
                transaction_log.commit()
            self._over = "committed"
            self._happen(transaction_log)
            if self._namespace.roles.data_dir is None:
                transaction_log.forget(number)  # a new writer starts from the current state
        self._wait_until_written()

    @contextlib.contextmanager
    def _own_ledger(self, process: int) -> Iterator[TransactionLog]:
        """A new file of this process. Raises LockTimeout."""
        until = math.inf if self._timeout is None else time.monotonic() + self._timeout
        while True:
            with hold(self._namespace, process, make=True, until=until) as transaction_log:
                assert transaction_log is not None
                if not transaction_log.is_committed:
                    yield transaction_log
                    return
                # An earlier commit of this process was interrupted after its commit point.
                happen(handles_in(self._namespace), transaction_log.read(), wait=True)
                transaction_log.finish()

    @contextlib.contextmanager
    def _noted(self, transaction_log: TransactionLog, number: int) -> Iterator[None]:
        """If a journal is involved, make the file visible to its writer, and announce it."""
        touched = [*self._acks, *self._puts, *(stream for stream, _ in self._blocks)]
        streams = (member.stream for member in self._members)
        if not any(map(_has_journal, (*touched, *streams))):
            yield
            return
        with transaction_log.noted(number):
            self._namespace.roles.announce_transaction()
            _core.mark()
            yield

    def _wait_for_inputs(self) -> None:
        """Wait until the inputs are on disk, where required: their outputs may get there first.

        Raises NotConfirmed.
        """
        until = time.monotonic() + (_WRITTEN if self._timeout is None else self._timeout)
        for queue, messages in self._acks.items():
            if not (_has_journal(queue) and queue.has_writer()):
                continue
            last = max((message.sequence for message in messages), default=0)
            if not queue.journal.wait_synced(last, max(0.0, until - time.monotonic())):
                raise durable_wait.not_confirmed(queue, last, len(messages))
        for member, offsets in self._members.items():
            if _has_journal(member.stream):
                self._wait_for_records(member.stream, offsets, until)

    def _wait_for_records(self, stream: Any, offsets: Mapping[int, int], until: float) -> None:
        for partition, offset in offsets.items():
            log, end = stream.logs[partition], min(offset, stream.latest(partition))
            if not self._namespace.processes.is_alive(log.writer):
                continue
            if not stream.wait_written(log, end, max(0.0, until - time.monotonic())):
                raise NotConfirmed(
                    f"partition {partition} of stream {stream.name!r} is not known to be on disk "
                    f"up to offset {end}, which a transaction is to commit: nothing has "
                    f"happened; see `shmq doctor`",
                    end - 1,
                )

    def _check_blocks(self) -> None:
        for (stream, partition), entries in self._blocks.items():
            size = sum(map(len, entries))
            most = stream.options.ring_bytes // 2 - _BESIDE
            if _count_bytes(entries) > most:
                raise MessageTooLarge(
                    f"{len(entries)} records of {size} bytes cannot come to partition "
                    f"{partition} of stream {stream.name!r} together: it takes {most} bytes of a "
                    f"transaction, half of its ring"
                )

    @contextlib.contextmanager
    def _staged(self, process: int, transaction_log: TransactionLog) -> Iterator[_Staged]:
        """The staged messages; removed again if they are not committed."""
        until = None if self._timeout is None else time.monotonic() + self._timeout
        staged = self._stage(process)
        while isinstance(staged, Full | NoSpace):
            if until is not None and time.monotonic() >= until:
                raise staged
            time.sleep(_PAUSE)
            staged = self._stage(process)
        try:
            yield staged
        except BaseException:
            if not transaction_log.is_committed:
                _unstage(staged)
            raise

    def _stage(self, process: int) -> _Staged | Full | NoSpace:
        staged: _Staged = {}
        try:
            for (stream, partition), entries in self._blocks.items():
                stream.logs[partition].reserve(_count_bytes(entries) + _BESIDE)
            for queue, messages in self._puts.items():
                receipts = staged.setdefault(queue, [])
                for message in messages:
                    number = TRANSACTION | next(_numbers)  # a new one: a new copy voids an old one
                    receipts.append((queue.transfer.stage_copy(*message, process, number), number))
        except (Full, NoSpace) as error:
            _unstage(staged)
            return error
        except BaseException:
            _unstage(staged)
            raise
        return staged

    @contextlib.contextmanager
    def _leased(self, transaction_log: TransactionLog) -> Iterator[None]:
        """Ensure that no lease ends before its message is settled."""
        held: list[tuple[Any, api.Message]] = []
        try:
            for queue, messages in self._acks.items():
                for message in messages:
                    queue.extend(message.receipt, _HOLD)
                    held.append((queue, message))
            yield
        except BaseException:
            if not transaction_log.is_committed:
                _shorten_leases(held)
            raise

    def _check_members(self) -> None:
        for member, offsets in self._members.items():
            member.check_has(offsets)

    def _record(self, process: int, staged: _Staged) -> dict[str, Any]:
        appends = [
            [
                *(stream.name, stream.identity, partition),
                *(_reserve_sequences(process, len(entries)), b"".join(entries)),
            ]
            for (stream, partition), entries in self._blocks.items()
        ]
        return {
            "process": process,
            "offsets": [
                [*member.group_identity, member.id, offsets]
                for member, offsets in self._members.items()
            ],
            "acks": [
                [queue.name, queue.identity, [message.receipt for message in messages]]
                for queue, messages in self._acks.items()
            ],
            "puts": [
                [queue.name, queue.identity, [receipt for receipt, _ in receipts]]
                for queue, receipts in staged.items()
            ],
            "appends": appends,
            "durable": self._encode_durable(staged, appends),
        }

    def _encode_durable(self, staged: _Staged, appends: list[list[Any]]) -> dict[str, Any]:
        """The operations that must be on disk, in a form that survives the memory."""
        kept = {stream.identity for stream, _ in self._blocks if _has_journal(stream)}
        return {
            "acks": [
                [queue.name, queue.identity, [message.sequence for message in messages]]
                for queue, messages in self._acks.items()
                if _has_journal(queue)
            ],
            "puts": [
                [queue.name, queue.identity, self._encode_puts(queue, receipts)]
                for queue, receipts in staged.items()
                if _has_journal(queue)
            ],
            "appends": [
                [*append, stream.latest(partition)]
                for append, (stream, partition) in zip(appends, self._blocks, strict=True)
                if stream.identity in kept
            ],
            "offsets": [
                [member.stream.name, member.stream.identity, *member.group_options, offsets]
                for member, offsets in self._members.items()
                if _has_journal(member.stream)
            ],
        }

    def _encode_puts(self, queue: Any, receipts: list[tuple[int, int]]) -> list[list[Any]]:
        """For each put the number of its origin, its content, and its end in ns since 1970."""
        now, encoded = time.time_ns(), []
        for put, (_, number) in zip(self._puts[queue], receipts, strict=True):
            seconds = queue.options.ttl if put.ttl == 0 else put.ttl
            until = None if seconds is None else now + int(seconds * 1e9)
            encoded.append([number, *put[:-1], until])
        return encoded

    def _happen(self, transaction_log: TransactionLog) -> None:
        """Apply the transaction; an interruption only ends the wait for room in a stream."""
        for member in self._members:
            self._handles.open[("group", *member.group_identity[:2])] = member.state
        record = transaction_log.read()
        try:
            self._do(record)
        except LockTimeout as error:
            # It is committed. The holder of the lock goes on, or dies: the rest is done by the next
            # commit of this process, or by the process that finds this one dead.
            log.warning("a part of a committed transaction waits: %s", error)
            return
        except BaseException:
            if happen(self._handles, record, wait=False):
                transaction_log.finish()
            raise
        transaction_log.finish()

    def _do(self, record: dict[str, Any]) -> None:
        for queue, messages in self._acks.items():
            with contextlib.suppress(QueueDeleted):  # left out, as in `take_in`
                queue.ack_many(messages)
        take_in(self._handles, record)
        for member, offsets in self._members.items():
            member.has_committed(offsets)
        put_out(self._handles, record, wait=True)

    def _wait_until_written(self) -> None:
        """Wait until it is on disk, for queues and streams with ``confirm="disk"``.

        What was deleted in the meantime is left out. Raises NotConfirmed.
        """
        for (stream, partition), entries in self._blocks.items():
            if stream.confirms_on_disk(None):
                with contextlib.suppress(StreamDeleted):
                    _wait_for_block(stream, partition, len(entries))
        for queue, messages in self._puts.items():
            if queue.confirms_on_disk(None):
                with contextlib.suppress(QueueDeleted):
                    last = queue.last_sequence
                    if not queue.journal.wait_synced(last, _WRITTEN):
                        raise durable_wait.not_confirmed(queue, last, len(messages))

    def __repr__(self) -> str:
        return f"<LocalTransaction of namespace {self._namespace.name!r}, {self._over or 'open'}>"


def _has_journal(target: Any) -> bool:
    return bool(target.options.durability == "journal")


def _shorten_leases(held: list[tuple[Any, api.Message]]) -> None:
    """Let the leases end as if they had not been extended for a commit, which has failed."""
    until = time.monotonic() + _SHORTENED
    locked: set[Any] = set()
    for queue, message in held:
        if queue in locked:
            continue
        shorten = functools.partial(queue.extend, message.receipt, queue.options.visibility_timeout)
        with contextlib.suppress(LeaseExpired, QueueDeleted):
            try:
                until_locked(shorten, until)
            except LockTimeout as error:
                locked.add(queue)
                log.warning(
                    "messages of queue %s, whose transaction failed, may stay leased for %g s "
                    "unless they are settled or this process ends: %s",
                    *(queue.name, _HOLD, error),
                )


def _wait_for_block(stream: Any, partition: int, count: int) -> None:
    """Wait until the partition is on disk. Raises NotConfirmed, StreamDeleted."""
    offset = stream.latest(partition)
    if not stream.wait_written(stream.logs[partition], offset, _WRITTEN):
        raise NotConfirmed(
            f"{count} records of a transaction are in partition {partition} of stream "
            f"{stream.name!r}, but not known to be on disk: see `shmq persist`",
            offset - 1,
        )


def _unstage(staged: _Staged) -> None:
    for queue, receipts in staged.items():
        for receipt, _ in receipts:
            with contextlib.suppress(LockTimeout):  # it is released with the handle
                queue.abandon(receipt)


def _count_bytes(entries: list[bytes]) -> int:
    """The bytes of the ring that the entries take, each with its producer."""
    return sum(len(entry) + 16 for entry in entries)


def _reserve_sequences(process: int, count: int) -> int:
    """The first of ``count`` sequence numbers of this process as a producer."""
    first = _sequences.setdefault(process, 0)
    _sequences[process] = first + count
    return first


def _make_elsewhere(kind: str, what: object) -> InvalidOption:
    return InvalidOption(
        f"{what!r} is not a {kind} of the transaction's broker: a transaction takes what is in one "
        f"namespace of this host, opened by its broker or another one of it"
    )
