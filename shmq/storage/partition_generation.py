"""A generation of a stream: the partitions that were created together.

The first generation is created with the stream, and each repartition adds one. Records are
appended to the last one; the others are sealed, and have the older records of the same keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Generation", "PartitionOfGeneration", "eras_among", "eras_of"]


@dataclass(frozen=True, slots=True)
class Generation:
    """The ``count`` partitions from ``begin`` on."""

    begin: int
    count: int
    #: When they were created, in ns since 1970; 0: with the stream.
    made: int = 0

    @property
    def end(self) -> int:
        """The partition behind the last one."""
        return self.begin + self.count

    @property
    def partitions(self) -> range:
        """Its partitions."""
        return range(self.begin, self.end)


class PartitionOfGeneration(Protocol):
    """What a partition in shared memory says about its generation."""

    @property
    def behind(self) -> int:
        """The first partition of its generation."""

    @property
    def created_at(self) -> int:
        """When it was created, in ns since 1970."""


def eras_of(counts: Iterable[tuple[int, int]]) -> list[Generation]:
    """The generations with these numbers of partitions and creation times."""
    found: list[Generation] = []
    for count, made in counts:
        found.append(Generation(found[-1].end if found else 0, count, made))
    return found


def eras_among(partitions: Iterable[PartitionOfGeneration]) -> list[Generation]:
    """The generations of a stream with these partitions, in order."""
    counts: dict[int, tuple[int, int]] = {}
    for one in partitions:
        count, made = counts.get(one.behind, (0, one.created_at if one.behind else 0))
        counts[one.behind] = count + 1, made
    return eras_of(counts.values())
