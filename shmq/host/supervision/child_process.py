"""A child process that is restarted when it ends, with pauses between failures."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from shmq.host.supervision.heartbeat import Heartbeat, is_stopped
from shmq.host.supervision.signals import SHOW_STACK, blocked_signals
from shmq.native import _clock as time
from shmq.native._core import reserve_standard
from shmq.native.descriptors import fill_standard

# Spawned, not forked: the supervisor's program may have threads.
_SPAWN = multiprocessing.get_context("spawn")

#: A process that died sooner than this after its start died at once, in seconds.
AT_ONCE: Final = 5.0
#: The pause after the second such death in a row, in seconds; doubled each time.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
#: How often the heartbeat is checked, in seconds. A supervisor that was stopped itself missed
#: beats: so one check counts for at most twice this time.
LOOK: Final = 1.0
#: How long a process may take to its first beat, in seconds: it loads its modules first. The time
#: in which it is stopped counts as silence instead.
_BEGINNING: Final = 60.0
#: How long a process has to write its stacks, in seconds.
_LAST_WORDS: Final = 0.5


class ChildProcess:
    """A process that is replaced when it ends.

    It calls ``target`` with what ``arguments()`` returns at each start. ``expected`` are the
    exit codes that are no failure; after one of ``renewed`` the next process starts at once.
    ``who`` is its name in the log. A process whose `heartbeat` is stopped for too long is
    killed: see `look`.
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
        #: When to start a process, on the monotonic clock; None: none has to be started.
        self.due: float | None = 0.0
        #: The heartbeat of its process.
        self.heartbeat = Heartbeat()
        self._count = self._first = 0
        self._looked_at = self._silent_for = self._loads_for = 0.0
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
        """Start a process; return false on failure, which is tried again when `due`.

        The process gets no signal before it is ready for it.
        """
        fill_standard()  # the child inherits them
        multiprocessing.resource_tracker.ensure_running()  # its start unblocks signals
        self._started_at = time.monotonic()
        try:
            process = _SPAWN.Process(target=self._target, args=self._arguments(), name=self.who)
            with blocked_signals():
                process.start()
        except OSError as error:  # out of processes, memory or descriptors
            self._log.error("%s cannot be started: %s", self.who, error)
            self._pause()
            return False
        self.process = process
        self.due = None
        self._ending = False
        self._reset_heartbeat()
        self._log.info("%s started, pid %s", self.who, process.pid)
        return True

    def send(self, number: int) -> None:
        """Send its process a signal, if there is one."""
        if self.process is not None and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def reap(self) -> int | None:
        """Collect the process if it has ended; returns its exit code, else None."""
        if self.process is None or self.process.exitcode is None:
            return None
        code, pid = self.process.exitcode, self.process.pid
        self.process.close()
        self.process = None
        ended = code in self._expected or (self._ending and code == -signal.SIGTERM)
        if not ended:
            self._log.error("%s died, pid %s: %s", self.who, pid, _describe(code))
        return code

    def replace(self, code: int) -> None:
        """Schedule a successor: at once, or after a pause if the processes keep dying."""
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

    # ---- heartbeat ----

    def _reset_heartbeat(self) -> None:
        self._count = self._first = self.heartbeat.count
        self._silent_for = self._loads_for = 0.0
        self._looked_at = time.monotonic()
        self._kill_at = None

    @property
    def is_well(self) -> bool:
        """Whether its process, if there is one, has not missed its heartbeat."""
        return self.process is None or self._kill_at is None

    def look(self, limit: float) -> None:
        """Kill the process if its heartbeat stood still for ``limit`` seconds; logs its stack.

        The supervisor calls this about every `LOOK`.
        """
        now = time.monotonic()
        if self.process is None or now - self._looked_at < LOOK / 2:
            return
        passed, self._looked_at = min(now - self._looked_at, 2 * LOOK), now
        if self._kill_at is not None:
            if now >= self._kill_at:
                self.process.kill()
            return
        self._count_silence(self.process, passed)
        if self._silent_for > limit or self._loads_for > max(limit, _BEGINNING):
            self._kill_silent(self.process)

    def _count_silence(self, process: SpawnProcess, passed: float) -> None:
        assert process.pid is not None
        count = self.heartbeat.count
        if count != self._count:
            self._silent_for = self._loads_for = 0.0
        elif count == self._first and not is_stopped(process.pid):
            self._loads_for += passed
        else:
            self._silent_for += passed
        self._count = count

    def _kill_silent(self, process: SpawnProcess) -> None:
        assert process.pid is not None
        stopped = is_stopped(process.pid)
        self._log.error(
            "%s, pid %s, has missed its heartbeat for %.1f s, and is killed: %s",
            self.who,
            process.pid,
            self._silent_for + self._loads_for,
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
        """Ask the process to end when it is done; do not replace it. May be called again."""
        self.due = None
        if self.process is not None and not self._ending:
            self._ending = True  # a second SIGTERM could kill a process that is ending
            self.process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        self.due = None
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process.close()
            self.process = None


def kill_all(children: Sequence[ChildProcess]) -> None:
    """End the processes at once, all before one is waited for: none gets what another had."""
    for child in children:
        if child.process is not None:
            child.process.kill()
    for child in children:
        child.kill()


class PipedChildProcess(ChildProcess):
    """A child process with a pipe, of which ``target`` gets one end.

    ``arguments`` is called with that end. Without a process no pipe is opened.
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
        #: The supervisor's end.
        self.pipe: Connection | None = None
        self._other_end: Connection | None = None

        def with_pipe() -> tuple[Any, ...]:
            reserve_standard()
            self.pipe, self._other_end = multiprocessing.Pipe(duplex)
            return arguments(self._other_end)

        super().__init__(who, target, with_pipe, log, **rules)

    def start(self) -> bool:
        started = super().start()
        if self._other_end is not None:
            self._other_end.close()
            self._other_end = None
        if not started:
            self.close_pipe()
        return started

    def reap(self) -> int | None:
        # Receives the last messages of the process first.
        code = super().reap()
        if code is not None:
            self.receive()
            self.close_pipe()
        return code

    def receive(self) -> None:
        """Receive messages from the process."""
        try:
            while self.pipe is not None and self.pipe.poll():
                self.received(self.pipe.recv())
        except (EOFError, OSError):
            self.close_pipe()

    def received(self, said: Any) -> None:
        """Handle a message of the process; for a subclass."""

    def close_pipe(self) -> None:
        """Close the supervisor's end."""
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class WakeupPipe:
    """A pipe to wait on. Signal handlers and other threads may write to it."""

    def __init__(self) -> None:
        reserve_standard()
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._writing = threading.RLock()  # a signal may arrive during `give`

    def fileno(self) -> int:
        """The descriptor that is readable from `give` until `clear`."""
        return self._read_end

    def give(self) -> None:
        """Wake the waiter. After `close` it does nothing."""
        with self._writing, contextlib.suppress(BlockingIOError):
            if self._write_end >= 0:
                os.write(self._write_end, b"!")

    def clear(self) -> None:
        """Empty the pipe, before the waiter checks what has changed."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read_end, 4096):
                continue

    def close(self) -> None:
        """Close the pipe."""
        with self._writing:
            os.close(self._read_end)
            os.close(self._write_end)
            self._write_end = -1
