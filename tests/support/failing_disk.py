"""Disks that fail: at one call, for some calls, or only in part."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from tests.support.stepwise_disk import StepwiseDisk


class FailingDisk(StepwiseDisk):
    """Counts the calls that change something, and fails those in ``failing``.

    A failed write has written half of its bytes; a failed sync may have synced nothing.
    """

    def __init__(self, directory: Path, failing: range = range(0), code: int = errno.EIO) -> None:
        super().__init__(directory)
        self.failing = failing
        self.code = code
        self.calls = 0
        self.refused: list[str] = []

    def _count(self, what: str) -> None:
        if self._is_to_fail():
            self.refused.append(what)
            raise OSError(self.code, os.strerror(self.code))

    def _is_to_fail(self) -> bool:
        self.calls += 1
        return self.calls in self.failing

    def create(self, name: str) -> int:
        self._count("create")
        return super().create(name)

    def write(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        if self._is_to_fail():
            self.refused.append("write")
            whole = b"".join(pieces)
            super().write(file, [whole[: len(whole) // 2]], offset)
            raise OSError(self.code, os.strerror(self.code))
        return super().write(file, pieces, offset)

    def truncate(self, file: int, length: int) -> None:
        self._count("truncate")
        super().truncate(file, length)

    def sync(self, file: int) -> None:
        self._count("sync")
        super().sync(file)

    def rename(self, old: str, new: str) -> None:
        self._count("rename")
        super().rename(old, new)

    def unlink(self, name: str) -> None:
        self._count("unlink")
        super().unlink(name)

    def sync_directory(self) -> None:
        self._count("sync_directory")
        super().sync_directory()


class ShortDisk(StepwiseDisk):
    """Writes a few bytes at a time."""

    most = 7

    def write(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        return super().write(file, [memoryview(pieces[0])[: self.most]], offset)
