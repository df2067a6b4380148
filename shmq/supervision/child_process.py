"""A post that one process mans at a time, and when the next one may."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from shmq.supervision.heartbeat import SHOW_STACK, Heartbeat, is_stopped
from shmq.supervision.signals import held_back

__all__ = ["ChildProcess", "PipedChildProcess"]

# Spawned, not forked: whatever threads the supervisor's program has, a process begins clean.
_SPAWN = multiprocessing.get_context("spawn")

#: A process that died sooner than this after its start died at once, in seconds.
AT_ONCE: Final = 5.0
#: The pause before the second successor in a row of those, in seconds; doubled each time.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
#: How often is looked for signs of life, in seconds. A supervisor that was stopped itself has
#: heard nothing meanwhile: a look counts for no more than two.
LOOK: Final = 0.5
#: How long a process may take to its first sign, in seconds: it loads all that it needs.
_BEGINNING: Final = 60.0
#: How long it has to write its stacks, in seconds.
_LAST_WORDS: Final = 0.5


class ChildProcess:
    """A process that is replaced when it ends.

    It calls ``target`` with what ``arguments()`` returns at each start. ``expected`` are
    the exit codes of its own that no death has; after one of ``renewed`` the next begins
    at once. ``who`` is named in the log. A process that is given the `pulse` is killed when
    that stands still for too long: see `look`.
    """

    def __init__(
        self,
        who: str,
        target: Callable[..., None],
        arguments: Callable[[], tuple[Any, ...]],
        log: logging.Logger,
        *,
        expected: Collection[int] = (),
        renewed: Collection[int] = (),
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self.who = who
        self.process: SpawnProcess | None = None
        #: When a process is to be started, on the monotonic clock; None: not any more.
        self.due: float | None = 0.0
        #: Where its process gives signs of life.
        self.heartbeat = Heartbeat()
        self._count = self._first = 0
        self._looked_at = self._silent_for = 0.0
        self._kill_at: float | None = None
        self._ending = False
        self._target = target
        self._arguments = arguments
        self._log = log
        self._expected = expected
        self._renewed = renewed
        self._longest_pause = longest_pause
        self._started_at = 0.0
        self._deaths = 0

    def start(self) -> bool:
        """Man the post; whether that could be done, else it is tried again.

        The process hears no signal before it is ready for it.
        """
        multiprocessing.resource_tracker.ensure_running()  # starting that lets signals through
        self._started_at = time.monotonic()
        try:
            process = _SPAWN.Process(target=self._target, args=self._arguments(), name=self.who)
            with held_back():
                process.start()
        except OSError as error:  # no process, memory or descriptor is left for it
            self._log.error("%s cannot be started: %s", self.who, error)
            self._pause()
            return False
        self.process = process
        self.due = None
        self._ending = False
        self._begin_to_listen()
        self._log.info("%s started, pid %s", self.who, process.pid)
        return True

    def reap(self) -> int | None:
        """The exit code of the process if it has ended, which leaves the post empty."""
        if self.process is None or self.process.exitcode is None:
            return None
        code, pid = self.process.exitcode, self.process.pid
        self.process.close()
        self.process = None
        ended = code in self._expected or (self._ending and code == -signal.SIGTERM)
        if not ended:
            self._log.error("%s died, pid %s: %s", self.who, pid, _told(code))
        return code

    def replace(self, code: int) -> None:
        """Have the ended process replaced: at once, but for those that die again and again."""
        lasted = time.monotonic() - self._started_at
        if code in self._renewed or lasted >= AT_ONCE:
            self._deaths = 0
            self.due = time.monotonic()
        else:
            self._pause()

    def _pause(self) -> None:
        self._deaths += 1
        doubled = FIRST_PAUSE * 2.0 ** min(self._deaths - 2, 64)
        pause = min(doubled, self._longest_pause) if self._deaths > 1 else 0.0
        self.due = time.monotonic() + pause
        if pause:
            self._log.warning(
                "%s has failed %d times in a row: the next starts in %.1f s",
                self.who,
                self._deaths,
                pause,
            )

    # ---- signs of life ----

    def _begin_to_listen(self) -> None:
        self._count = self._first = self.heartbeat.count
        self._silent_for = 0.0
        self._looked_at = time.monotonic()
        self._kill_at = None

    @property
    def is_well(self) -> bool:
        """Whether its process, if there is one, has given signs of life as it should."""
        return self.process is None or self._kill_at is None

    def look(self, limit: float) -> None:
        """Kill the process if it gave no sign of life for ``limit`` seconds; its stack is logged.

        To be called about every `LOOK`.
        """
        now = time.monotonic()
        if self.process is None or now - self._looked_at < LOOK / 2:
            return
        passed, self._looked_at = min(now - self._looked_at, 2 * LOOK), now
        if self._kill_at is not None:
            if now >= self._kill_at:
                self.process.kill()
            return
        count = self.heartbeat.count
        self._silent_for = 0.0 if count != self._count else self._silent_for + passed
        self._count = count
        if self._silent_for > (limit if count != self._first else max(limit, _BEGINNING)):
            self._give_up_on(self.process)

    def _give_up_on(self, process: SpawnProcess) -> None:
        assert process.pid is not None
        stopped = is_stopped(process.pid)
        self._log.error(
            "%s, pid %s, has given no sign of life for %.1f s, and is killed: %s",
            self.who,
            process.pid,
            self._silent_for,
            "it is stopped (SIGSTOP), so it cannot show its stack"
            if stopped
            else "its stack follows",
        )
        self._kill_at = time.monotonic() + (0.0 if stopped else _LAST_WORDS)
        with contextlib.suppress(ProcessLookupError):
            if stopped:
                process.kill()
            else:
                os.kill(process.pid, SHOW_STACK)

    # ---- ending ----

    def drain(self) -> None:
        """Ask the process to end when it is done; it is not replaced. May be called again."""
        self.due = None
        if self.process is not None and not self._ending:
            self._ending = True  # a second SIGTERM would be the end of one that leaves
            self.process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        self.due = None
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process.close()
            self.process = None


class PipedChildProcess(ChildProcess):
    """A post with a pipe to each process that mans it, of which ``target`` gets one end.

    ``arguments`` is called with that end. A post without a process has no pipe.
    """

    def __init__(
        self,
        who: str,
        target: Callable[..., None],
        arguments: Callable[[Connection], tuple[Any, ...]],
        log: logging.Logger,
        *,
        duplex: bool,
        **rules: Any,
    ) -> None:
        #: This end.
        self.pipe: Connection | None = None
        self._there: Connection | None = None

        def with_pipe() -> tuple[Any, ...]:
            self.pipe, self._there = multiprocessing.Pipe(duplex)
            return arguments(self._there)

        super().__init__(who, target, with_pipe, log, **rules)

    def start(self) -> bool:
        """See :class:`ChildProcess`."""
        started = super().start()
        if self._there is not None:
            self._there.close()
            self._there = None
        if not started:
            self.hang_up()
        return started

    def reap(self) -> int | None:
        """See :class:`ChildProcess`. What the process said last is heard first."""
        code = super().reap()
        if code is not None:
            self.hear()
            self.hang_up()
        return code

    def hear(self) -> None:
        """Take what the process has said."""
        try:
            while self.pipe is not None and self.pipe.poll():
                self.heard(self.pipe.recv())
        except (EOFError, OSError):
            self.hang_up()

    def heard(self, said: Any) -> None:
        """It said that; for a subclass."""

    def hang_up(self) -> None:
        """Close this end."""
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
