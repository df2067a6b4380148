"""The time limit of a call that is made of several requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

#: Until when, on time.monotonic(), the requests of a call reconnect; None: for request_timeout.
LIMIT: Final[ContextVar[float | None]] = ContextVar("shmq_reconnects_until", default=None)


@contextlib.contextmanager
def limit_reconnects(until: float | None) -> Iterator[None]:
    """Let requests in the block reconnect until ``until`` (monotonic) at most; None: as usual."""
    before = LIMIT.get()
    LIMIT.set(until)
    try:
        yield
    finally:
        LIMIT.set(before)  # not reset(): an abandoned coroutine is closed in another context
