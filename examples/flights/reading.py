"""What a group has read, in the order of the stream, each record once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.flights.tally import Sums

__all__ = ["Reading"]


class Reading:
    """The sums of a group's readings by a flight's carrier, or its hour.

    A partition's readings come in the order of their offsets, some of them again: what was
    read by a member that was killed before it had committed. So whatever lies below the
    offset that comes next was counted, and what lies beyond it shows a gap.
    """

    def __init__(self, key: Callable[[str, int], object]) -> None:
        """Summed up by what ``key`` makes of a carrier and an hour."""
        self.sums: dict[object, Sums] = {}
        #: Flights counted, each once.
        self.counted = 0
        #: Flights left out, as they had been counted.
        self.repeated = 0
        #: What no group may see, a line each.
        self.faults: list[str] = []
        self._key = key
        self._next: dict[int, int] = {}
        self._newest: dict[str, tuple[int, int]] = {}

    def add(self, partition: int, first: int, bodies: list[list[Any]]) -> None:
        """Count the flights that one member has read together."""
        following = self._next.get(partition, 0)
        if first > following:
            self.faults.append(f"partition {partition}: offsets {following} to {first} are missing")
        known = min(len(bodies), max(0, following - first))
        self.repeated += known
        for number, carrier, hour, late, *delays in bodies[known:]:
            self._check_order(partition, carrier, number)
            self.sums.setdefault(self._key(carrier, hour), Sums()).count(late, *delays)
        self.counted += len(bodies) - known
        self._next[partition] = max(following, first + len(bodies))

    def _check_order(self, partition: int, carrier: str, number: int) -> None:
        """A carrier's flights are in one partition, in the order of the file."""
        before = self._newest.get(carrier, (partition, -1))
        if before[0] != partition or before[1] >= number:
            self.faults.append(
                f"carrier {carrier}: flight {number} of partition {partition} came after "
                f"{before[1]} of partition {before[0]}"
            )
        self._newest[carrier] = partition, number
