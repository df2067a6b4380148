"""How many puts of this process wait for room in a remote queue, by trying again."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator

__all__ = ["Key", "count", "waiting"]

#: The server's URL, the namespace, and the queue's name.
Key = tuple[str, str, str]

_counts: collections.Counter[Key] = collections.Counter()
_lock = threading.Lock()


@contextlib.contextmanager
def waiting(key: Key) -> Iterator[None]:
    """A put waits for the length of the block."""
    with _lock:
        _counts[key] += 1
    try:
        yield
    finally:
        with _lock:
            _counts[key] -= 1
            if not _counts[key]:
                del _counts[key]


def count(key: Key) -> int:
    """How many wait."""
    with _lock:
        return _counts[key]
