"""The keys of a terminal, and what is drawn on it again and again until one says so."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

from shmq.cli.shared.output import on_a_terminal
from shmq.host.supervision.signals import Stop
from shmq.native._core import reserve_standard

#: The shortest time between two looks, in seconds.
LEAST_INTERVAL: Final = 0.05


def can_be_redrawn() -> bool:
    """Whether standard output is a terminal whose screen can be drawn again."""
    if not on_a_terminal():
        return False
    from rich.console import Console  # noqa: PLC0415 - on a terminal alone

    return not Console().is_dumb_terminal


def until_left(
    screen: AbstractContextManager[Any], interval: float, look: Callable[[str], None]
) -> int:
    """Call ``look`` with the last key again and again, until q or a signal; the exit code.

    The key is "" at first and if none was pressed for ``interval`` seconds. The screen is entered
    when signals are caught already, so that no signal leaves it half set.
    """
    with Stop() as stop, Keyboard() as keys:
        try:
            with screen:
                key = ""
                while key not in {"q", "Q"}:
                    look(key)
                    with stop.interruptible():
                        key = keys.wait(interval)
        except KeyboardInterrupt:
            pass
    # Ctrl-C is a way to leave.
    return 128 + stop.signal if stop.signal not in {0, signal.SIGINT} else 0


class Keyboard:
    """While it is entered, the terminal gives keys one by one and does not echo them.

    Where standard input is not a terminal there are none. Ctrl-C remains a signal. A signal ends a
    wait also if it comes just before it: it writes to a pipe that the wait looks at.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._before: list[Any] = []

    def wait(self, seconds: float) -> str:
        """The next key, or "" if none was pressed in that time."""
        keys = [self._fd] if self._fd >= 0 else []
        ready, _, _ = select.select([self._signalled, *keys], [], [], seconds)
        if self._signalled in ready:
            os.read(self._signalled, 4096)
        if self._fd not in ready:
            return ""
        pressed = os.read(self._fd, 1)
        if not pressed:  # the terminal is gone
            self._fd = -1
        return pressed.decode("latin-1")

    def __enter__(self) -> Self:
        reserve_standard()
        self._signalled, self._signal = os.pipe()
        os.set_blocking(self._signal, False)
        self._wakeup_before = signal.set_wakeup_fd(self._signal, warn_on_full_buffer=False)
        if sys.stdin is not None and sys.stdin.isatty():
            fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(fd)
            tty.setcbreak(fd)
            self._fd = fd
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._signal)
        os.close(self._signalled)
        if self._fd >= 0:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
