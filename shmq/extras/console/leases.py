"""Messages that callers of the HTTP API hold leased, with the sessions that they belong to."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import shmq

#: A session without a call for this long ends, and its messages return, in seconds.
IDLE: Final = 120.0
#: The most sessions of all callers.
_MOST: Final = 1000
#: The most messages that one session holds.
MOST_HELD: Final = 10_000
#: Of how many messages a session knows how it has settled them.
_MOST_SETTLED: Final = 1000


@dataclasses.dataclass(slots=True)
class LeaseSession:
    """What one caller holds. The id is a secret: a receipt begins with it."""

    id: str = dataclasses.field(repr=False)
    caller: str
    until: float
    #: The handle of each queue, which keeps the leases.
    queues: dict[str, shmq.Queue] = dataclasses.field(default_factory=dict)
    #: The receipts of each queue that are not settled.
    held: dict[str, set[int]] = dataclasses.field(default_factory=dict)
    #: How and when it has settled its last messages, by queue and receipt.
    settled: dict[tuple[str, int], tuple[str, float]] = dataclasses.field(default_factory=dict)
    #: Calls that run now: such a session is not idle.
    calls: int = 0
    #: Whether it was ended; what a call that still runs has leased returns once that is over.
    ended: bool = False

    def check(self) -> None:
        """Raise :class:`shmq.LeaseExpired` if it was ended."""
        if self.ended:
            raise _make_over(self.id)

    def note_settled(self, name: str, receipt: int, how: str) -> None:
        """Note that the caller has settled the message."""
        self.held.get(name, set()).discard(receipt)
        self.settled[name, receipt] = how, time.monotonic()
        if len(self.settled) > _MOST_SETTLED:
            self.settled.pop(next(iter(self.settled)), None)

    def check_held(self, name: str, receipt: int) -> None:
        """Raise :class:`shmq.LeaseExpired` if it does not hold the message."""
        if receipt in self.held.get(name, set()):
            return
        what = f"message {self.id[:8]}….{name}.{receipt}"
        if (name, receipt) in self.settled:
            how, at = self.settled[name, receipt]
            raise shmq.AlreadySettled.of(what, how, time.monotonic() - at)
        raise shmq.LeaseExpired(f"{what} is not leased by its session: its lease has ended")


class LeaseBook:
    """All sessions. Its methods may be called by any thread.

    The receipt of a message is ``SESSION.NUMBER``: it can be settled by whoever was given it, and
    by no one else.
    """

    def __init__(self, broker: shmq.Broker, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, LeaseSession] = {}

    @contextlib.contextmanager
    def session(self, caller: str, shown: str | None = None) -> Iterator[LeaseSession]:
        """The session ``shown``, or a new one of ``caller``, for the length of a call.

        Raises :class:`shmq.LeaseExpired` if the session has ended or is another caller's, and
        :class:`shmq.NoSpace` at the limit of sessions.
        """
        self.end_idle()
        with self._lock:
            found = self._sessions.get(shown) if shown is not None else self._begin(caller)
            if found is None or found.caller != caller:
                raise _make_over(shown or "")
            found.calls += 1
        try:
            yield found
        finally:
            with self._lock:
                found.calls -= 1
                found.until = self._clock() + IDLE
                last = found.ended and not found.calls
            if last:
                self._close(found)

    def _begin(self, caller: str) -> LeaseSession:
        if len(self._sessions) >= _MOST:
            raise shmq.NoSpace(
                f"{_MOST} sessions hold leases: settle theirs, or wait {IDLE:g} s until one ends"
            )
        made = LeaseSession(secrets.token_urlsafe(16), caller, self._clock() + IDLE)
        self._sessions[made.id] = made
        return made

    def queue(self, session: LeaseSession, name: str) -> shmq.Queue:
        """The session's own handle of the queue. Raises what ``Broker.queue`` raises."""
        with self._lock:
            kept = session.queues.get(name)
        if kept is not None:
            return kept
        opened = self._broker.queue(name)
        with self._lock:
            kept = session.queues.setdefault(name, opened)
        if kept is not opened:
            opened.close()
        return kept

    def drop_queue(self, session: LeaseSession, name: str) -> None:
        """Forget the handle of a queue that was deleted."""
        with self._lock:
            kept = session.queues.pop(name, None)
            session.held.pop(name, None)
        if kept is not None:
            with contextlib.suppress(shmq.ShmqError, OSError):
                kept.close()

    def end(self, shown: str, caller: str) -> int:
        """End a session: its messages return at once. Returns how many it held."""
        with self._lock:
            found = self._sessions.get(shown)
            if found is None or found.caller != caller:
                return 0
            self._take_out(found)
            busy = found.calls > 0
        return self._give_back(found) if busy else self._close(found)

    def end_idle(self) -> None:
        """End the sessions without a call for too long."""
        now = self._clock()
        with self._lock:
            over = [one for one in self._sessions.values() if not one.calls and one.until <= now]
            for one in over:
                self._take_out(one)
        for one in over:
            self._close(one)

    def close(self) -> None:
        """End all sessions, with the calls that still run."""
        with self._lock:
            over = list(self._sessions.values())
            for one in over:
                self._take_out(one)
        for one in over:
            self._close(one)

    def _take_out(self, session: LeaseSession) -> None:
        del self._sessions[session.id]
        session.ended = True

    @staticmethod
    def _give_back(session: LeaseSession) -> int:
        """Return the session's messages to their queues; how many there were."""
        count = 0
        for name, receipts in list(session.held.items()):
            queue = session.queues.get(name)
            # A call that runs may settle, or add, one in the meantime.
            while queue is not None and receipts:
                receipt = receipts.pop()
                # A lease that has ended, and a queue that is gone, hold nothing any more.
                with contextlib.suppress(shmq.ShmqError, OSError):
                    queue.nack(receipt, 0.0)
                    count += 1
        return count

    def _close(self, session: LeaseSession) -> int:
        """Return the session's messages, and close its handles."""
        count = self._give_back(session)
        for queue in list(session.queues.values()):
            with contextlib.suppress(shmq.ShmqError, OSError):
                queue.close()
        return count


def _make_over(session: str) -> shmq.LeaseExpired:
    return shmq.LeaseExpired(
        f"session {session[:8]!r}… has ended, and its messages have returned: lease again; a "
        f"session ends {IDLE:g} s after its last call"
    )
