"""What a worker did, in a file that a SIGKILL cannot tear: one write(2) a record."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<BxxxIQQQ")

#: A put is about to be made; it was made; a message was delivered; an ack is about to be
#: made; it was made; a message is about to be given back.
INTENT, PUT, GOT, ACKING, ACKED, RETURNED = range(6)


class Record(NamedTuple):
    """One step with a message: ``at`` in monotonic ns, the same clock for all processes."""

    kind: int
    worker: int
    message: int
    sequence: int
    at: int


class Journal:
    """The records of one worker."""

    def __init__(self, directory: Path, worker: int) -> None:
        self._worker = worker
        path = directory / f"{worker}.journal"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: int, message: int, sequence: int = 0) -> None:
        """Append one record."""
        at = time.monotonic_ns()
        os.write(self._fd, _RECORD.pack(kind, self._worker, message, sequence, at))


def read_all(directory: Path) -> Iterator[Record]:
    """The records of all workers, in the order of their times."""
    records = [
        Record(*row)
        for path in directory.glob("*.journal")
        for row in _RECORD.iter_unpack(path.read_bytes())
    ]
    return iter(sorted(records, key=lambda record: record.at))
