"""The whole job, with its processes, on a table of flights made up here."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import shmq
from examples.flights.errors import DemoError
from examples.flights.flights import read_flights
from examples.flights.groups import read_in_groups
from examples.flights.job import run
from examples.flights.machine import Machine, waiting
from examples.flights.memory import files
from examples.flights.plan import Plan
from examples.flights.report import direct_delays, direct_sums, faults, group_faults
from examples.flights.screen import LiveScreen, PlainScreen, QuietScreen, screen_for
from tests.support.waiting import eventually

MakeFile = Callable[[list[tuple[str, str, str, str]]], Path]

CARRIERS = ("UA", "DL", "B6")


@pytest.fixture
def path(flights_file: MakeFile) -> Path:
    """2,000 flights of 300 aircraft, a third late, some cancelled."""
    return flights_file(
        [
            (
                CARRIERS[n % 3],
                f"N{n * 7 % 300}" if n % 50 else "NA",
                "NA" if n % 41 == 0 else str(n % 22 - 5),
                "NA" if n % 41 == 0 else str(n % 31 - 10),
            )
            for n in range(2000)
        ]
    )


@pytest.mark.parametrize(
    ("remote", "kill", "lose"), [(0, True, False), (1, False, True), (2, True, True)]
)
def test_every_flight_is_counted_once_whoever_reads_it_and_whatever_is_lost(
    path: Path, namespace: str, kill: bool, remote: int, lose: bool
) -> None:
    shown = io.StringIO()
    plan = Plan(
        path=path,
        flights=2000,
        namespace=namespace,
        kill=kill,
        remote=remote,
        lose=lose,
        groups=False,
    )
    outcome = run(plan, PlainScreen(Console(file=shown)))
    assert faults(outcome, direct_sums(read_flights(path))) == []
    assert (outcome.remote > 0) is (remote > 0)
    victims = ("consumer 1", *["a front end of the server"] * (remote > 0)) if kill else ()
    assert outcome.killed == victims
    assert shown.getvalue().count("killed with SIGKILL") == len(victims)
    assert "2,000 of 2,000 counted" in shown.getvalue()
    assert (outcome.loss is not None) is lose
    assert shown.getvalue().count("all shared memory removed") == lose
    with shmq.connect(namespace) as broker:
        assert broker.list_queues() == []


@pytest.mark.parametrize("kill", [True, False])
def test_each_group_reads_every_flight_once_in_order_whoever_is_killed(
    path: Path, namespace: str, kill: bool
) -> None:
    shown = io.StringIO()
    plan = Plan(path=path, flights=2000, namespace=namespace, kill=kill)
    grouped = read_in_groups(plan, PlainScreen(Console(file=shown)))
    assert group_faults(grouped, direct_delays(read_flights(path))) == []
    assert [reading.counted for reading in grouped.readings.values()] == [2000, 2000]
    assert shown.getvalue().count("killed with SIGKILL") == grouped.killed == 2 * kill
    with shmq.connect(namespace) as broker:
        assert broker.list_streams() == []
        assert broker.list_queues() == []


def test_what_is_in_the_queue_comes_back_after_its_memory_is_lost_and_the_producers_go_on(
    path: Path, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plan = Plan(path=path, flights=2000, namespace=namespace, consumers=0, remote=0, producers=1)
    with Machine(plan) as machine:
        machine.start()
        queue = machine.queues.flights
        eventually(lambda: queue.stats().put >= 500, "a quarter is put")
        held = machine.lose()
        assert held >= 500
        assert files(namespace) == []

        loss = machine.recover(held)
        assert 0 <= held - waiting(loss.stats) <= plan.stride  # what was not confirmed
        assert loss.to_put - loss.put_again <= 2000 - waiting(loss.stats)
        eventually(lambda: not machine.workers.producing, "the rest is put")
        queue = machine.queues.flights
        numbers = [message.body[0] for message in queue.peek(4000)]
        assert set(numbers) == set(range(2000))
        assert len(numbers) - 2000 <= loss.put_again <= plan.stride
    assert files(namespace) == []
    assert not list(tmp_path.glob("shmq-demo-*"))


def test_a_producer_that_cannot_go_on_ends_the_job_and_its_queues(
    path: Path, namespace: str
) -> None:
    path.write_bytes(path.read_bytes()[:100])
    plan = Plan(path=path, flights=2000, namespace=namespace)
    with pytest.raises(DemoError, match=r"producer \d ended with exit code 1"):
        run(plan, PlainScreen(Console(file=io.StringIO())))
    with shmq.connect(namespace) as broker:
        assert broker.list_queues() == []


def test_only_a_terminal_that_can_move_its_cursor_gets_the_live_panel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(screen_for(Console(force_terminal=True)), LiveScreen)
    assert isinstance(screen_for(Console(file=io.StringIO())), PlainScreen)
    assert type(screen_for(Console(force_terminal=True), quiet=True)) is QuietScreen
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(screen_for(Console(force_terminal=True)), PlainScreen)
