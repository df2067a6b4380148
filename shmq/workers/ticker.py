"""The ticker of a plan: puts a message into its queue at each time of its schedule.

Any number of supervisors may run the same schedule. Each step of a run may be repeated, by any
process: the message is staged, and committed as the batch whose number is the time of the run. A
batch is committed once, and none that is lower than one that was. So a supervisor that is killed
leaves a run that was not begun, which others begin, or one that the next commit completes; and a
clock that is set back repeats none. See shmq/client/local/staged_publish.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Final

from shmq import api
from shmq.errors import Full, NotConfirmed, ShmqError
from shmq.native import _clock as time
from shmq.workers.ledger import HEADER, PUBLISHER, Ledger, format_slot
from shmq.workers.plan import Plan
from shmq.workers.schedule import GRACE, Schedule

log = logging.getLogger("shmq.workers")

#: The longest pause between two looks at the clock, in seconds: it may be set, and the machine may
#: have been suspended.
_SLICE: Final = 1.0
#: After how long at most the ledger is read again, in milliseconds: it may have been deleted.
_LOOK: Final = 60_000
#: How long a request to a server may take, in seconds, as there are processes to restart meanwhile.
_PATIENCE: Final = 5.0
#: How long a commit waits for the commit of another supervisor, and for the disk, in seconds.
_TURN: Final = 1.0

#: The body of a run's message: None, in msgpack.
_BODY: Final = b"\xc0"


def _now() -> int:
    """The wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Ticker:
    """Puts the runs of one plan. For one thread."""

    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        self._plan = plan
        self._schedule = schedule
        self._open = contextlib.ExitStack()
        self._queue: api.Queue | None = None
        #: Since when the schedule applies, and when the next run is due.
        self._since = self._due = 0
        #: When to try again after an error, on time.monotonic().
        self._again = 0.0
        #: The last error, which is logged once.
        self._error = ""

    def begin(self) -> None:
        """Attach to the queue and declare the schedule. Raises what these raise."""
        self.close()
        with contextlib.ExitStack() as stack:
            broker = stack.enter_context(self._plan.reach(_PATIENCE))
            queue = broker.queue(self._plan.queue)
            self._ledger = Ledger(broker, queue)
            self._publisher = queue.staged_publisher(PUBLISHER)
            self._since = self._ledger.declare(self._schedule, self._plan.handler, _now())
            self._queue, self._open = queue, stack.pop_all()
        self._due = 0  # what was missed, or not completed, is due at once

    def close(self) -> None:
        """Detach from the queue."""
        self._queue = None
        self._open.close()

    def pause(self) -> float:
        """Return after how many seconds to call `step` again."""
        pause = max(self._again - time.monotonic(), (self._due - _now()) / 1000)
        return min(_SLICE, max(0.0, pause))

    def step(self) -> None:
        """Put the run that is due, if there is one. An error is logged, and it is tried again."""
        now = _now()
        if time.monotonic() < self._again or self._since <= now < self._due:
            return
        try:
            if self._queue is None or now < self._since:  # or the clock was set back
                self.begin()
            self._run(now)
        except (ShmqError, OSError) as error:
            self._again = time.monotonic() + _SLICE
            self._log_error(str(error))
            if not isinstance(error, Full):
                self.close()
        else:
            self._error = ""

    def _run(self, now: int) -> None:
        sealed = self._publisher.sealed() or 0
        if sealed:
            self._commit(sealed, [])  # which a supervisor that died may have left half done
            self._ledger.note(sealed, now, skipped=False)
        done = max(self._since, sealed, self._ledger.last)
        slot = self._schedule.find_latest(now)
        if slot > done:
            self._put_or_skip(slot, now)
        self._due = min(self._schedule.find_next(max(now, done)), now + _LOOK)

    def _put_or_skip(self, slot: int, now: int) -> None:
        late = now - slot
        run = f"queue {self._plan.queue!r}: the run of {format_slot(self._schedule, slot)}"
        if late > GRACE:
            skips = self._schedule.missed == "skip"
            log.warning("%s is %d s late%s", run, late // 1000, ": skipped" if skips else "")
            if skips:
                self._ledger.note(slot, now, skipped=True)
                return
        self._put(slot)
        self._ledger.note(slot, now, skipped=False)

    def _put(self, slot: int) -> None:
        """Put the message of a run, unless another supervisor did. Raises Full."""
        queue = self._queue
        assert queue is not None
        # A run that waits for room is not begun: a later one may stand for it.
        if queue.options.overflow != "drop-oldest" and queue.full():
            raise Full(f"queue {queue.name!r} is full: the run that is due waits for room")
        properties: dict[str, Any] = {
            "codec": "msgpack",
            "headers": {HEADER: format_slot(self._schedule, slot)},
        }
        if queue.options.dedupe_window:
            # After a power cut, the journal may have a message that the ledger does not have.
            properties["dedupe_id"] = f"{PUBLISHER} {slot}"
        part = f"{os.getpid()}-{os.urandom(8).hex()}"
        self._publisher.stage(slot, part, [(_BODY, properties)])
        self._commit(slot, [part])

    def _commit(self, slot: int, parts: list[str]) -> None:
        try:
            self._publisher.commit_batch(slot, parts, timeout=_TURN)
        except NotConfirmed as error:  # it is in the queue
            self._log_error(str(error))

    def _log_error(self, error: str) -> None:
        if error != self._error:
            self._error = error
            log.warning("the schedule of queue %r: %s", self._plan.queue, error)
