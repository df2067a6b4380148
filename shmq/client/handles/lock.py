"""Locks and semaphores: the permits are messages of a queue, and a lease is a permit held.

So a permit has what a lease has: the death of its holder, or the end of its connection, returns it,
and no store has to be added to it. Two queues make a lock:

- ``lock::NAME`` has as many messages as permits, and no room for more. Each process that opens it
  puts until it is full, before its first acquire: whichever of them dies on the way, there are
  never too many permits, nor too few while a process waits. They are never acknowledged.
- ``line::NAME`` has the order of the waiters. A waiter puts a ticket and leases it; the order is
  that of the tickets' sequence numbers. The first one waits for a permit. Each other one waits in
  the inbox of its broker, a third queue, ``turn::HEX``, for a message that notifies it that it is
  the first now; a note in the line names that inbox. What a dead waiter leaves expires. A
  notification may be lost: each waiter also checks the line every `_SLICE`.

Only the permits decide who holds the lock; the line is advisory. A waiter that finds a permit free,
and the same other one first in the line for `_STUCK`, passes that one, which may be stopped.

Where servers know no deaths (`BrokerHandle.lock_lease`), a lease ends by its time: the permit's
handle extends it until the release, and there is no line.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

from shmq import api
from shmq.api.lock import MAX_PERMITS, LockHolder, LockSummary
from shmq.api.names import LOCK_INBOX, LOCK_LINE, LOCK_PERMITS, check_name
from shmq.api.options import check_flag, check_whole
from shmq.client.handles.queue import QueueHandle
from shmq.client.ports.steps import LOCK_PAUSE, Step, Steps, arun, pause, run, run_to_end
from shmq.client.shared.backoff import Backoff
from shmq.client.shared.outage import AWAY, LONGEST
from shmq.client.shared.reconnects import limit_reconnects
from shmq.display import Displayed
from shmq.errors import (
    AlreadyExists,
    ConnectionLost,
    Empty,
    Full,
    InvalidName,
    LeaseExpired,
    LockExists,
    LockNotHeld,
    LockTimeout,
    NoSuchQueue,
    QueueDeleted,
    QueueExists,
    ShmqError,
    Unsupported,
)
from shmq.native import _clock as time
from shmq.native import _core

#: The most characters of a lock's name: those of a queue's, less those of the prefix.
MAX_LOCK_NAME: Final = _core.MAX_NAME - len(LOCK_PERMITS)

#: The visibility timeout of both queues, in seconds: no lease ends while its holder lives.
_FOREVER: Final = 1e9
#: How long a queue stays whose creator was killed before it used it, in seconds.
_UNUSED: Final = 60.0
#: How often returning a ticket is tried, each time for 0.1 s.
_TRIES: Final = 10
#: For how long the server is there before a loss begins another absence, in seconds.
_STABLE: Final = 1.0
#: How often an acquire opens queues that others delete at that moment.
_REOPENS: Final = 20
#: How long a ticket or a note is in the line unless it is leased, in seconds.
_ADVICE: Final = 60.0
#: How many may be in the line; those beyond wait without an order.
_MOST_WAITERS: Final = 4096
#: After how many seconds a waiter looks whether those before it are gone or stuck.
_SLICE: Final = 0.04
#: For how many seconds a permit is left to the first one in the line.
_STUCK: Final = 0.03

_T = TypeVar("_T")

#: A permit or a ticket that is held; None: there is none.
_Permit: TypeAlias = "api.Message | None"

#: What a queue raises that its last user has deleted: the server knows no more of it.
_GONE: Final = (QueueDeleted, NoSuchQueue)

_COMMON: Final[dict[str, Any]] = {
    "visibility_timeout": _FOREVER,
    "max_deliveries": None,
    "dead_letter": None,
    "auto_delete": True,
    "expires": _UNUSED,
}
#: What a permit takes in the files of servers, in bytes: more than its headers.
_STORED: Final = 1024


def _permit_options(kind: str, permits: int, lease: float | None) -> dict[str, Any]:
    # The kind is the number of priorities, which permits have no use for.
    priorities = 1 if kind == "lock" else 2
    options = {**_COMMON, "capacity": permits, "arena_bytes": 4096, "priorities": priorities}
    if lease is not None:  # nothing deletes the queue: its servers do not know who uses it
        del options["auto_delete"], options["expires"]
        options |= {"visibility_timeout": lease, "arena_bytes": 4096 + permits * _STORED}
    return options


def _line_options() -> dict[str, Any]:
    return {
        **_COMMON,
        "capacity": _MOST_WAITERS,
        "arena_bytes": 1 << 20,
        "priorities": 1,
        "ttl": _ADVICE,
        "on_expired": "drop",
    }


def get_nothing(queue: api.Queue) -> None:
    """Be a consumer of the queue, without taking a message."""
    with contextlib.suppress(Empty):
        queue.get(False, where="correlation = 'none'")


def new_inbox() -> str:
    """A new name of an inbox."""
    return LOCK_INBOX + os.urandom(8).hex()


def inbox_options() -> dict[str, Any]:
    """The options of the queue that notifies the waiters of one broker that they are first."""
    return {**_line_options(), "overflow": "drop-oldest", "ttl": 1.0}


#: A `BrokerHandle`, which imports this module.
Broker = Any
#: A queue of this host, or a `QueueHandle`: both know more than the contract has.
Queue = Any
#: The queue of the permits, and that of the line; None: there is none.
Queues = tuple[Queue, Queue | None]


def open_queues(broker: Broker, kind: str, name: str, permits: int) -> Queues:
    """Open the two queues of a lock, or create them, and put what permits are missing."""
    name = check_name(name, kind)
    if len(name) > MAX_LOCK_NAME:
        raise InvalidName(
            f"invalid {kind} name {name!r}: it has {len(name)} characters, and may have "
            f"{MAX_LOCK_NAME}"
        )
    for _ in range(_REOPENS):
        with contextlib.suppress(*_GONE):  # deleted by its last user, at this moment
            return _open_once(broker, kind, name, permits)
    return _open_once(broker, kind, name, permits)


def _open_once(broker: Broker, kind: str, name: str, permits: int) -> Queues:
    lease = broker.lock_lease
    try:
        held = broker.open_reserved(LOCK_PERMITS + name, _permit_options(kind, permits, lease))
    except QueueExists as error:
        raise _make_exists_error(kind, name, error) from error
    line = None if lease is not None else broker.open_reserved(LOCK_LINE + name, _line_options())
    _fill(held, permits)
    return held, line


def _make_exists_error(kind: str, name: str, error: AlreadyExists) -> AlreadyExists:
    if "priorities" in error.differences:
        other = "lock" if kind == "semaphore" else "semaphore"
        return LockExists(f"{kind} {name!r}: a {other} of that name exists; use another name")
    both = error.differences.get("capacity", ("?", "?"))
    return LockExists(
        f"semaphore {name!r} exists with {both[1]} permits, not {both[0]}: use as many, or another "
        f"name",
        {"permits": both},
    )


def _fill(queue: Queue, permits: int) -> None:
    """Put permits until no more fit, however many processes do the same."""
    if permits > 1 and queue.full():
        return
    with contextlib.suppress(Full):
        for _ in range(permits):
            queue.put(b"", block=False)


def summarize(broker: Broker, name: str) -> LockSummary:
    """The entry of the list for the lock of that name. Raises NoSuchQueue."""
    with broker.queue(LOCK_PERMITS + name) as queue:
        options, holders = queue.options, _leaseholders(queue)
    waiters: list[LockHolder] = []
    with contextlib.suppress(ShmqError), broker.queue(LOCK_LINE + name) as line:
        waiters = _leaseholders(line)
    return LockSummary(
        name=name,
        kind="lock" if options.priorities == 1 else "semaphore",
        permits=options.capacity,
        holders=sorted(holders, key=lambda one: one.since),
        waiters=waiters,
    )


def summarize_all(broker: Broker, queues: list[str]) -> list[LockSummary]:
    """The entries of the list, given the names of all queues."""
    if broker.lock_lease is not None:
        raise _make_unknown_error("locks", "list_locks")
    names = [name.removeprefix(LOCK_PERMITS) for name in queues if name.startswith(LOCK_PERMITS)]
    found = []
    for name in sorted(names):
        with contextlib.suppress(*_GONE):
            found.append(summarize(broker, name))
    return found


def _make_unknown_error(what: str, method: str) -> Unsupported:
    return Unsupported(
        f"{what}: {method}() is not possible on a cluster: its servers do not tell who holds a "
        f"lock or waits for it; use locked()"
    )


def _leaseholders(queue: Queue) -> list[LockHolder]:
    """Those who hold a message of the queue leased, in the order of the messages."""
    now = time.time()
    return [
        LockHolder(
            pid=lease.holder_pid,
            name=lease.holder_name,
            since=now - max(0.0, _FOREVER - lease.expires_in),
        )
        for lease in queue.leases(MAX_PERMITS)
    ]


def _get(queue: Queue, timeout: float | None, where: str | None = None) -> Step:
    """A step that gets a message, or None if none arrived within the timeout."""

    def block() -> api.Message | None:
        with contextlib.suppress(Empty):
            found: api.Message = queue.get(timeout=timeout, where=where)
            return found
        return None

    async def suspend() -> api.Message | None:
        with contextlib.suppress(Empty):
            found: api.Message = await queue.aget(timeout, where=where)
            return found
        return None

    return block, suspend


#: After an attempt that has blocked the event loop for `LOCK_PAUSE`; a thread only blocks itself.
_LET_OTHERS_RUN: Final[Step] = (lambda: None, pause(LOCK_PAUSE)[1])


def _call(queue: Queue, call: Callable[[], Any]) -> Step:
    """A step that takes microseconds on a queue of this host, and a round trip otherwise.

    It is carried out even if its task is cancelled.
    """

    async def suspend() -> Any:
        return await run_to_end(call) if isinstance(queue, QueueHandle) else call()

    return call, suspend


def _confirm(permits: Queue, permit: _Permit) -> Steps[None]:
    """Raise ConnectionLost if a server has returned the permit since the get."""
    if permit is not None and isinstance(permits, QueueHandle):
        yield _call(permits, permits.has_message)  # over another connection if the first was lost
        _check_leased(permits, permit)


def _check_leased(queue: Queue, message: api.Message) -> None:
    """Raise ConnectionLost if a server has returned the permit or the ticket to its queue."""
    if isinstance(queue, QueueHandle) and not queue.port.is_leased(message):
        raise ConnectionLost(
            f"the connection to queue {queue.name!r} was lost: the lock was not acquired"
        )


class _Absence:
    """How long an acquire goes on without its server.

    The gets of an acquire are parts of its wait, so each of them reconnects for a moment only.
    """

    def __init__(self, until: float | None) -> None:
        self._until = until
        self._backoff: Backoff | None = None
        self._give_up = 0.0
        #: When the server was reached after the last loss, on time.monotonic(); None: not yet.
        self._reached: float | None = None

    def end(self) -> None:
        """Record that the server was reached."""
        self._reached = time.monotonic()

    def pause(self, error: ShmqError) -> float:
        """The seconds before the next attempt. Raises the error if it is too late for one.

        An absence lasts for `LONGEST` at most, and ends once the server is there for `_STABLE`.
        """
        now = time.monotonic()
        backoff = self._backoff
        if backoff is None or (self._reached is not None and now > self._reached + _STABLE):
            backoff = self._backoff = Backoff()
            self._give_up = now + LONGEST
            if self._until is not None:
                self._give_up = min(self._give_up, self._until)
        self._reached = None
        if now >= self._give_up:
            raise error
        return backoff.pause(self._give_up - now)


class _Line:
    """The order of the waiters of one lock, which is advisory."""

    def __init__(self, queue: Queue, broker: Broker) -> None:
        self.queue = queue
        self._broker = broker
        #: Tickets of waiters that left, which could not be returned yet.
        self._unreturned: list[api.Message] = []

    def is_awaited(self) -> bool:
        """Whether others may wait."""
        return bool(self.queue.has_message())

    def call(self, call: Callable[[], Any]) -> Step:
        """A step of the line: see `_call`."""
        return _call(self.queue, call)

    def join(self) -> Steps[_Permit]:
        """Return a ticket, leased; None: too many wait."""
        if self._unreturned:
            yield self.call(self._return_tickets)
        name = os.urandom(8).hex()
        while True:
            try:
                yield self.call(lambda: self.queue.put(b"", block=False, correlation=name))
            except Full:
                return None
            ticket: _Permit = yield _get(self.queue, 0.0, f"correlation = '{name}'")
            if ticket is not None:
                return ticket  # else it was purged by one who left

    def first_two(self) -> list[int]:
        """The sequence numbers of the first tickets; newcomers notice that there are some."""
        if not self.queue.has_message():
            self._mark()
        return [lease.sequence for lease in self.queue.leases(2)]

    def _mark(self) -> None:
        """Have newcomers join the line."""
        with contextlib.suppress(Full):
            self.queue.put(b"", block=False, correlation="awaited")

    def write_note(self, ticket: int, inbox: Queue) -> None:
        """Put the name of the inbox in which the ticket's holder is notified."""
        with contextlib.suppress(Full):
            self.queue.put(inbox.name, block=False, correlation=f"{ticket}")

    def leave(self, ticket: api.Message) -> None:
        """Return the ticket, and notify the next waiter if it was the first."""
        self._unreturned.append(ticket)
        with contextlib.suppress(ShmqError):
            self._return_tickets()
            first = self.queue.leases(1)
            if not first:
                self.queue.purge()
                if self.queue.leases(1):  # one who has joined in the meantime
                    self._mark()
                return
            self._remove_note(ticket.sequence)
            if first[0].sequence > ticket.sequence:
                self._notify(first[0].sequence)

    def _notify(self, ticket: int) -> None:
        """Notify the holder of the ticket that it is the first."""
        for note in self.queue.peek(1, where=f"correlation = '{ticket}'"):
            inbox = self._broker.other_inbox(str(note.body))
            inbox.put(b"", block=False, correlation=_turn(self.queue, ticket))

    def _remove_note(self, ticket: int) -> None:
        with contextlib.suppress(Empty):
            self.queue.get(False, where=f"correlation = '{ticket}'").ack()

    def _return_tickets(self) -> None:
        """Return the tickets of waiters that left, also those that could not be returned then."""
        while self._unreturned:
            try:
                ticket = self._unreturned.pop()
            except IndexError:  # another thread was faster
                return
            try:
                _patiently(ticket.ack, _TRIES)
            except LockTimeout:
                self._unreturned.append(ticket)
                raise
            except LeaseExpired:  # with the connection
                pass


