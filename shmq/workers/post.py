"""A post that one process mans at a time, and when the next one may."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import time
from multiprocessing.context import SpawnProcess
from typing import Final

from shmq.workers.plan import Plan
from shmq.workers.process import main
from shmq.workers.shift import Ending
from shmq.workers.signals import held_back

__all__ = ["Post"]

log = logging.getLogger("shmq.workers")

# Spawned, not forked: whatever threads the supervisor's program has, a worker begins clean.
_SPAWN = multiprocessing.get_context("spawn")

#: A process that died sooner than this after its start died at once, in seconds.
AT_ONCE: Final = 5.0
#: The pause before the second successor in a row of those, in seconds; doubled each time.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0


class Post:
    """One of a plan's processes, replaced when it ends."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan = plan
        self.who = f"worker {plan.queue}/{number}"
        self.process: SpawnProcess | None = None
        #: When a process is to be started, on the monotonic clock; None: not any more.
        self.due: float | None = 0.0
        self._started_at = 0.0
        self._deaths = 0

    def start(self) -> None:
        """Man the post. The process hears no signal before it is ready for it."""
        multiprocessing.resource_tracker.ensure_running()  # starting that lets signals through
        process = _SPAWN.Process(
            target=main, args=(self.who, self.plan, os.getpid()), name=self.who
        )
        self._started_at = time.monotonic()
        try:
            with held_back():
                process.start()
        except OSError as error:  # no process, memory or descriptor is left for it
            log.error("%s cannot be started: %s", self.who, error)
            self._pause()
            return
        self.process = process
        self.due = None
        log.info("%s started, pid %s", self.who, process.pid)

    def reap(self) -> int | None:
        """The exit code of the process if it has ended, which leaves the post empty."""
        if self.process is None or self.process.exitcode is None:
            return None
        code, pid = self.process.exitcode, self.process.pid
        self.process.close()
        self.process = None
        if code not in {*Ending}:
            log.error("%s died, pid %s: %s", self.who, pid, _told(code))
        return code

    def replace(self, code: int) -> None:
        """Have the ended process replaced: at once, but for those that die again and again."""
        lasted = time.monotonic() - self._started_at
        if code in {Ending.DRAINED, Ending.RECYCLED} or lasted >= AT_ONCE:
            self._deaths = 0
            self.due = time.monotonic()
        else:
            self._pause()

    def _pause(self) -> None:
        self._deaths += 1
        doubled = FIRST_PAUSE * 2.0 ** min(self._deaths - 2, 64)
        pause = min(doubled, LONGEST_PAUSE) if self._deaths > 1 else 0.0
        self.due = time.monotonic() + pause
        if pause:
            log.warning(
                "%s has failed %d times in a row: the next starts in %.1f s",
                self.who,
                self._deaths,
                pause,
            )

    def drain(self) -> None:
        """Ask the process to end after the message at hand; it is not replaced."""
        self.due = None
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        self.due = None
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process.close()
            self.process = None


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
