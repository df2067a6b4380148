"""Waiting for an event: no test depends on a thread or a process being on time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

#: How long a test waits for an expected event, in seconds; only a failure takes this long.
PATIENCE = 120.0


def eventually(
    condition: Callable[[], bool], what: str, patience: float = PATIENCE, pause: float = 0.002
) -> None:
    """Return once ``condition()`` holds; fail with ``what`` if that takes too long."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(pause)


def until_interrupted() -> NoReturn:
    """Wait until a signal's handler raises.

    signal.pause() would miss a signal that comes right before it, whose handler Python runs later.
    """
    while True:
        time.sleep(0.01)