def _patiently(call: Callable[[], object], tries: int | None = None) -> None:
    """Make the call again while a process is stopped within an operation on the queue."""
    while True:
        try:
            call()
        except LockTimeout:
            tries = None if tries is None else tries - 1
            if tries == 0:
                raise
        else:
            return


def _turn(line: Queue, ticket: int) -> str:
    return f"{line.name} {ticket}"


def _await_turn(
    permits: Queue, line: _Line, own: api.Message, until: float | None, inbox: Queue
) -> Steps[_Permit]:
    """Return a permit once the own ticket is the first, or the first is stuck; None: too late."""
    ticket = own.sequence
    turn = f"correlation = '{_turn(line.queue, ticket)}'"
    permit: _Permit = None
    stuck = 0
    noted = -math.inf
    while permit is None:
        now = time.monotonic()
        left = _SLICE if until is None else min(_SLICE, until - now)
        if left <= 0:
            permit = yield _get(permits, 0.0)
            break
        first, *others = (yield line.call(line.first_two)) or [ticket]
        _check_leased(line.queue, own)
        if first >= ticket:
            permit = yield _get(permits, left)
            continue
        if now > noted + _ADVICE / 2:
            noted = now
            yield line.call(lambda: line.write_note(ticket, inbox))
        if stuck == first:
            left = min(left, _STUCK)
        message = yield _get(inbox, left, turn)
        look = functools.partial(_is_free, permits, line.queue, ticket in others)
        if message is not None:
            stuck = 0
            yield line.call(message.ack)
        elif not (yield line.call(look)):
            stuck = 0
        elif stuck != first:
            stuck = first
        else:
            permit = yield _get(permits, 0.0)
    return permit


