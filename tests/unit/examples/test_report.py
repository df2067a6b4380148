"""The table, and the check that it has to pass."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from rich.console import Console

import shmq
from examples.flights.command import conclude
from examples.flights.flights import Flight
from examples.flights.job import Outcome
from examples.flights.ledger import Ledger
from examples.flights.machine import Loss
from examples.flights.report import direct_delays, direct_sums, table
from examples.flights.tally import Sums, Tally

FLOWN = [Flight(0, "UA", "N1", 5, 2, 3), Flight(1, "UA", None, 6, None, None)]
NAMES = {"UA": "United Air Lines Inc."}


def stats(**changes: Any) -> shmq.QueueStats:
    """The statistics of a queue through which two messages went."""
    fields: dict[str, Any] = {field.name: 0 for field in dataclasses.fields(shmq.QueueStats)}
    return shmq.QueueStats(**(fields | {"name": "flights", "put": 2, "acked": 2} | changes))


def outcome(
    counted: list[Flight],
    *,
    killed: tuple[str, ...] = ("consumer 1",),
    loss: Loss | None = None,
    **changes: Any,
) -> Outcome:
    """A run that counted these flights and left these statistics."""
    ledger = Ledger(len(FLOWN))
    for flight in counted:
        tally = Tally()
        tally.count(flight.number, flight.carrier, flight.hour, flight.late, *flight.delays)
        ledger.add(tally)
    return Outcome(ledger, stats(**changes), seconds=0.5, killed=killed, remote=1, loss=loss)


def lost(*, to_put: int = 1, put_again: int = 1, **changes: Any) -> Loss:
    """A loss after which one of both was there, and one to be put."""
    back = stats(**({"put": 20, "acked": 19, "depth": 1} | changes))
    return Loss(held=2, stats=back, seconds=0.25, to_put=to_put, put_again=put_again)


def concluded(run: Outcome) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=80)
    code = conclude(console, run, direct_sums(FLOWN), NAMES, direct_delays(FLOWN))
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_the_direct_sums_are_those_of_the_flights() -> None:
    assert direct_sums(FLOWN) == {"UA": Sums(2, 0, 1, 2, 1, 3)}


def test_a_run_that_counted_all_says_so_under_its_table() -> None:
    code, printed = concluded(outcome(FLOWN))
    assert code == 0
    assert "UA United Air Lines Inc." in printed
    assert (
        "2 acknowledged, none lost\n1 of them read over TCP; 0 delivered again after the" in printed
    )


def test_what_was_lost_has_a_line_of_its_own() -> None:
    code, printed = concluded(outcome(FLOWN, loss=lost(), put=21, acked=21))
    assert code == 0
    assert (
        "none lost\nshared memory lost with 2 in the queue: 1 came back from its journal in "
        "0.25 s, 1 were put again\n1 of them read" in printed
    )


def test_a_total_left_one_behind_by_a_recovered_death_is_no_fault() -> None:
    assert concluded(outcome(FLOWN, acked=1, recoveries=1))[0] == 0
    two = outcome(FLOWN, acked=0, recoveries=2, killed=("consumer 1", "a front end"))
    assert concluded(two)[0] == 0
    assert "delivered again after the kills" in concluded(two)[1]


def test_without_a_kill_no_total_may_be_behind() -> None:
    assert concluded(outcome(FLOWN, acked=1, recoveries=1, killed=()))[0] == 1


def test_the_table_with_its_longest_name_fits_into_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    sums = Sums(336_776, 99_999, 336_776, -(10**7), 336_776, 10**7)
    name = "AirTran Airways Corporation"
    console.print(table({"FL": sums}, {"FL": name}))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    for whole in (f"FL {name}", "cancelled", "mean dep.", "mean arr.", "336,776", "-29.69"):
        assert whole in printed


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        (outcome(FLOWN[:1]), "1 flights were never counted, first number 1"),
        (outcome(FLOWN[:1]), "carrier UA"),
        (outcome([FLOWN[0], FLOWN[1]._replace(carrier="DL")]), "carrier DL"),
        (outcome([FLOWN[0]._replace(arrival_delay=4), FLOWN[1]]), "carrier UA"),
        (outcome(FLOWN, in_flight=1), "1 messages are left in the queue"),
        (outcome(FLOWN, delayed=1), "1 messages are left in the queue"),
        (outcome(FLOWN, dropped=1), "1 dropped"),
        (outcome(FLOWN, put=3), "3 messages were put for 2 flights"),
        (outcome(FLOWN, acked=1), "1 messages were acknowledged of 2"),
        (outcome(FLOWN, acked=0, recoveries=2), "0 messages were acknowledged of 2"),
        (outcome(FLOWN, acked=3, recoveries=1), "3 messages were acknowledged of 2"),
        (outcome(FLOWN, loss=lost(), put=22, acked=21), "2 messages were put for 1"),
        (
            outcome(FLOWN, loss=lost(to_put=2), put=22, acked=21),
            "2 messages were acknowledged of 3",
        ),
    ],
)
def test_whatever_is_wrong_is_said_and_the_exit_code_is_1(
    run: Outcome, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = concluded(run)
    assert code == 1
    assert "none lost" not in printed
    assert f"check failed: {fault}" in capsys.readouterr().err
