"""A producer's progress, on disk, where it survives the loss of the machine."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, Self

# Fits one sector: after a power cut the file has either the old number or the new one.
_NUMBER: Final = struct.Struct("<Q")


class Checkpoint:
    """How many of a producer's flights are known to be in the queue's journal. A context manager.

    The number is on disk before `note` returns. Each producer has a file in ``folder``, named
    by its ``share``.
    """

    def __init__(self, folder: Path, share: int) -> None:
        self._folder = folder
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(folder / f"producer-{share + 1}.checkpoint", flags, 0o600)
        raw = os.pread(self._file, _NUMBER.size, 0)
        #: Whether an earlier process of the producer has begun here.
        self.resumed = len(raw) == _NUMBER.size
        self.flights: int = _NUMBER.unpack(raw)[0] if self.resumed else 0

    def begin(self) -> None:
        """Make the file, for a later process to find. Call it before the first put."""
        if not self.resumed:
            self.note(0)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)  # makes the file's name durable, too
            finally:
                os.close(folder)

    def note(self, flights: int) -> None:
        """Store ``flights`` as the new number."""
        os.pwrite(self._file, _NUMBER.pack(flights), 0)
        os.fdatasync(self._file)
        self.flights = flights

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)
