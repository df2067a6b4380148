"""Ctrl-C and SIGTERM as a request to stop, which a loop checks between two steps."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Stop"]


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
