"""Adding up, and counting each flight once."""

from __future__ import annotations

import pytest

from examples.flights.ledger import Ledger
from examples.flights.tally import Sums, Tally


def tally(*numbers: int, again: bool = False) -> Tally:
    """A tally of UA flights, each as many minutes late as its number."""
    made = Tally(again)
    for number in numbers:
        made.count(number, "UA", number % 24, False, number, number)
    return made


def test_sums_count_a_cancelled_flight_without_any_delay() -> None:
    sums = Sums()
    sums.count(True, 30, 20)
    sums.count(False, -10, None)
    sums.count(False, None, None)
    assert sums == Sums(
        flights=3, late=1, departed=2, departure_minutes=20, arrived=1, arrival_minutes=20
    )
    assert sums.mean_departure_delay == 10.0
    assert Sums().mean_arrival_delay is None


def test_a_tally_is_the_same_after_it_was_packed() -> None:
    made = tally(1, 70_000, again=True)
    made.count(2, "DL", 23, True, None, -3)
    assert Tally.unpacked(made.packed()) == made


def test_new_flights_are_counted() -> None:
    ledger = Ledger(5)
    ledger.add(tally(0, 3))
    ledger.add(tally(4, again=True))
    assert (ledger.counted, ledger.again, ledger.repeated, ledger.torn) == (3, 1, 0, 0)
    assert ledger.carriers["UA"].departure_minutes == 7
    assert ledger.missing() == [1, 2]
    assert not ledger.complete


def test_flights_counted_before_are_left_out_and_said_to_be_repeated() -> None:
    ledger = Ledger(2)
    ledger.add(tally(0, 1))
    ledger.add(tally(1, again=True))
    assert (ledger.counted, ledger.again, ledger.repeated, ledger.torn) == (2, 1, 1, 0)
    assert ledger.carriers["UA"] == Sums(2, 0, 2, 1, 2, 1)
    assert ledger.complete


@pytest.mark.parametrize("numbers", [(0, 1), (1, 1)])
def test_a_tally_that_holds_old_and_new_flights_is_never_counted_in_part(
    numbers: tuple[int, ...],
) -> None:
    ledger = Ledger(2)
    ledger.add(tally(0))
    ledger.add(tally(*numbers))
    assert (ledger.counted, ledger.torn) == (1, 1)
    assert ledger.carriers["UA"].flights == 1


def test_a_number_that_no_flight_has_is_an_error() -> None:
    with pytest.raises(IndexError):
        Ledger(2).add(tally(2))
