"""What a worker did with a stream, in a file that a SIGKILL cannot tear: one write(2) a note.

A note is 32 bytes and never crosses a page, so a write that is cut short by a death ends
between two of them.
"""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from shmq.native.descriptors import open_file

_NOTE = struct.Struct("<IIQQQ")


class Kind(enum.IntEnum):
    """What is noted of a record, or of a partition."""

    #: The message is about to be appended.
    APPENDING = 0
    #: It was appended, as the record of that partition and offset.
    APPENDED = 1
    #: The record was read by a member of the group, and is this message.
    READ = 2
    #: The group is about to commit that offset of the partition.
    COMMITTING = 3


class Note(NamedTuple):
    """One step of the worker ``worker``."""

    kind: Kind
    partition: int
    offset: int
    message: int
    worker: int


class Notes:
    """The notes of one worker, numbered from 1."""

    def __init__(self, directory: Path, worker: int) -> None:
        path = directory / f"{worker}.notes"
        self._worker = worker
        self._fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: Kind, steps: Iterable[tuple[int, int, int]]) -> None:
        """Note (partition, offset, message) of each of the ``steps``."""
        packed = [_NOTE.pack(kind, partition, *what, self._worker) for partition, *what in steps]
        os.write(self._fd, b"".join(packed))


def read_all(directory: Path) -> Iterator[Note]:
    """The notes of all workers, each one's in their order."""
    for path in sorted(directory.glob("*.notes")):
        data = path.read_bytes()
        for kind, partition, offset, message, worker in _NOTE.iter_unpack(
            data[: len(data) // _NOTE.size * _NOTE.size]
        ):
            yield Note(Kind(kind), partition, offset, message, worker)
