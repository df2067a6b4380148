"""How far a producer has come, where it finds it again after the machine was lost."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, Self

__all__ = ["Place"]

# Within one sector: after a power cut there is the old number, or the new one.
_NUMBER: Final = struct.Struct("<Q")


class Place:
    """How many of a producer's flights are known to be in the queue's journal. A context.

    It is on disk before `note` returns. There is one for each producer, numbered by its
    ``share``, in ``folder``.
    """

    def __init__(self, folder: Path, share: int) -> None:
        self._folder = folder
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(folder / f"producer-{share + 1}.place", flags, 0o600)
        raw = os.pread(self._file, _NUMBER.size, 0)
        #: Whether another life of the producer has begun here.
        self.resumed = len(raw) == _NUMBER.size
        self.flights: int = _NUMBER.unpack(raw)[0] if self.resumed else 0

    def begin(self) -> None:
        """Leave a trace that a later life finds; to be called before the first put."""
        if not self.resumed:
            self.note(0)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)  # the file's name, too
            finally:
                os.close(folder)

    def note(self, flights: int) -> None:
        """From now on it is ``flights``."""
        os.pwrite(self._file, _NUMBER.pack(flights), 0)
        os.fdatasync(self._file)
        self.flights = flights

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)
