"""The local broker: queues attached to directly, with nobody in between."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

# What `stats` and `attachments` make is loaded before: they may be asked when no file can be
# opened any more.
import shmq.api.stats  # noqa: F401
from shmq import api
from shmq.api.names import (
    check_name,
    chosen_namespace,
    is_reply_name,
    reply_name,
    staging_name,
    staging_target,
)
from shmq.api.options import DEAD_LETTER_ROOM, STAGING_BYTES, Confirm, QueueOptions, check_whole
from shmq.client.local import dead_letters, staging
from shmq.client.local.batch_window import LocalPipeline
from shmq.client.local.waiting import async_get, wait_thread
from shmq.client.local.waiting.filtered_wait import wait_filtered
from shmq.client.shared import definitions, durability, durable_wait, openers
from shmq.client.shared.docstrings import document
from shmq.client.shared.policy import compile_filter
from shmq.client.shared.rpc_client import REPLY_OPTIONS, RpcClient
from shmq.client.shared.schema_methods import SchemaMethods
from shmq.client.transaction.recover import look, settle, settle_all, settle_copy
from shmq.errors import (
    FileError,
    ForeignSegment,
    Full,
    InvalidName,
    InvalidOption,
    LockTimeout,
    NoSpace,
    NoSuchQueue,
    NotConfirmed,
    QueueDeleted,
    QueueExists,
    SegmentError,
    ShmqError,
    descriptors,
    no_descriptor,
)
from shmq.namespace.namespace import Namespace
from shmq.namespace.semaphores import bell_stem, semaphore_names, sweep_bells
from shmq.native import _core
from shmq.routing.book import Book
from shmq.schema.book import Schemas
from shmq.storage.paths import SCHEMAS

if TYPE_CHECKING:
    from shmq.api.keywords import EnsureStreamKeywords, QueueKeywords, StreamKeywords
    from shmq.client.local.exchange import Exchanges, LocalExchange
    from shmq.client.local.stream import LocalStream, LocalStreams
    from shmq.client.local.transaction import LocalTransaction
    from shmq.expression.parse import Where

__all__ = ["LocalBroker", "LocalQueue"]

log = logging.getLogger("shmq")

_SCAN = 4096
_BURY_AT_ONCE = 256
_EVERYTHING = 1 << 31

_T = TypeVar("_T")
_Handle = TypeVar("_Handle", bound="LocalQueue | LocalStream | LocalExchange")


# Most processes have queues, and no use for the rest: it is loaded when it is asked for.


def _meant(where: str) -> Where:
    with descriptors:
        from shmq.expression.parse import Where  # noqa: PLC0415

    return Where(where)


def _attach_stream(namespace: Namespace, name: str) -> LocalStream:
    with descriptors:
        from shmq.client.local import stream as streams  # noqa: PLC0415

    return streams.attach(namespace, name)


api.Message.register(_core.Message)
api.Batch.register(_core.Batch)
api.Packed.register(_core.Packed)
api.Consumer.register(_core.Consumer)
api.Loan.register(_core.Loan)
api.Loan.register(_core.DuplicateLoan)


class LocalQueue(_core.Handle, api.Queue):
    """A queue in this host's shared memory. Threads may share a handle.

    A handle that is used in a fork's child attaches there anew; one that is pickled
    attaches where it is unpickled.
    """

    def __init__(self, namespace: Namespace, name: str, segment: _core.Segment) -> None:
        self._namespace = namespace
        self._dead_letters: LocalQueue | None = None
        self._stagings: dict[str, LocalQueue] = {}
        self._bury_again = 0.0
        self._consumers: weakref.WeakSet[api.Consumer] = weakref.WeakSet()
        names = semaphore_names(namespace.name, segment.queue_id)
        super().__init__(name, segment, *names, bell_stem(namespace.name))

    @property
    def options(self) -> QueueOptions:
        """See :class:`shmq.api.Queue`."""
        return QueueOptions(**self.segment.options)

    @property
    def identity(self) -> int:
        """See :class:`shmq.api.Queue`."""
        return int(self.segment.hash_key)

    @property
    def is_gone(self) -> bool:
        """Whether the queue was deleted."""
        return self.segment.deleted

    def put_nowait(self, body: api.Body, **properties: Any) -> api.Put:
        """See :class:`shmq.api.Queue`."""
        return self.put(body, False, **properties)

    def get_nowait(self, *, where: str | None = None) -> api.Message:
        """See :class:`shmq.api.Queue`."""
        return self.get(False, where=where)

    def consume(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Consumer:
        """See :class:`shmq.api.Queue`."""
        consumer: api.Consumer = _core.make_consumer(self, prefetch, timeout, block, where)
        self._consumers.add(consumer)
        return consumer

    def loan(self, size: int, **properties: Any) -> api.Loan:
        """See :class:`shmq.api.Queue`."""
        loan: api.Loan = _core.make_loan(self, size, **properties)
        return loan

    def pipeline(self, window: int = 64, *, confirm: Confirm | None = None) -> api.Pipeline:
        """See :class:`shmq.api.Queue`."""
        self.confirms_on_disk(confirm)
        return LocalPipeline(self, check_whole("window", window, 1), confirm)

    # ---- asyncio ----

    async def aget(self, timeout: float | None = None, *, where: str | None = None) -> api.Message:
        """See :class:`shmq.api.Queue`."""
        if timeout is not None:
            _core.check_timeout(timeout)
        if where is not None:
            meant = compile_filter(where)
            return await async_get.get_chosen(self._namespace, self, meant, timeout)
        message = async_get.without_lock(self.try_get, timeout)
        if message is None:
            message = await async_get.get(self._namespace, self, timeout)
        return message

    async def aput(
        self,
        body: api.Body,
        timeout: float | None = None,
        *,
        block: bool | None = None,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> api.Put:
        """See :class:`shmq.api.Queue`."""
        if timeout is not None:
            _core.check_timeout(timeout)
        confirms = self.confirms_on_disk(confirm)
        until = time.monotonic() + timeout if confirms and timeout is not None else None
        put = await self._aput(body, timeout, block, properties)
        if confirms:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not await durable_wait.synced(self, put.sequence, left):
                raise durable_wait.not_confirmed(self, put.sequence, 1)
        return put

    async def _aput(
        self,
        body: api.Body,
        timeout: float | None,
        block: bool | None,
        properties: dict[str, Any],
    ) -> api.Put:
        try:
            return self.put(body, False, confirm="memory", **properties)
        except Full:
            waits = self.waits_when_full or timeout is not None if block is None else block
            if not waits or timeout == 0:
                raise
        # Encoded once for all further attempts: it is put as it is now.
        prepared = self.wrap(body, **properties)
        return await async_get.put(self._namespace, self, prepared, timeout)

    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncConsumer:
        """See :class:`shmq.api.Queue`."""
        consumer = _core.make_consumer(self, prefetch, timeout, False, where)
        self._consumers.add(consumer)
        event = _core.EVENT_NOT_EMPTY if where is None else _core.EVENT_ARRIVED
        return async_get.AsyncConsumer(self._namespace, self, consumer, prefetch, timeout, event)

    # ---- looking ----

    def peek(self, limit: int = 10, *, where: str | None = None) -> list[api.Message]:
        """See :class:`shmq.api.Queue`."""
        limit = check_whole("limit", limit, 1, None)
        return list(self.peeked(limit, where))

    def peeked(self, limit: int, where: str | None = None) -> Iterator[api.Message]:
        """What `peek` returns, each copied when it is asked for."""
        meant = None if where is None else _meant(where)
        self.qsize()  # what is due is done first
        order = ((-priority, sequence, at) for at, sequence, priority in self._visible())
        first = heapq.nsmallest(limit, order) if meant is None else _sorted(order)
        copies = (self.copy_at(at, sequence) for _, sequence, at in first)
        there = (copy for copy in copies if copy is not None)
        if meant is None:
            return there
        return itertools.islice(filter(meant.matches, there), limit)

    def _visible(self) -> Iterator[tuple[int, int, int]]:
        """(slot, sequence, priority) of each visible message, in no order."""
        start: int | None = 0
        while start is not None:
            rows, start = self.scan(start, _SCAN)
            for at, state, sequence, priority, *_ in rows:
                if state == _core.READY:
                    yield at, sequence, priority

    def stats(self) -> api.QueueStats:
        """See :class:`shmq.api.Queue`."""
        numbers = self.numbers()
        oldest = self.oldest_put() if numbers["depth"] else None
        age = 0.0 if oldest is None else max(0.0, (_core.clock() - oldest) / 1e9)
        blocks = os.fstat(self.segment.fd).st_blocks
        return api.QueueStats(
            name=self.name,
            oldest_age=age,
            shm_bytes=blocks * 512,
            journal_writer=self.has_writer(),
            journal_writer_pid=self._namespace.keeper if self.has_writer() else None,
            **numbers,
        )

    def attachments(self) -> list[api.Attachment]:
        """See :class:`shmq.api.Queue`."""
        return [
            api.Attachment(
                pid=pid,
                name=name.decode("utf-8", "replace"),
                leases=leases,
                since=since,
                alive=self._namespace.is_alive(number),
            )
            for _, number, pid, name, leases, since in self.attached()
        ]

    def claim(self) -> bool:
        """Whether this process is the one that has claimed the queue; see `Namespace.claim`.

        A claim binds only those who ask for it: everyone else may get from the queue. What
        an earlier one that died had leased is back in its place.
        """
        if not self._namespace.claim(self.segment.queue_id):
            return False
        self._reclaim_dead()
        return True

    def has_writer(self) -> bool:
        """Whether a persistence writer that lives follows the queue."""
        writer = self.journal_writer
        return bool(writer) and self._namespace.is_alive(writer)

    # ---- what the core leaves to policy ----

    @property
    def namespace(self) -> Namespace:
        """The namespace it is in."""
        return self._namespace

    def notice_deaths(self, asked: dict[tuple[str, int], bool]) -> None:
        """Give back what dead processes hold, if there are any.

        ``asked`` has the processes that were asked about already, by namespace and
        number, and whether they live.
        """
        alive = True
        for number in self.processes():
            key = (self._namespace.name, number)
            if key not in asked:
                asked[key] = self._namespace.is_alive(number)
            alive = alive and asked[key]
        if not alive:
            self.look_for_dead()

    def _process_number(self) -> int:
        return self._namespace.process_number()

    def await_writer(self) -> None:
        """Have a persistence writer started if there is none; waits for nothing."""
        durability.see_to_it(self._namespace)

    @property
    def unwritten(self) -> str | None:
        """What keeps its space until the disk has it, and why it has not; None: nothing does."""
        spent = self.numbers()["journal_waiting"]
        return self._why_unwritten(spent) if spent else None

    def _why_unwritten(self, spent: int) -> str:
        kept = f"{spent} of them are settled, and keep their space until that is on disk"
        if self.journal_error:
            return f"{kept}; the disk fails: {os.strerror(self.journal_error)}"
        if not self.has_writer() and self._namespace.keeper is None:
            return f"{kept}; {durability.missing(self._namespace)}"
        return f"{kept}: wait (block=True), consume, or make it larger"

    def _wait_filtered(self, attempt: Callable[[], _T], block: bool, timeout: float | None) -> _T:
        return wait_filtered(self, attempt, block, timeout)

    def _not_confirmed(self, sequence: int, taken: int) -> ShmqError:
        return durable_wait.not_confirmed(self, sequence, taken)

    def _look_for_dead(self) -> None:
        if self.spent:
            self.await_writer()
        try:
            self._reclaim_dead()
            dead_letters.resolve_orphans(self, self)
        except (QueueDeleted, LockTimeout):
            return  # the next operation says so
        except (ShmqError, OSError) as error:
            log.warning("queue %s: what dead processes left waits, %s", self.name, error)

    def _reclaim_dead(self) -> None:
        dead = [
            (at, number)
            for at, number, *_ in self.attached()
            if not self._namespace.is_alive(number) and settle(self._namespace, number)
        ]
        for at, number in dead:
            self.reclaim(at, number)
        if dead:
            sweep_bells(self._namespace.name, self._namespace.is_alive)

    def finish_moves(self) -> None:
        """See :class:`shmq.client.local.dead_letters.Source`.

        Looks for no orphaned copies in this queue itself: two queues that each hold a
        copy of the other's would have no end of it.
        """
        self._reclaim_dead()
        self._bury()

    def open_by_id(self, hash_key: int) -> LocalQueue | None:
        """See :class:`shmq.client.local.dead_letters.QueueOpener`."""
        name = self._namespace.find(hash_key)
        return None if name is None else self.open_by_name(name)

    def open_by_name(self, name: str) -> LocalQueue | None:
        """See :class:`shmq.client.local.dead_letters.QueueOpener`."""
        try:
            return attach(self._namespace, name)
        except (NoSuchQueue, SegmentError):
            return None

    def settle_copy(self, target: _core.Handle, process: int, sequence: int) -> None:
        """See :class:`shmq.client.local.dead_letters.QueueOpener`."""
        settle_copy(self._namespace, target, process, sequence)

    def _bury(self, limit: int = _BURY_AT_ONCE) -> None:
        """Move dying messages on. What cannot move now stays, and is tried again."""
        if time.monotonic() < self._bury_again:
            return
        try:
            if dead_letters.move_to_dead_letters(self, self, limit):
                return
        except (ShmqError, OSError) as error:
            log.warning("queue %s: dead letters wait, %s", self.name, error)
            self._dead_letters = None
        self._bury_again = dead_letters.pause_after_failure()

    def dead_letter_queue(self) -> LocalQueue:
        """See :class:`~shmq.client.local.dead_letters.QueueOpener`. Made anew if it was deleted."""
        if self._dead_letters is None or self._dead_letters.segment.deleted:
            options = self.options
            assert options.dead_letter is not None
            segment = ensure_dead_letters(self._namespace, self.name, options)
            self._dead_letters = LocalQueue(self._namespace, options.dead_letter, segment)
        return self._dead_letters

    # ---- redrive ----

    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        """See :class:`shmq.api.Queue`."""
        return self.redrive_some(limit, where, lambda _: True)

    def redrive_some(self, limit: int | None, where: str | None, may: Callable[[str], bool]) -> int:
        """As `redrive`, but a dead-letter queue's letters go to the queues alone that ``may``."""
        most = _EVERYTHING if limit is None else check_whole("limit", limit, 1, None)
        meant = None if where is None else _meant(where)
        with contextlib.ExitStack() as stack:
            source, targets = self, _Targets(self._namespace, stack, may)
            if self.options.dead_letter is not None:
                self.qsize()  # those that are still on their way are dead letters too
                source = self.dead_letter_queue()
                targets.only(self)
            return _redrive(source, targets, most, meant)

    # ---- staging ----

    def stage(
        self,
        publisher: str,
        batch: int,
        part: str,
        rows: Sequence[api.Row] | api.Rows,
        *,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        """See :class:`shmq.api.Queue`."""
        batch, part = staging.check_batch(batch), staging.check_part(part)
        chunks = self.chunks(rows)  # rows that can never fit are refused before a queue is made
        queue = self._make_staging(publisher, staging_bytes)
        staging.stage(queue, batch, part, chunks, staging_bytes)

    def publish(
        self, publisher: str, batch: int, parts: Sequence[str], *, timeout: float | None = None
    ) -> int:
        """See :class:`shmq.api.Queue`."""
        _core.check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        how = staging.CommitProgress(until)
        self._publish(publisher, batch, parts, how)
        return how.rows

    def publish_some(
        self, publisher: str, batch: int, parts: Sequence[str], most: int
    ) -> tuple[int, str | None]:
        """As `publish`, but without waiting, and no more than about ``most`` rows at once.

        How many became messages, and why it is not done yet; None: it is.
        """
        how = staging.CommitProgress(time.monotonic(), most)
        try:
            self._publish(publisher, batch, parts, how)
        except (Full, NotConfirmed) as error:
            return how.rows, str(error)
        return how.rows, None

    def _publish(
        self, publisher: str, batch: int, parts: Sequence[str], how: staging.CommitProgress
    ) -> None:
        batch = staging.check_batch(batch)
        parts = [staging.check_part(part) for part in parts]
        queue = self._staging(publisher)
        if queue is None:  # a refusal makes nothing
            staging.check_staged(staging_name(self.name, publisher), batch, parts, ())
            queue = self._make_staging(publisher)
        staging.publish(self, queue, batch, parts, how)

    def sealed(self, publisher: str) -> int | None:
        """See :class:`shmq.api.Queue`."""
        queue = self._staging(publisher)
        return None if queue is None else staging.sealed(queue)

    def sweep(self, publisher: str, keep: str | None = None) -> int:
        """See :class:`shmq.api.Queue`."""
        queue = self._staging(publisher)
        return 0 if queue is None else staging.sweep(queue, keep)

    def discard(self, publisher: str) -> None:
        """See :class:`shmq.api.Queue`."""
        queue = self._staging(publisher)
        if queue is None:
            return
        self.settle_rows(queue)
        del self._stagings[publisher]
        queue.close()
        with contextlib.suppress(NoSuchQueue), self._namespace.locked():
            _remove(self._namespace, queue.name)

    def settle_rows(self, queue: LocalQueue) -> None:
        """Let rows that a dead publisher was moving be void or published, before it goes."""
        with contextlib.suppress(QueueDeleted):
            queue.tend()
            self.look_for_dead()

    def _staging(self, publisher: str) -> LocalQueue | None:
        """The publisher's staging queue, if there is one. Raises ShmqError."""
        name = staging_name(self.name, staging.check_publisher(publisher))
        kept = self._stagings.get(publisher)
        if kept is not None and not kept.segment.deleted:
            return kept
        try:
            queue = attach(self._namespace, name)
        except NoSuchQueue:
            return None
        with self._namespace.locked():
            staging.check_owner(queue, publisher)
        if kept is not None:
            kept.close()
        self._stagings[publisher] = queue
        return queue

    def _make_staging(self, publisher: str, staging_bytes: int = STAGING_BYTES) -> LocalQueue:
        """The publisher's staging queue, made if there is none. Raises ShmqError."""
        queue = self._staging(publisher)
        while queue is None:
            options = staging.options_for(self.name, staging_bytes)
            name = staging_name(self.name, publisher)
            with self._namespace.locked():
                if self.segment.deleted:
                    raise QueueDeleted(f"queue {self.name!r} was deleted")
                if _segment_if_any(self._namespace, name) is None:
                    self._namespace.make_segment(name, options)
            queue = self._staging(publisher)
        return queue

    def close(self) -> None:
        """See :class:`shmq.api.Queue`."""
        for queue in self._stagings.values():
            queue.close()
        self._stagings.clear()
        for consumer in list(self._consumers):
            with contextlib.suppress(LockTimeout):
                consumer.close()  # with the acknowledgements that it has gathered
        if self._dead_letters is not None:
            self._dead_letters.close()
            self._dead_letters = None
        _core.Handle.close(self)
        wait_thread.ring(self._namespace)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach_by_name, (self._namespace.name, self.name)

    def __dir__(self) -> list[str]:
        """The contract's names: what else there is serves the core and the client."""
        return [name for name in dir(api.Queue) if not name.startswith("_abc_")]

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<LocalQueue {self.name!r} of namespace {self._namespace.name!r}{state}>"


def _sorted(rows: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Sorted in pieces: no thread has the interpreter for itself for long."""
    pieces = iter(lambda: sorted(itertools.islice(rows, _SCAN)), [])
    return heapq.merge(*pieces)


class _Targets:
    """The queues that dead letters go back to, opened as they are met."""

    def __init__(
        self, namespace: Namespace, stack: contextlib.ExitStack, may: Callable[[str], bool]
    ) -> None:
        self._namespace = namespace
        self._stack = stack
        self._may = may
        self._open: dict[str, LocalQueue | None] = {}
        self._others = True

    def only(self, queue: LocalQueue) -> None:
        """Take back the letters of this queue alone."""
        self._open[queue.name] = queue
        self._others = False

    def of(self, letter: api.DeadLetter | None) -> LocalQueue | None:
        """Where the letter came from; None if it is not to go, or cannot."""
        if letter is None:
            return None
        if letter.queue not in self._open and self._others and self._may(letter.queue):
            try:
                queue = attach(self._namespace, letter.queue)
            except (NoSuchQueue, SegmentError):
                self._open[letter.queue] = None
            else:
                self._open[letter.queue] = self._stack.enter_context(queue)
        return self._open.get(letter.queue)


def _redrive(source: LocalQueue, targets: _Targets, most: int, meant: Where | None) -> int:
    """Move dead letters back, oldest first, until a target is full."""
    source.qsize()
    moved = 0
    now = time.time()
    letters = sorted((sequence, at) for at, sequence, _ in source._visible())
    if letters:
        last = letters[:most][-1] if meant is None else letters[-1]
        dead_letters.wait_until_written(source, last[0])
    for sequence, at in letters:
        if moved == most:
            break
        copy = source.copy_at(at, sequence)
        if copy is not None and meant is not None and not meant.matches(copy, now):
            continue
        target = targets.of(copy.dead) if copy is not None else None
        row = source.take(at, sequence) if target is not None else None
        if target is None or row is None:
            continue
        try:
            dead_letters.send_back(source, target, dead_letters.TakenDeadLetter(*row))
        except (Full, NoSpace):
            if not moved:
                raise
            break
        moved += 1
    return moved


# ---- making and finding ----


def attach(namespace: Namespace, name: str) -> LocalQueue:
    """Attach to an existing queue. Raises NoSuchQueue, SegmentError."""
    check_name(name)
    return LocalQueue(namespace, name, namespace.open_segment(name))


def _attach_to(namespace: Namespace, name: str) -> LocalQueue | LocalStream:
    """Attach to the queue, or to the stream of ``stream/`` and its name."""
    kind, _, stream = name.partition("/")
    return _attach_stream(namespace, stream) if stream else attach(namespace, kind)


def _attach_by_name(namespace: str, name: str) -> LocalQueue:
    return attach(Namespace.of(namespace), name)


openers.install(attach, _attach_stream)


def _segment_if_any(namespace: Namespace, name: str) -> _core.Segment | None:
    try:
        return namespace.open_segment(name)
    except NoSuchQueue:
        return None


def ensure_dead_letters(namespace: Namespace, name: str, options: QueueOptions) -> _core.Segment:
    """The segment of the queue's dead-letter queue, made if there is none."""
    dead_letter = options.dead_letter
    assert dead_letter is not None
    with namespace.locked():
        segment = _segment_if_any(namespace, dead_letter)
        if segment is None:
            return namespace.make_segment(dead_letter, options.for_dead_letters())
    found = QueueOptions(**segment.options)
    if found.dead_letter is not None or found.max_deliveries is not None:
        raise InvalidOption(
            f"dead_letter={dead_letter!r}: that queue has a delivery limit or a dead-letter queue "
            f"of its own, so it cannot take the dead letters of {name!r}: name another"
        )
    if found.arena_bytes < options.max_message_bytes + DEAD_LETTER_ROOM:
        raise InvalidOption(
            f"dead_letter={dead_letter!r}: its arena_bytes={found.arena_bytes} cannot hold a "
            f"message of {options.max_message_bytes} bytes from {name!r}: name a larger one"
        )
    return segment


def _remove(namespace: Namespace, name: str) -> None:
    """Remove a queue, whatever its state. Needs the registry lock.

    Its bindings go first: a new queue of its name is bound to nothing.
    """
    segment = None
    try:
        Book.of(namespace).forget("queue", name)
    except SegmentError as error:
        log.warning("queue %s is removed, its bindings are not: %s", name, error)
    if durability.give_up(namespace, "queue", name):
        return
    try:
        segment = namespace.open_segment(name)
        names = semaphore_names(namespace.name, segment.queue_id)
        _core.mark_deleted(segment, *names, bell_stem(namespace.name))
    except ForeignSegment:
        raise
    except SegmentError as error:
        log.info("queue %s is removed as it is: %s", name, error)
    namespace.erase(name, segment)
    namespace.remove_segment(name)


def _remove_stagings(namespace: Namespace, target: str) -> None:
    """Remove what is staged for a queue that is about to go. Needs the registry lock."""
    for name in namespace.queue_names(begin=f"{target}.staged."):
        if staging_target(name) == target:
            with contextlib.suppress(NoSuchQueue):
                _remove(namespace, name)


def _sweep_replies(namespace: Namespace) -> None:
    """Remove the reply queues whose clients are gone. Needs the registry lock."""
    for name in namespace.queue_names(begin="reply."):
        if is_reply_name(name):
            with contextlib.suppress(ShmqError, OSError):
                queue_id = namespace.queue_id_of(name)
                if queue_id and not namespace.is_claimed(queue_id):
                    _remove(namespace, name)


def _remove_dropped(namespace: str, name: str, queue_id: int) -> None:
    """Remove a client's own queue that was dropped without being closed."""
    found = Namespace.of(namespace)
    found.when_free(lambda: _remove_owned(found, name, queue_id))


def _remove_owned(found: Namespace, name: str, queue_id: int) -> None:
    """Remove a client's own queue, if it is still that one."""
    with contextlib.suppress(ShmqError, OSError):
        with found.locked():
            if found.queue_id_of(name) == queue_id:
                _remove(found, name)
        found.unclaim(queue_id)
        found.retire()


def _no_schemas(name: str, namespace: str) -> NoSuchQueue:
    return NoSuchQueue(
        f"there is no queue and no stream {name!r} in namespace {namespace!r}: create it first"
    )


class LocalBroker(RpcClient, SchemaMethods):
    """The queues, streams and exchanges of one namespace on this host."""

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__()
        self._namespace = Namespace.of(chosen_namespace(namespace))
        self._handles: weakref.WeakSet[LocalQueue | LocalStream | LocalExchange] = weakref.WeakSet()
        self._found: dict[tuple[str, str], LocalQueue | LocalStream] = {}
        self._closed = False

    @property
    def namespace(self) -> str:
        """See :class:`shmq.api.Broker`."""
        return self._namespace.name

    def create_queue(self, name: str, **options: Unpack[QueueKeywords]) -> LocalQueue:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        wanted = QueueOptions.for_queue(check_name(name), options)
        self._bring_back(name, wanted.dead_letter)
        with self._namespace.locked():
            segment = _segment_if_any(self._namespace, name)
            if segment is None:
                made = self._make(name, wanted)
        if segment is None:
            return self._kept(made)
        differences = QueueOptions(**segment.options).differences(wanted)
        if differences:
            told = ", ".join(
                f"{key} is {has!r}, not {asked!r}" for key, (has, asked) in differences.items()
            )
            raise QueueExists(
                f"queue {name!r} exists with other options: {told}; use it as it is, "
                f"or delete it first"
            )
        return self._kept(self._opened(LocalQueue(self._namespace, name, segment)))

    def _bring_back(self, name: str, dead_letter: str | None = None) -> None:
        """Have a queue that is on disk alone brought back. Raises ShmqError if that cannot be.

        So it is with its ``dead_letter`` queue, which would be made with it.
        """
        if not self.has_queue(name):
            durability.bring_back(self._namespace, "queue", name)
            if dead_letter is not None and not self.has_queue(name):
                self._bring_back(dead_letter)

    def _kept(self, queue: LocalQueue) -> LocalQueue:
        """The queue, once a writer keeps it if it is durable; or a warning was given."""
        if queue.segment.options["durability"] != "memory":
            durability.warn_unkept(self._namespace, "queue", queue.name)
        return queue

    def _make(self, name: str, options: QueueOptions) -> LocalQueue:
        """The dead-letter queue comes first: a queue is never without its own."""
        self._tidy_schemas()
        names = (name, options.dead_letter)
        missing = [new for new in names if new is not None and not self.has_queue(new)]
        try:
            if options.dead_letter is not None:
                ensure_dead_letters(self._namespace, name, options)
            segment = self._namespace.make_segment(name, options)
            return self._opened(LocalQueue(self._namespace, name, segment))
        except BaseException:
            for made in missing:
                with contextlib.suppress(NoSuchQueue):
                    _remove(self._namespace, made)
            self._namespace.forget_names()
            raise

    def queue(self, name: str) -> LocalQueue:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        self._bring_back(name)
        return self._kept(self._opened(attach(self._namespace, name)))

    def ensure_queue(self, name: str, **options: Unpack[QueueKeywords]) -> LocalQueue:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        wanted = QueueOptions.for_queue(check_name(name), options)
        self._bring_back(name, wanted.dead_letter)
        with self._namespace.locked():
            segment = _segment_if_any(self._namespace, name)
            if segment is None:
                made = self._make(name, wanted)
            else:
                made = self._opened(LocalQueue(self._namespace, name, segment))
        return self._kept(made)

    def delete_queue(self, name: str) -> None:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        check_name(name)
        target = staging_target(name)
        if target is not None:
            if not self.has_queue(name) and not self.has_queue(target):
                return  # it went with its target
            self._settle_rows(name, target)
        with contextlib.suppress(FileError):  # then its files go as they are
            self._bring_back(name)
        with self._namespace.locked():
            _remove_stagings(self._namespace, name)
            _remove(self._namespace, name)
        self._retire()

    # ---- schemas ----

    def _is_named(self, name: str) -> bool:
        """Whether there is a queue or a stream of that name."""
        return self._namespace.has("queue", name) or self._namespace.has("stream", name)

    def _need_named(self, name: str) -> None:
        """Raise NoSuchQueue if there is none; one that is on disk alone is brought back."""
        self._check_open()
        if not self._is_named(check_name(name)):
            durability.bring_back(self._namespace, "queue", name)
            durability.bring_back(self._namespace, "stream", name)
        if not self._is_named(name):
            raise _no_schemas(name, self._namespace.name)
        definitions.bring_back_schemas(self._namespace)

    def _forget_schemas(self) -> None:
        """Remove their file, in whatever state, where nobody can have one any more."""
        namespace = self._namespace
        if namespace.schemas_path.exists():
            with namespace.locked(), contextlib.suppress(OSError):
                if not namespace.has_names() and namespace.drop_stored(SCHEMAS):
                    namespace.schemas_path.unlink(missing_ok=True)

    def _tidy_schemas(self) -> None:
        """Forget the schemas of what is no more. Needs the registry lock."""
        with contextlib.suppress(SegmentError, OSError):  # whoever reads them is told
            Schemas(self._namespace).tidy(self._is_named)

    def _set_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        self._need_named(name)
        with definitions.on_disk(self._namespace), self._namespace.locked():
            if not self._is_named(name):
                raise _no_schemas(name, self._namespace.name)
            return Schemas(self._namespace).set(name, schema, rule)

    def _check_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        self._need_named(name)
        Schemas(self._namespace).check(name, schema, rule)

    def schemas(self, name: str) -> list[api.SchemaVersion]:
        """See :class:`shmq.api.Broker`."""
        self._need_named(name)
        return Schemas(self._namespace).of(name)

    def _settle_rows(self, name: str, target: str) -> None:
        """What was on its way from a staging queue is settled before that goes."""
        with contextlib.suppress(ShmqError), contextlib.ExitStack() as stack:
            queue = stack.enter_context(attach(self._namespace, name))
            stack.enter_context(attach(self._namespace, target)).settle_rows(queue)

    def create_own_queue(self, name: str, **options: Any) -> LocalQueue:
        """Make a client's reply queue: it is removed once this process is gone, if not before.

        What clients that died have left is removed with it. Raises
        :class:`~shmq.InvalidName` for a name that is not a reply queue's, and what
        `create_queue` raises; also where there is a queue with the same options.
        """
        if not is_reply_name(check_name(name)):
            raise InvalidName(
                f"{name!r} cannot be a client's own queue: its name is reply. and 16 "
                f"hexadecimal digits"
            )
        with self._namespace.locked():
            _sweep_replies(self._namespace)
            if self.has_queue(name):
                raise QueueExists(f"queue {name!r} exists: take another name")
            queue = self.create_queue(name, **options)
            queue.claim()
        return queue

    def delete_own_queue(self, name: str, queue_id: int) -> None:
        """Delete what `create_own_queue` has made, if it is there still."""
        _remove_owned(self._namespace, name, queue_id)

    def _make_reply_queue(self) -> api.Queue:
        queue = self.create_own_queue(reply_name(), **REPLY_OPTIONS)
        own = (self._namespace.name, queue.name, queue.segment.queue_id)
        # A loop that is gone, and a process that ends without closing, leave nothing.
        with descriptors:
            from multiprocessing import util  # noqa: PLC0415 - heavy, and for who asks alone

        util.Finalize(queue, _remove_dropped, args=own, exitpriority=3)
        return queue

    def _remove_reply_queue(self, queue: api.Queue) -> None:
        assert isinstance(queue, LocalQueue)
        queue_id = queue.segment.queue_id
        queue.close()
        self.delete_own_queue(queue.name, queue_id)

    def list_queues(self) -> list[api.QueueSummary]:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        durability.bring_back_all(self._namespace)
        summaries = (self.summary(name) for name in self._namespace.queue_names())
        return [summary for summary in summaries if summary is not None]

    def queue_names(self) -> list[str]:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._namespace.queue_names()

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of that name, in whatever state."""
        self._check_open()
        return self._namespace.path_of(check_name(name)).exists()

    def summary(self, name: str) -> api.QueueSummary | None:
        """The queue's line of the list; None if there is no such queue."""
        try:
            with attach(self._namespace, name) as queue:
                n = queue.numbers()
        except NoSuchQueue:
            return None
        except (ShmqError, OSError) as error:
            return api.QueueSummary(
                name=name, depth=0, delayed=0, in_flight=0, capacity=0, problem=str(error)
            )
        return api.QueueSummary(
            name=name,
            depth=n["depth"],
            delayed=n["delayed"],
            in_flight=n["in_flight"],
            capacity=n["capacity"],
        )

    # ---- streams ----

    @property
    def _streams(self) -> LocalStreams:
        with descriptors:
            from shmq.client.local.stream import LocalStreams  # noqa: PLC0415

        return LocalStreams(self._namespace)

    def create_stream(
        self, name: str, partitions: int = 4, **options: Unpack[StreamKeywords]
    ) -> LocalStream:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._kept_stream(self._streams.create(name, {"partitions": partitions, **options}))

    def _kept_stream(self, stream: LocalStream) -> LocalStream:
        """The stream, once a writer keeps it if it is durable; or a warning was given."""
        if stream.control.options["durability"] != "memory":
            durability.warn_unkept(self._namespace, "stream", stream.name)
        return self._opened(stream)

    def stream(self, name: str) -> LocalStream:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._kept_stream(self._streams.attached(name))

    def ensure_stream(self, name: str, **options: Unpack[EnsureStreamKeywords]) -> LocalStream:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._kept_stream(self._streams.ensure(name, options))

    def delete_stream(self, name: str) -> None:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        self._streams.delete(name)
        self._retire()

    def list_streams(self) -> list[api.StreamSummary]:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        durability.bring_back_all(self._namespace)
        return self._streams.summaries() if self.stream_names() else []

    def stream_names(self) -> list[str]:
        """The names of the streams there are, sorted."""
        self._check_open()
        return self._namespace.stream_names()

    def has_stream(self, name: str) -> bool:
        """Whether there is a stream of that name, in whatever state."""
        return self._namespace.stream_path(check_name(name, "stream")).exists()

    # ---- transactions ----

    def transaction(self, *, timeout: float | None = 0.0) -> LocalTransaction:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        _core.check_timeout(timeout)
        look(self._namespace)
        with descriptors:
            from shmq.client.local.transaction import LocalTransaction  # noqa: PLC0415

        return LocalTransaction(self._namespace, self._find, timeout)

    def _find(self, kind: str, name: str) -> LocalQueue | LocalStream:
        """The handle that all transactions have."""
        found = self._found.get((kind, name))
        if found is not None and not found.closed and not found.is_gone:
            return found
        found = self.queue(name) if kind == "queue" else self.stream(name)
        self._found[kind, name] = found
        return found

    # ---- exchanges ----

    @property
    def _exchanges(self) -> Exchanges:
        with descriptors:
            from shmq.client.local.exchange import Exchanges  # noqa: PLC0415

        return Exchanges(self._namespace, _attach_to)

    def create_exchange(
        self, name: str, kind: api.ExchangeKind = "direct", alternate: str | None = None
    ) -> LocalExchange:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._opened(self._exchanges.create(name, kind, alternate))

    def exchange(self, name: str) -> LocalExchange:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._opened(self._exchanges.open(name))

    def ensure_exchange(
        self, name: str, kind: api.ExchangeKind = "direct", alternate: str | None = None
    ) -> LocalExchange:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._opened(self._exchanges.create(name, kind, alternate, ensure=True))

    def delete_exchange(self, name: str) -> None:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        self._exchanges.delete(name)
        self._retire()

    def list_exchanges(self) -> list[api.ExchangeSummary]:
        """See :class:`shmq.api.Broker`."""
        self._check_open()
        return self._exchanges.summaries()

    def _opened(self, handle: _Handle) -> _Handle:
        self._handles.add(handle)
        return handle

    def _check_open(self) -> None:
        if self._closed:
            raise ShmqError("this broker is closed: connect() again")

    def close(self) -> None:
        """See :class:`shmq.api.Broker`."""
        if self._closed:
            return
        self._closed = True
        self._close_replies()
        for handle in list(self._handles):
            handle.close()
        try:
            self._retire()
        except OSError as error:
            if no_descriptor(error) is error:
                raise
            log.warning("namespace %s is not tidied up: %s", self._namespace.name, error)
        finally:
            # Last of all: were it truncated, reading it would be the end of this process.
            Book.of(self._namespace).release()

    def _retire(self) -> None:
        """Leave nothing behind in a namespace without queues and streams."""
        if self._namespace.schemas_path.exists():
            with self._namespace.locked():
                self._tidy_schemas()
        if not self._namespace.has_names():
            self._forget_schemas()
            wait_thread.rest(self._namespace)
            settle_all(self._namespace)
            sweep_bells(self._namespace.name, self._namespace.is_alive)
        Book.of(self._namespace).tidy()
        self._namespace.retire()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalBroker, (self._namespace.name,)

    def __repr__(self) -> str:
        return f"<LocalBroker of namespace {self._namespace.name!r}>"


for _kind, _promised in (
    (LocalBroker, api.Broker),
    (LocalQueue, api.Queue),
    (_core.Message, api.Message),
    (_core.Consumer, api.Consumer),
    (_core.Loan, api.Loan),
):
    document(_kind, _promised)
