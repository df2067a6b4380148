"""Handling of the signals that end a supervisor and its processes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["ENDING", "caught", "held_back", "leave_to_the_supervisor"]

#: What ends a supervisor: Ctrl-C, a service manager, a terminal that is closed.
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
def held_back() -> Iterator[None]:
    """Block the signals, for this thread and for a process that it starts meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_the_supervisor(drain: Callable[[], None]) -> None:
    """In a worker: SIGTERM calls ``drain``; the terminal's SIGINT and SIGHUP are ignored.

    Signals that were blocked since the process was started are delivered now.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: drain())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
