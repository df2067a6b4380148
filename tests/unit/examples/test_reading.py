"""What a group has read: each record once, in order, and faults where it is not so."""

from __future__ import annotations

from typing import Any

import pytest

from examples.flights.groups import Grouped
from examples.flights.reading import Reading
from examples.flights.report import group_faults
from examples.flights.tally import Sums

FLIGHTS: list[list[Any]] = [[0, "UA", 5, True, 20, 3], [1, "UA", 6, False, None, None]]


@pytest.fixture
def reading() -> Reading:
    """By carrier."""
    return Reading(lambda carrier, _: carrier)


def test_what_a_dead_member_had_handed_over_counts_once(reading: Reading) -> None:
    reading.add(0, 0, FLIGHTS[:1])
    reading.add(0, 0, FLIGHTS)
    assert (reading.counted, reading.repeated, reading.faults) == (2, 1, [])
    assert reading.sums == {"UA": Sums(2, 1, 1, 20, 1, 3)}


def test_all_of_it_may_have_been_counted(reading: Reading) -> None:
    reading.add(0, 0, FLIGHTS)
    reading.add(0, 0, FLIGHTS[:1])
    reading.add(0, 2, [[2, "UA", 7, False, 1, 1]])
    assert (reading.counted, reading.repeated, reading.faults) == (3, 1, [])


def test_a_gap_is_a_fault(reading: Reading) -> None:
    reading.add(3, 1, FLIGHTS[1:])
    assert reading.faults == ["partition 3: offsets 0 to 1 are missing"]


@pytest.mark.parametrize(("partition", "first"), [(0, 1), (1, 0)])
def test_a_carrier_out_of_order_or_in_two_partitions_is_a_fault(
    reading: Reading, partition: int, first: int
) -> None:
    reading.add(0, 0, FLIGHTS[1:])
    reading.add(partition, first, FLIGHTS[:1])
    (fault,) = reading.faults
    assert fault == f"carrier UA: flight 0 of partition {partition} came after 1 of partition 0"


def test_sums_that_are_not_the_files_are_a_fault(reading: Reading) -> None:
    reading.add(0, 0, FLIGHTS)
    grouped = Grouped({"by-carrier": reading}, killed=0, seconds=1.0)
    cells = {("UA", 5): Sums(1, 1, 1, 20, 1, 3), ("UA", 6): Sums(1)}
    assert group_faults(grouped, cells) == []
    (fault,) = group_faults(grouped, {("UA", 5): Sums(1, 1, 1, 20, 1, 3)})
    assert fault.startswith("group by-carrier: Sums(")
    assert "of UA are not the file's Sums(" in fault
