"""A worker's journal: a file that SIGKILL cannot tear, with one write(2) a step.

A record has 16 bytes and never crosses a page, so a write that a kill cuts short ends between
two records.
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

#: A message's id is producer << 32 | its number among the messages of that producer.
NUMBER_BITS: Final = 32

#: About to put; put; delivered; about to acknowledge; acknowledged; about to give the
#: message back.
INTENT, PUT, GOT, ACKING, ACKED, RETURNED = range(6)


class Record(NamedTuple):
    """One step of a message: ``at`` in monotonic ns, the same clock for all processes."""

    at: int
    worker: int
    kind: int
    message: int


class Journal:
    """The records of one worker. Up to ``kept`` bytes are buffered, for runs without kills."""

    def __init__(self, directory: Path, worker: int, kept: int = 0) -> None:
        path = directory / f"{worker}.journal"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._kept = kept
        self._waiting = bytearray()

    def write(self, kind: int, *messages: int) -> None:
        """Append a record for each of the messages, all with the current time."""
        self.write_at(time.monotonic_ns(), kind, messages)

    def write_at(self, at: int, kind: int, messages: Iterable[int]) -> None:
        """Append a record for each of the messages, all with the time ``at``."""
        first = kind << _KIND_SHIFT
        waiting = self._waiting
        for message in messages:
            waiting += _RECORD.pack(first | message, at)
        if len(waiting) > self._kept:
            self.flush()

    def flush(self) -> None:
        """Write the buffered records."""
        os.write(self._fd, self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        """Write the buffered records and close the file."""
        self.flush()
        os.close(self._fd)


def worker_of(path: Path) -> int:
    """The number of the worker that wrote the journal."""
    return int(path.stem)


def read(path: Path) -> Iterator[Record]:
    """The records of one worker, ordered by time."""
    worker = worker_of(path)
    data = path.read_bytes()
    for first, at in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        yield Record(at, worker, first >> _KIND_SHIFT, first & _MESSAGE)


def read_all(directory: Path) -> Iterator[Record]:
    """The records of all workers, ordered by time."""
    return heapq.merge(*(read(path) for path in sorted(directory.glob("*.journal"))))
