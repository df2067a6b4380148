"""Single keys from the terminal, as they are pressed."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any, Self

__all__ = ["Keys"]


class Keys:
    """While it is entered, the terminal gives keys one by one and does not echo them.

    Where standard input is no terminal there are none. Ctrl-C remains a signal.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._before: list[Any] = []

    def wait(self, seconds: float) -> str:
        """The next key, or "" if none was pressed in that time."""
        if self._fd < 0:
            time.sleep(seconds)
            return ""
        if not select.select([self._fd], [], [], seconds)[0]:
            return ""
        pressed = os.read(self._fd, 1)
        if not pressed:  # the terminal is gone
            self._fd = -1
        return pressed.decode("latin-1")

    def __enter__(self) -> Self:
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
        if self._fd >= 0:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
