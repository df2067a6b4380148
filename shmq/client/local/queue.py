"""A queue of this host, attached to directly, without a server."""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import logging
import os
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

# The classes of `stats` and `attachments` are loaded in advance: both may be called when no more
# files can be opened.
import shmq.api.stats  # noqa: F401
from shmq import api
from shmq.api.contract import document
from shmq.api.names import SHM, check_move, check_name
from shmq.api.options import Confirm, QueueOptions, check_whole
from shmq.client.local import dead_letters, deaths, temporary_queue
from shmq.client.local.batch_window import LocalPipeline
from shmq.client.local.bulk import LocalBulkQueue
from shmq.client.local.waiting import async_get, wait_set
from shmq.client.local.waiting.filtered_wait import wait_filtered
from shmq.client.local.waiting.ready_watch import LocalReadyWatch
from shmq.client.ports.steps import Steps, arun, blocking, run
from shmq.client.shared import durability, durable_wait
from shmq.client.shared.async_bodies import AsyncBodies
from shmq.client.shared.pickling import reduce
from shmq.client.shared.policy import compile_filter
from shmq.client.shared.ready_event import descriptor_of
from shmq.client.transaction.recover import settle
from shmq.errors import Full, LockTimeout, QueueDeleted, SegmentError, ShmqError, closed_handle
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import semaphore_names
from shmq.host.namespace.wakeups import sweep_wakeups, wakeup_prefix
from shmq.lazy_imports import late_imports
from shmq.model.failure import rank_types
from shmq.native import _clock as time
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.client.local.run_store import RunStore
    from shmq.client.local.staged_publish import LocalStagedPublisher
    from shmq.model.expression.parse import Where

log = logging.getLogger("shmq")

_SCAN = 4096
_MOVED_AT_ONCE = 256
_EVERYTHING = 1 << 31
_LAST_SEQUENCE = (1 << 64) - 1

#: A row of `Inspection.held`.
_Held = tuple[int, int, int, int, int, int, int, bytes]

_T = TypeVar("_T")


# Most processes only use queues: everything else is loaded on demand.


def _parse_where(where: str) -> Where:
    with late_imports:
        from shmq.model.expression.parse import Where  # noqa: PLC0415

    return Where(where)


api.Message.register(_core.Message)
api.Batch.register(_core.Batch)
api.Packed.register(_core.Packed)
api.Consumer.register(_core.Consumer)
api.Bodies.register(_core.Bodies)
api.Loan.register(_core.Loan)
api.Loan.register(_core.DuplicateLoan)


