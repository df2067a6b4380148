"""The time limit of a call that is made of several requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

from shmq.native import _clock as time

#: Until when, on time.monotonic(), the requests of a call reconnect; None: for request_timeout.
LIMIT: Final[ContextVar[float | None]] = ContextVar("shmq_reconnects_until", default=None)


@contextlib.contextmanager
def limit_reconnects(timeout: float | None) -> Iterator[float | None]:
    """Let requests in the block reconnect for ``timeout`` seconds at most; None: as usual.

    Gives the monotonic time at which the timeout ends.
    """
    before = LIMIT.get()
    until = None if timeout is None else time.monotonic() + timeout
    LIMIT.set(until)
    try:
        yield until
    finally:
        LIMIT.set(before)  # not reset(): an abandoned coroutine is closed in another context
