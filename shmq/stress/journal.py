"""What a worker did, in a file that a SIGKILL cannot tear: one write(2) a step.

A record is 16 bytes and never crosses a page, so that a write that is cut short by a death
ends between two of them.
"""

from __future__ import annotations

import heapq
import os
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = [
    "ACKED",
    "ACKING",
    "GOT",
    "INTENT",
    "NUMBER_BITS",
    "PUT",
    "RETURNED",
    "Journal",
    "Record",
    "read",
    "read_all",
    "worker_of",
]

#: kind << 61 | message, and the time.
_RECORD = struct.Struct("<QQ")
_KIND_SHIFT: Final = 61
_MESSAGE: Final = (1 << _KIND_SHIFT) - 1

#: A message is called producer << 32 | its number among the messages of that producer.
NUMBER_BITS: Final = 32

#: A put is about to be made; it was made; a message was delivered; an ack is about to be
#: made; it was made; a message is about to be given back.
INTENT, PUT, GOT, ACKING, ACKED, RETURNED = range(6)


class Record(NamedTuple):
    """One step with a message: ``at`` in monotonic ns, the same clock for all processes."""

    at: int
    worker: int
    kind: int
    message: int


class Journal:
    """The records of one worker. ``kept`` bytes may wait in memory, where no kill is due."""

    def __init__(self, directory: Path, worker: int, kept: int = 0) -> None:
        path = directory / f"{worker}.journal"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._kept = kept
        self._waiting = bytearray()

    def write(self, kind: int, *messages: int) -> None:
        """Append a record for each of the messages, all of this moment."""
        self.write_at(time.monotonic_ns(), kind, messages)

    def write_at(self, at: int, kind: int, messages: Iterable[int]) -> None:
        """Append a record for each of the messages, all of the moment ``at``."""
        first = kind << _KIND_SHIFT
        waiting = self._waiting
        for message in messages:
            waiting += _RECORD.pack(first | message, at)
        if len(waiting) > self._kept:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        os.write(self._fd, self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.flush()
        os.close(self._fd)


def worker_of(path: Path) -> int:
    """Whose journal that is."""
    return int(path.stem)


def read(path: Path) -> Iterator[Record]:
    """The records of one worker, in the order of their times."""
    worker = worker_of(path)
    data = path.read_bytes()
    for first, at in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        yield Record(at, worker, first >> _KIND_SHIFT, first & _MESSAGE)


def read_all(directory: Path) -> Iterator[Record]:
    """The records of all workers, in the order of their times."""
    return heapq.merge(*(read(path) for path in sorted(directory.glob("*.journal"))))
