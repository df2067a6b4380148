"""The progress of a long read, a backup or a restore, reported to a callback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

#: Called with the name of the step, the bytes that are done, and those of all; 0: unknown.
Report: TypeAlias = Callable[[str, int, int], None]
#: Called with how many more bytes are done.
OnProgress: TypeAlias = Callable[[int], object]


def silent(step: str, done: int, total: int) -> None:
    """The report that shows nothing."""


def bytes_of(paths: Iterable[Path]) -> int:
    """The bytes of the files; those that cannot be read count as none."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


class Step:
    """One step, whose bytes are counted."""

    def __init__(self, report: Report, name: str, total: int = 0) -> None:
        self._report, self._name, self._total = report, name, total
        self._done = 0
        report(name, 0, total)

    def add(self, count: int) -> None:
        """So many more bytes are done."""
        self._done += count
        self._report(self._name, self._done, self._total)

    @contextlib.contextmanager
    def part(self, count: int) -> Iterator[OnProgress]:
        """The next ``count`` bytes, all of which are done when the block ends.

        The block calls what this yields with how many more of them are done.
        """
        behind = self._done + count
        yield lambda more: self.add(min(more, behind - self._done))
        self.add(behind - self._done)
