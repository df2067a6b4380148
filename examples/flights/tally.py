"""What a consumer has added up, and which flights are in it."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterator
from typing import Any, Final, Self

__all__ = ["RESULT", "Sums", "Tally"]

#: What a flight's result is made of.
RESULT: Final = ("flight", "carrier", "hour", "departure", "arrival")


@dataclasses.dataclass(slots=True)
class Sums:
    """One carrier's flights and delays. Whole numbers: any order of adding is exact."""

    flights: int = 0
    #: Flights at high priority: 15 minutes or more behind their time.
    late: int = 0
    departed: int = 0
    departure_minutes: int = 0
    arrived: int = 0
    arrival_minutes: int = 0

    def count(self, late: bool, departure: int | None, arrival: int | None) -> None:
        """Add one flight, with its delays in minutes or None."""
        self.flights += 1
        self.late += late
        if departure is not None:
            self.departed += 1
            self.departure_minutes += departure
        if arrival is not None:
            self.arrived += 1
            self.arrival_minutes += arrival

    def add(self, other: Sums) -> None:
        """Add the ``other`` sums to these."""
        self.flights += other.flights
        self.late += other.late
        self.departed += other.departed
        self.departure_minutes += other.departure_minutes
        self.arrived += other.arrived
        self.arrival_minutes += other.arrival_minutes

    @property
    def mean_departure_delay(self) -> float | None:
        """In minutes, over the flights that left; None if none did."""
        return self.departure_minutes / self.departed if self.departed else None

    @property
    def mean_arrival_delay(self) -> float | None:
        """In minutes, over the flights that arrived; None if none did."""
        return self.arrival_minutes / self.arrived if self.arrived else None


@dataclasses.dataclass(slots=True)
class Tally:
    """Sums per carrier together with the numbers of the flights that they cover.

    Invariant: the sums are those of exactly these flights, so a tally can be counted
    whole or left out whole, and never in part.
    """

    #: Whether its flights had been delivered before.
    again: bool = False
    numbers: array[int] = dataclasses.field(default_factory=lambda: array("I"))
    carriers: dict[str, Sums] = dataclasses.field(default_factory=dict)
    #: Of each flight, as the numbers are: its carrier, the hour it was to leave, its delays.
    details: list[list[Any]] = dataclasses.field(default_factory=list)

    def count(
        self,
        number: int,
        carrier: str,
        hour: int,
        late: bool,
        departure: int | None,
        arrival: int | None,
    ) -> None:
        """Add the flight ``number``."""
        self.numbers.append(number)
        self.details.append([carrier, hour, departure, arrival])
        sums = self.carriers.get(carrier)
        if sums is None:
            sums = self.carriers[carrier] = Sums()
        sums.count(late, departure, arrival)

    def packed(self) -> list[Any]:
        """The tally as plain values that msgpack holds."""
        carriers = {code: dataclasses.astuple(sums) for code, sums in self.carriers.items()}
        return [self.again, self.numbers.tobytes(), carriers, self.details]

    def results(self) -> Iterator[dict[str, Any]]:
        """What is known of each flight, by name."""
        for number, details in zip(self.numbers, self.details, strict=True):
            yield dict(zip(RESULT, (number, *details), strict=True))

    @classmethod
    def unpacked(cls, values: list[Any]) -> Self:
        """The tally out of what :meth:`packed` made."""
        again, numbers, carriers, details = values
        sums = {code: Sums(*fields) for code, fields in carriers.items()}
        return cls(again, array("I", numbers), sums, details)