class LocalQueue(_core.Handle, api.Queue):
    """A queue in this host's shared memory. Threads may share a handle.

    A handle used in the child of a fork attaches again; a pickled one attaches where it is
    unpickled.
    """

    READY_WATCH = LocalReadyWatch

    def __init__(self, namespace: Namespace, name: str, segment: _core.Segment) -> None:
        self._namespace = namespace
        self._dead_letters = dead_letters.DeadLetters(namespace, LocalQueue)
        self._runs: RunStore | None = None
        self._publishers: weakref.WeakSet[LocalStagedPublisher] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[api.Consumer | api.Bodies] = weakref.WeakSet()
        names = semaphore_names(namespace.name, segment.queue_id)
        super().__init__(name, segment, *names, wakeup_prefix(namespace.name))

    @property
    def options(self) -> QueueOptions:
        return QueueOptions(**self.segment.options)

    @property
    def identity(self) -> int:
        return int(self.segment.hash_key)

    @property
    def is_gone(self) -> bool:
        """Whether the queue was deleted."""
        return self.segment.deleted

    def consume(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Consumer:
        consumer: api.Consumer = _core.make_consumer(self, prefetch, timeout, block, where)
        self._consumers.add(consumer)
        return consumer

    def bodies(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Bodies:
        bodies: api.Bodies = _core.make_bodies(self, prefetch, timeout, block, where)
        self._consumers.add(bodies)
        return bodies

    def loan(self, size: int, **properties: Any) -> api.Loan:
        loan: api.Loan = _core.make_loan(self, size, **properties)
        return loan

    def pipeline(self, window: int = 64, *, confirm: Confirm | None = None) -> api.Pipeline:
        self.confirms_on_disk(confirm)
        return LocalPipeline(self, check_whole("window", window, 1), confirm)

    # ---- asyncio ----

    async def aget(self, timeout: float | None = None, *, where: str | None = None) -> api.Message:
        if timeout is not None:
            timeout = _core.check_timeout(timeout)
        if where is not None:
            meant = compile_filter(where)
            return await async_get.get_chosen(self, meant, timeout)
        message = async_get.without_lock(self.try_get, timeout)
        if message is None:
            message = await async_get.get(self, timeout)
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
        if timeout is not None:
            timeout = _core.check_timeout(timeout)
        confirms = self.confirms_on_disk(confirm)
        until = time.monotonic() + timeout if confirms and timeout is not None else None
        put = await self._aput(body, timeout, block, properties)
        if confirms:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not await durable_wait.synced(self, put.sequence, left):
                raise durable_wait.not_confirmed(self, put.sequence, 1)
        return put

    async def _aput(
        self, body: api.Body, timeout: float | None, block: bool | None, properties: dict[str, Any]
    ) -> api.Put:
        try:
            return self.put(body, False, confirm="memory", **properties)
        except Full:
            waits = self.waits_when_full or timeout is not None if block is None else block
            if not waits or timeout == 0:
                raise
        # Encode it once for all further attempts: it is put as it is now.
        prepared = self.wrap(body, **properties)
        return await async_get.put(self, prepared, timeout)

    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncConsumer:
        consumer = _core.make_consumer(self, prefetch, timeout, False, where)
        self._consumers.add(consumer)
        event = _core.EVENT_NOT_EMPTY if where is None else _core.EVENT_ARRIVED
        return async_get.AsyncConsumer(self, consumer, prefetch, timeout, event)

    def abodies(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncBodies:
        return AsyncBodies(self.aconsume(prefetch, timeout, where=where))

    def fileno(self) -> int:
        if self.closed:
            raise closed_handle("queue", self.name)
        return descriptor_of(self)

    # ---- looking ----

    def peek(self, limit: int = 10, *, where: str | None = None) -> list[api.Message]:
        limit = check_whole("limit", limit, 1, None)
        return list(self.peeked(limit, where))

    def peeked(self, limit: int, where: str | None = None) -> Iterator[api.Message]:
        """The messages that `peek` returns, each copied when it is asked for."""
        meant = None if where is None else _parse_where(where)
        self.qsize()  # does what is due first
        order = ((-priority, sequence, at) for at, sequence, priority in self._iterate_visible())
        first = heapq.nsmallest(limit, order) if meant is None else _sort(order)
        inspection = self.inspection
        copies = (inspection.copy_at(at, sequence) for _, sequence, at in first)
        there = (copy for copy in copies if copy is not None)
        if meant is None:
            return there
        return itertools.islice(filter(meant.matches, there), limit)

    def _iterate_visible(self) -> Iterator[tuple[int, int, int]]:
        """(slot, sequence, priority) of each visible message, unordered."""
        inspection = self.inspection
        start: int | None = 0
        while start is not None:
            rows, start = inspection.scan(start, _SCAN)
            for at, state, sequence, priority, *_ in rows:
                if state == _core.READY:
                    yield at, sequence, priority

    def stats(self) -> api.QueueStats:
        inspection = self.inspection
        numbers = inspection.numbers()
        oldest = inspection.oldest_put() if numbers["depth"] else None
        age = 0.0 if oldest is None else max(0.0, (_core.clock() - oldest) / 1e9)
        blocks = os.fstat(self.segment.fd).st_blocks
        return api.QueueStats(
            name=self.name,
            oldest_age=age,
            shm_bytes=blocks * 512,
            errors=rank_types(*inspection.failures()),
            journal_writer=self.has_writer(),
            journal_writer_pid=self._namespace.roles.writer_pid if self.has_writer() else None,
            **numbers,
        )

    def attachments(self) -> list[api.Attachment]:
        rows = []
        for _, number, own_pid, name, leases, since in self.attached():
            pid = self._namespace.processes.pid_of(number)
            rows.append(
                api.Attachment(
                    pid=own_pid if pid is None else pid,
                    name=name.decode("utf-8", "replace"),
                    leases=leases,
                    since=since,
                    alive=pid is not None,
                )
            )
        return rows

    def leases(self, limit: int = 100, *, after: int = 0) -> list[api.Lease]:
        limit = check_whole("limit", limit, 1, None)
        after = check_whole("after", after, 0, _LAST_SEQUENCE)
        self.qsize()  # does what is due first
        return [self._lease(row) for row in heapq.nsmallest(limit, self._list_held(after))]

    def _list_held(self, after: int) -> Iterator[_Held]:
        """The leased messages after that sequence, unordered, as `Inspection.held` has them."""
        inspection = self.inspection
        start: int | None = 0
        while start is not None:
            rows, start = inspection.held(start, _SCAN, after)
            yield from rows

    def _lease(self, row: _Held) -> api.Lease:
        sequence, deliveries, priority, size, deadline, number, own_pid, name = row
        pid = self._namespace.processes.pid_of(number) if number else None
        return api.Lease(
            sequence=sequence,
            deliveries=deliveries,
            priority=priority,
            size=size,
            holder_pid=own_pid if pid is None else pid,
            holder_name=name.decode("utf-8", "replace"),
            expires_in=max(0.0, (deadline - _core.clock()) / 1e9),
        )

    def claim(self) -> bool:
        """Claim the queue, see `Roles.claim`; return whether this process has the claim to itself.

        A claim only binds processes that ask for it: others may still get from the queue. The
        messages that a dead holder had leased are back in their place. While its supervisor still
        has to report its death this returns false, and is to be called again.
        """
        return self._namespace.roles.claim(self.segment.queue_id) and self._reclaim_dead()

    def has_writer(self) -> bool:
        """Whether a living persistence writer follows the queue."""
        writer = self.journal.writer
        return bool(writer) and self._namespace.processes.is_alive(writer)

    # ---- what the core leaves to policy ----

    @property
    def namespace(self) -> Namespace:
        """The namespace it is in."""
        return self._namespace

    def notice_deaths(self, asked: dict[tuple[str, int], bool]) -> None:
        """Return what dead processes hold, if there are any.

        ``asked`` caches which processes are alive, by namespace and number.
        """
        alive = True
        for number in self.processes():
            key = (self._namespace.name, number)
            if key not in asked:
                asked[key] = self._namespace.processes.is_alive(number)
            alive = alive and asked[key]
        if not alive:
            self.look_for_dead()

    def is_guarded(self) -> bool:
        """Whether a process of the namespace watches for deaths, so that a sleep may be long."""
        return deaths.are_noticed(self._namespace, attach)

    def _process_number(self) -> int:
        return self._namespace.processes.own_number(self.segment)

    def await_writer(self) -> None:
        """Start a persistence writer, without waiting, if the queue is there and has none.

        Raises QueueDeleted if its memory was removed by hand: no writer can write it any more.
        """
        if self.is_gone:
            return
        self.check_memory()
        durability.see_to_it(self._namespace)

    def check_memory(self) -> None:
        """Raises QueueDeleted if the segment has lost its name, or another has it."""
        try:
            there = self._namespace.queue_id_of(self.name)
        except (OSError, SegmentError):
            return  # unknown
        if there != self.segment.queue_id and not self.is_gone:
            raise QueueDeleted(
                f"the memory of queue {self.name!r} was removed from {SHM}: whether what was put "
                f"there last is on disk is not known; open the queue again"
            )

    @property
    def unwritten(self) -> str | None:
        """What keeps its space until it is on disk, and why it is not; None: nothing does."""
        spent = self.inspection.numbers()["journal_waiting"]
        return self._why_unwritten(spent) if spent else None

    def _why_unwritten(self, spent: int) -> str:
        kept = f"{spent} of them are settled, and keep their space until that is on disk"
        if error := self.journal.error:
            return f"{kept}; the disk fails: {os.strerror(error)}"
        if not self.has_writer() and self._namespace.roles.writer_pid is None:
            return f"{kept}; {durability.missing(self._namespace)}"
        return f"{kept}: wait (block=True), consume, or make it larger"

    def _wait_filtered(self, attempt: Callable[[], _T], block: bool, timeout: float | None) -> _T:
        return wait_filtered(self, attempt, block, timeout)

    def _not_confirmed(self, sequence: int, taken: int) -> ShmqError:
        return durable_wait.not_confirmed(self, sequence, taken)

    def _check_owner(self) -> None:
        temporary_queue.check_owner(self._namespace, self.name, self.segment)

    def _look_for_dead(self) -> None:
        if self.spent:
            self.await_writer()
        try:
            if self.is_temporary and remove_if_over(self._namespace, self.name):
                return  # the next operation raises QueueDeleted
            self._reclaim_dead()
            dead_letters.resolve_orphans(self, self._dead_letters)
        except (QueueDeleted, LockTimeout):
            return  # the next operation raises it
        except (ShmqError, OSError) as error:
            if self.closed:
                return  # by another thread
            log.warning("queue %s: what dead processes left waits, %s", self.name, error)

    def _reclaim_dead(self) -> bool:
        """Return what dead processes hold; return false if some of it waits for a report."""
        processes, dead, done = self._namespace.processes, [], True
        for at, number, pid, *_ in self.attached():
            if processes.is_alive(number):
                continue
            if self._namespace.roles.awaits_report(pid):
                done = False
            elif settle(self._namespace, number):
                dead.append((at, number))
        for at, number in dead:
            self.reclaim(at, number)
        if dead:
            sweep_wakeups(self._namespace.name, processes.is_alive)
        return done

    def return_of_dead(self) -> None:
        """Return what dead processes hold, and nothing more."""
        self._reclaim_dead()

    def finish_moves(self) -> None:
        """Complete or undo the moves from it that dead processes left."""
        # Does not look for orphaned copies in this queue itself: two queues that each hold a copy
        # of the other's messages would recurse without end.
        self._reclaim_dead()
        self._move_dying()

    def _move_dying(self, limit: int = _MOVED_AT_ONCE) -> None:
        self._dead_letters.move_dying(self, limit)

    def dead_letter_queue(self) -> LocalQueue:
        """The queue's dead-letter queue, recreated if it was deleted."""
        return self._dead_letters.queue_of(self)

    # ---- redrive ----

    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        return self.redrive_some(limit, where, lambda _: True)

    def redrive_some(self, limit: int | None, where: str | None, may: Callable[[str], bool]) -> int:
        """As `redrive`, but a dead-letter queue only sends to the queues that ``may`` allows."""
        most = _EVERYTHING if limit is None else check_whole("limit", limit, 1, None)
        meant = None if where is None else _parse_where(where)
        with contextlib.closing(dead_letters.Targets(self._dead_letters, may)) as targets:
            source = self
            if self.options.dead_letter is not None:
                self.qsize()  # counts those that are still moving, too
                source = self.dead_letter_queue()
                targets.only(self)
            source.qsize()
            letters = ((sequence, at) for at, sequence, _ in source._iterate_visible())
            return dead_letters.redrive(source, letters, targets, most, meant)

    def move_to(self, target: str, limit: int | None = None, *, where: str | None = None) -> int:
        return run(self._moving(target, limit, where))

    async def amove_to(
        self, target: str, limit: int | None = None, *, where: str | None = None
    ) -> int:
        return await arun(self._moving(target, limit, where))

    def _moving(self, target: str, limit: int | None, where: str | None) -> Steps[int]:
        check_move(self.name, target)
        most = _EVERYTHING if limit is None else check_whole("limit", limit, 1, None)
        meant = None if where is None else compile_filter(where)
        with late_imports:
            from shmq.client.local.move import move_messages  # noqa: PLC0415

        def move() -> int:
            segment = self._namespace.open_segment(target)
            with contextlib.closing(LocalQueue(self._namespace, target, segment)) as opened:
                return move_messages(self, opened, min(most, self.qsize()), meant)

        moved: int = yield blocking(move)
        return moved

    # ---- very many messages at once ----

    def bulk(self) -> LocalBulkQueue:
        made = LocalBulkQueue(self)
        made.store = self._run_store
        return made

    def _run_store(self) -> RunStore | None:
        """Which messages its runs in a name have, on disk; None: the queue is in memory only."""
        if self._runs is None and self.segment.options["durability"] != "memory":
            with late_imports:
                from shmq.client.local.run_store import RunStore  # noqa: PLC0415 - it loads SQLite

            self._runs = RunStore(self._namespace, self.identity)
        return self._runs

    def staged_publisher(self, publisher: str) -> LocalStagedPublisher:
        with late_imports:
            from shmq.client.local.staged_publish import LocalStagedPublisher  # noqa: PLC0415

        made = LocalStagedPublisher(self._namespace, self, publisher, LocalQueue)
        self._publishers.add(made)
        return made

    def settle_rows(self, queue: LocalQueue) -> None:
        """Void or commit the rows that a dead publisher was moving, before the queue is deleted."""
        with contextlib.suppress(QueueDeleted):
            queue.tend()
            self.look_for_dead()

    def close(self) -> None:
        for publisher in list(self._publishers):
            publisher.close()
        if self._runs is not None:
            self._runs.close()
        for consumer in list(self._consumers):
            with contextlib.suppress(LockTimeout):
                consumer.close()  # with the acknowledgements that it has collected
        self._dead_letters.close()
        if self.ready_event is not None:
            self.ready_event.close()
        _core.Handle.close(self)
        wait_set.wake_all(self._namespace)
        if self.is_consumer:
            _end_quietly(self._namespace, self.name)

    def __del__(self) -> None:
        if self.is_consumer and not self.closed:
            _core.Handle.close(self)
            end = functools.partial(_end_quietly, self._namespace, self.name)
            self._namespace.processes.run_when_unlocked(end)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, _attach_by_name, self._namespace.name, self.name)

    def __dir__(self) -> list[str]:
        """The names of the contract; the other attributes are for the core and the client."""
        return [name for name in dir(api.Queue) if not name.startswith("_abc_")]

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "name", self.name
        yield "namespace", self._namespace.name
        yield "closed", self.closed

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<LocalQueue {self.name!r} of namespace {self._namespace.name!r}{state}>"


def _sort(rows: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Sort in pieces, so that no piece holds the GIL for long."""
    pieces = iter(lambda: sorted(itertools.islice(rows, _SCAN)), [])
    return heapq.merge(*pieces)


def attach(namespace: Namespace, name: str) -> LocalQueue:
    """Attach to an existing queue. Raises NoSuchQueue, SegmentError."""
    check_name(name)
    return LocalQueue(namespace, name, namespace.open_segment(name))


def remove_if_over(namespace: Namespace, name: str) -> bool:
    """See :func:`shmq.client.local.temporary_queue.remove_if_over`."""
    return temporary_queue.remove_if_over(namespace, name, LocalQueue)


def _end_quietly(namespace: Namespace, name: str) -> None:
    """Delete the queue if its last consumer has left; otherwise the next that looks does."""
    with contextlib.suppress(ShmqError, OSError):
        if remove_if_over(namespace, name):
            namespace.retire()


def _attach_by_name(namespace: str, name: str) -> LocalQueue:
    return attach(Namespace.of(namespace), name)


for _kind, _promised in (
    (LocalQueue, api.Queue),
    (_core.Message, api.Message),
    (_core.Consumer, api.Consumer),
    (_core.Bodies, api.Bodies),
    (_core.Loan, api.Loan),
):
    document(_kind, _promised)
