"""Signals of a supervisor, of its processes, and of a command: what ends them, and how."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

#: What ends a supervisor: Ctrl-C, a service manager, a terminal that is closed.
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The signal at which a process writes the stacks of its threads to stderr.
SHOW_STACK: Final = signal.SIGUSR2


@contextlib.contextmanager
def caught(tell: Callable[[int], None]) -> Iterator[None]:
    """Call ``tell`` with the number of each signal that arrives within this block.

    A signal that the process ignored at its start stays ignored. Only the main thread can
    catch signals: in another one this does nothing.
    """
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for ending in ENDING:
                if signal.getsignal(ending) is not signal.SIG_IGN:
                    before[ending] = signal.signal(ending, lambda number, _: tell(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def blocked_signals() -> Iterator[None]:
    """Block `ENDING` and `SHOW_STACK`, for this thread and a process that it starts meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, SHOW_STACK))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ended_by(number: int) -> BaseException:
    """What to raise for the signal, so that the process ends with the code a shell expects."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def handle_sigterm(drain: Callable[[], None]) -> None:
    """In a worker: SIGTERM calls ``drain``; the terminal's SIGINT and SIGHUP are ignored.

    Signals that were blocked since the process was started are delivered now.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: drain())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when ``parent`` ends.

    prctl(2), PR_SET_PDEATHSIG: this also works if the parent was killed, and if the child never
    gets to run Python. It refers to the thread of the parent that started this process, so that
    thread must live as long. If the parent has already ended, the signal is sent here.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_PDEATHSIG): {os.strerror(code)}")
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class Stop:
    """While it is entered, the first signal only sets :attr:`signal`.

    So no step is interrupted between moving a message and counting it. Within
    :meth:`interruptible`, and from the second signal on, KeyboardInterrupt is raised. A signal
    that the process was started to ignore stays ignored.
    """

    def __init__(self) -> None:
        #: The number of the signal that came, or 0.
        self.signal = 0
        self._raising = False
        self._before: dict[int, Any] = {}

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal that comes, or has come, raise KeyboardInterrupt in this block."""
        self._raising = True
        try:
            if self.signal:
                raise KeyboardInterrupt
            yield
        finally:
            self._raising = False

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, _: FrameType | None) -> None:
        raising = self._raising or self.signal
        self.signal = self.signal or number
        if raising:
            raise KeyboardInterrupt
