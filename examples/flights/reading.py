"""A group's readings, in the order of the stream, each record once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.flights.tally import Sums


class Reading:
    """The sums of a group's readings by a flight's carrier or hour.

    The readings of a partition come in the order of their offsets. Some come again: those of a
    member that was killed before it committed. So an offset below the next expected one was
    counted already, and an offset above it reveals a gap.
    """

    def __init__(self, key: Callable[[str, int], object]) -> None:
        """Sum by the key that ``key`` makes from a carrier and an hour."""
        self.sums: dict[object, Sums] = {}
        #: Flights counted, each once.
        self.counted = 0
        #: Flights left out because they had been counted.
        self.repeated = 0
        #: Violations of the order, a line each.
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
        """Check that a carrier's flights are in one partition, in the order of the file."""
        before = self._newest.get(carrier, (partition, -1))
        if before[0] != partition or before[1] >= number:
            self.faults.append(
                f"carrier {carrier}: flight {number} of partition {partition} came after "
                f"{before[1]} of partition {before[0]}"
            )
        self._newest[carrier] = partition, number
