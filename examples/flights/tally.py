"""A consumer's sums, with the numbers of their flights."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterator
from typing import Any, Final, Self

#: The fields of a flight's result.
RESULT: Final = ("flight", "carrier", "hour", "departure", "arrival")


@dataclasses.dataclass(slots=True)
class Sums:
    """One carrier's flights and delays, as whole numbers: adding in any order is exact."""

    flights: int = 0
    #: Flights with high priority: 15 minutes or more late.
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

    Invariant: the sums cover exactly these flights, so a tally is counted or left out as a
    whole, never in part.
    """

    #: Whether its flights had been delivered before.
    again: bool = False
    numbers: array[int] = dataclasses.field(default_factory=lambda: array("I"))
    carriers: dict[str, Sums] = dataclasses.field(default_factory=dict)
    #: For each flight, in the order of the numbers: carrier, scheduled hour, delays.
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
        """The tally as plain values for msgpack."""
        carriers = {code: dataclasses.astuple(sums) for code, sums in self.carriers.items()}
        return [self.again, self.numbers.tobytes(), carriers, self.details]

    def results(self) -> Iterator[dict[str, Any]]:
        """The result of each flight, by field name."""
        for number, details in zip(self.numbers, self.details, strict=True):
            yield dict(zip(RESULT, (number, *details), strict=True))

    @classmethod
    def unpacked(cls, values: list[Any]) -> Self:
        """The tally from the values of :meth:`packed`."""
        again, numbers, carriers, details = values
        sums = {code: Sums(*fields) for code, fields in carriers.items()}
        return cls(again, array("I", numbers), sums, details)
