"""An era of a stream: the partitions that were made together.

The first era is made with the stream, and each repartition makes one more. The last one takes
records, those before it are sealed; the keys of an era were in the partitions before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Generation", "PartitionOfGeneration", "eras_among", "eras_of"]


@dataclass(frozen=True, slots=True)
class Generation:
    """Partitions from ``begin`` on, so many."""

    begin: int
    count: int
    #: When they were made, in ns since 1970; 0: with the stream.
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
    """A partition in shared memory, as far as it tells its era: ``_log.Partition``."""

    @property
    def behind(self) -> int:
        """The first partition of its era."""

    @property
    def created_at(self) -> int:
        """When it was made, in ns since 1970."""


def eras_of(counts: Iterable[tuple[int, int]]) -> list[Generation]:
    """The eras that have so many partitions each, and were made then."""
    found: list[Generation] = []
    for count, made in counts:
        found.append(Generation(found[-1].end if found else 0, count, made))
    return found


def eras_among(partitions: Iterable[PartitionOfGeneration]) -> list[Generation]:
    """The eras of a stream that has these partitions, in their order."""
    counts: dict[int, tuple[int, int]] = {}
    for one in partitions:
        count, made = counts.get(one.behind, (0, one.created_at if one.behind else 0))
        counts[one.behind] = count + 1, made
    return eras_of(counts.values())