def _take_extended(permits: Queue, until: float | None) -> Steps[_Permit]:
    """Return a permit whose lease is extended from now on; None: too late.

    A permit is a holder's once its extension is confirmed: until then a leader that has changed may
    have delivered it to another one, too.
    """
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        permit: _Permit = yield _get(permits, left)
        if permit is None:
            return None
        with contextlib.suppress(LeaseExpired):
            yield from permits.keep_lease(permit)
            return permit


def _is_free(permits: Queue, line: Queue, closely: bool) -> bool:
    """Whether a permit is free; ``closely``: after a look for dead holders and waiters."""
    if closely:
        line.look_for_dead()
        permits.look_for_dead()
    return bool(permits.has_message())


class SemaphoreHandle(Displayed, api.Semaphore):
    """Implements `api.Semaphore` for all transports."""

    _KIND = "semaphore"

    def __init__(self, broker: Broker, name: str, permits: int, timeout: Any) -> None:
        timeout = _core.check_timeout(timeout)
        self._broker = broker
        self._name = name
        self._permits = check_whole("permits", permits, 1, MAX_PERMITS)
        self._timeout: float | None = timeout
        self._held: list[api.Message] = []
        #: What the parent of this process held at the fork: none of it is settled here.
        self._inherited: list[list[api.Message]] = []
        self._pid = os.getpid()
        self._open(broker.lock_queues(self._KIND, name, self._permits))

    def _open(self, queues: Queues) -> None:
        self._queue, line = queues
        self._line = None if line is None else _Line(line, self._broker)

    @property
    def name(self) -> str:
        return self._name

    @property
    def permits(self) -> int:
        return self._permits

    # ---- acquire ----

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        limit = self._limit(block, timeout)
        if self._try_acquire(limit):
            return True
        with limit_reconnects(limit) as until:
            return run(self._acquire(limit, until))

    async def aacquire(self, block: bool = True, timeout: float | None = None) -> bool:
        limit = self._limit(block, timeout)
        if self._try_acquire(limit):
            return True
        with limit_reconnects(limit) as until:
            return await arun(self._acquire(limit, until))

    def _try_acquire(self, limit: float | None) -> bool:
        """Acquire a free permit of this host, the common case, without a generator."""
        if self._line is None or isinstance(self._queue, QueueHandle):
            return False
        try:
            if limit != 0.0 and self._line.queue.has_message():
                return False
        except (LockTimeout, *_GONE):
            return False
        try:
            self._keep(self._queue.get(False))
        except (Empty, LockTimeout, *_GONE):
            return False
        return True

    def _limit(self, block: bool, timeout: float | None) -> float | None:
        """For how long an acquire waits."""
        if block is not True:
            check_flag("block", block)
        if timeout is None:
            return self._timeout if block else 0.0
        timeout = _core.check_timeout(timeout)
        return timeout if block else 0.0

    def _acquire(self, timeout: float | None, until: float | None) -> Steps[bool]:
        permit: _Permit = None
        reopens = 0
        absence = _Absence(until)
        mend: Callable[[], None] | None = None
        while True:
            try:
                if mend is not None:
                    yield _call(self._queue, mend)
                    mend = None
                    absence.end()
                permit = yield from self._take(timeout, until)
                break
            except _GONE:
                reopens, mend = reopens + 1, self._reopen
                if reopens > _REOPENS:
                    raise
            except AWAY as error:
                yield pause(absence.pause(error))
                mend = self._reach
            except LockTimeout:  # a process is stopped within an operation on a queue
                if until is not None and time.monotonic() >= until:
                    break
                yield _LET_OTHERS_RUN
        if permit is not None:
            self._keep(permit)
        return permit is not None

    def _keep(self, permit: api.Message) -> None:
        self._own_permits().append(permit)
        self._broker.held_locks.add(self)

    def _reach(self) -> None:
        """Use each queue of an acquire once: a get that does not wait reconnects once.

        Raises ConnectionLost, ShuttingDown.
        """
        queues = [self._queue]
        if self._line is not None:
            queues += [self._line.queue, self._broker.lock_inbox()]
        for queue in queues:
            get_nothing(queue)

    def _reopen(self) -> None:
        self._open(self._broker.lock_queues(self._KIND, self._name, self._permits, again=True))

    def _look(self, look: Callable[[], _T]) -> _T:
        """What ``look`` returns; again if the queues were deleted by their last user."""
        try:
            return look()
        except _GONE:
            self._reopen()
            return look()

    def _take(self, timeout: float | None, until: float | None) -> Steps[_Permit]:
        permits, line = self._queue, self._line
        if line is None:
            return (yield from _take_extended(permits, until))
        if timeout == 0.0 or not (yield line.call(line.is_awaited)):
            permit: _Permit = yield _get(permits, 0.0)
            if permit is not None or timeout == 0.0:
                return permit
        inbox = yield line.call(self._broker.lock_inbox)
        ticket = yield from line.join()
        if ticket is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            permit = yield _get(permits, left)
            return permit
        try:
            permit = yield from _await_turn(permits, line, ticket, until, inbox)
        except GeneratorExit:
            line.leave(ticket)
            raise
        except AWAY:
            _core.drop_in_hand(ticket)  # returns it if the line's connection still works
            raise
        except BaseException:
            yield line.call(lambda: line.leave(ticket))
            raise
        try:
            yield line.call(lambda: line.leave(ticket))
        except BaseException:
            if permit is not None:
                permit.nack(0, counted=False)
            raise
        yield from _confirm(permits, permit)
        return permit

    def _own_permits(self) -> list[api.Message]:
        """The permits that this process holds by this handle."""
        if self._pid != os.getpid():
            self._inherited.append(self._held)
            self._held, self._pid = [], os.getpid()
        return self._held

    def _make_timeout_error(self) -> LockTimeout:
        what = f"{self._KIND} {self._name!r} was not acquired within {self._timeout} s"
        with contextlib.suppress(ShmqError):
            for holder in self.holders():
                held = f"process {holder.pid} ({holder.name}) holds it"
                return LockTimeout(f"{what}: {held}", holder.pid)
        return LockTimeout(what)

    # ---- release ----

    def release(self) -> None:
        self._return(self._pop(), None)

    def _pop(self) -> api.Message:
        """A permit that is held, which the caller returns. Raises LockNotHeld."""
        try:
            permit = self._own_permits().pop()
        except IndexError:
            raise LockNotHeld(f"{self._KIND} {self._name!r} is not held by this handle") from None
        if not self._held:
            self._broker.held_locks.discard(self)
        return permit

    def _return(self, permit: api.Message, tries: int | None) -> None:
        try:
            _patiently(lambda: permit.nack(0, counted=False), tries)
        except (LeaseExpired, *_GONE) as error:
            raise LockNotHeld(
                f"{self._KIND} {self._name!r} was lost while it was held: its connection or its "
                f"broker was closed, its lease ended, or it was deleted"
            ) from error
        except KeyboardInterrupt:  # while a process is stopped within an operation on the queue
            self._keep(permit)
            raise

    async def arelease(self) -> None:
        permit = self._pop()
        if not isinstance(self._queue, QueueHandle):
            with contextlib.suppress(LockTimeout):
                self._return(permit, 1)
                return
        await run_to_end(lambda: self._return(permit, None))

    # ---- what it has ----

    def locked(self) -> bool:
        if self._line is None:
            return self._look(lambda: bool(self._queue.count_claimed() >= self._permits))
        return self._look(lambda: not self._queue.has_message())

    def holders(self) -> list[LockHolder]:
        self._check_known("holders")
        found = self._look(lambda: _leaseholders(self._queue))
        return sorted(found, key=lambda one: one.since)

    def waiters(self) -> list[LockHolder]:
        line = self._check_known("waiters")
        return self._look(lambda: _leaseholders(line.queue))

    def _check_known(self, method: str) -> _Line:
        """The line. Raises Unsupported if the servers do not know who holds the lock."""
        if self._line is None:
            raise _make_unknown_error(f"{self._KIND} {self._name!r}", method)
        return self._line

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._broker, self._name, self._permits, self._timeout)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "name", self._name
        yield "permits", self._permits
        yield "held", len(self._own_permits())

    def __repr__(self) -> str:
        held = ", held" if self._own_permits() else ""
        return f"<{type(self).__name__} {self._name!r}{held}>"


class LockHandle(SemaphoreHandle, api.Lock):
    """Implements `api.Lock` for all transports."""

    _KIND = "lock"

    def holder(self) -> LockHolder | None:
        held = self.holders()
        return held[0] if held else None
