"""How a run that is ended early ends: what it has begun to start is known, and ended, too."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

#: The signals that end a run.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_at_signals() -> None:
    """Let SIGTERM end this process as SIGINT does: by an exception, so that all is cleaned up."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """Let a signal that ends the run do so only after the block.

    A process or a folder is made in such a block and noted for its end or removal:
    otherwise a signal in between leaves it behind. The block must be short.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are not handled there
        yield
        return
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    handlers = {each: signal.signal(each, note) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        if came:
            signal.raise_signal(came[0])
