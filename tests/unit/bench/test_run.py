"""Turns are played in pairs, side by side, in an order that is drawn."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Sequence

import pytest

from bench import run as runs
from bench.__main__ import TABLES
from bench.estimate import FEWEST
from bench.mood import Mood
from bench.record import Record
from bench.row import SECONDS, Bar, Contestant, Role, Row, Turn, at_least, beside, times
from bench.run import Plan, run
from bench.stage import Failed

#: What was played, in order.
_played: list[str] = []


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is played yet, and only turns take time: 0.1 ms each."""
    _played.clear()
    clock = types.SimpleNamespace(monotonic=lambda: len(_played) / 10_000)
    monkeypatch.setattr(runs, "time", clock)
    monkeypatch.setattr(Mood, "look", lambda _: 50.0)


class Fixed(Contestant):
    """Has a rate that is its own, times the mood of the machine, which changes all the time."""

    most = 1 << 20

    def __init__(self, label: str, rate: float, missing: str | None = None) -> None:
        self.label = label
        self.rate = rate
        self.role: Role = "shmq" if label.startswith("shmq") else "peer"
        self.why = missing
        self.amounts: list[int] = []
        self.visits = 0

    def missing(self) -> str | None:
        return self.why

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        self.visits += 1

        def turn(amount: int) -> dict[str, float]:
            _played.append(self.label)
            self.amounts.append(amount)
            mood = 1.0 + len(_played) // 50 % 7
            return {"rate": self.rate * mood, SECONDS: amount / self.rate}

        yield turn


def measured(
    contestants: Sequence[Contestant], bars: Sequence[Bar], visits: int = 3, visit: float = 0.02
) -> Record:
    row = Row("row", "a row", contestants, bars=bars)
    return run([row], Plan(visits, visit, 0.015), lambda *_: None, seed=1)


def test_the_ratio_is_that_of_neighbours_and_the_mood_cancels_out() -> None:
    ours, peer = Fixed("shmq", 3e6), Fixed("peer", 2e6)
    record = measured([ours, peer], [times("shmq", "peer", 1.4)])
    (verdict,) = record.row("row").verdicts
    assert verdict.estimate is not None and verdict.met == "met"
    assert verdict.estimate.turns > 2 * FEWEST
    assert verdict.estimate.median == verdict.estimate.low == 1.5
    figure = record.row("row").entry("shmq").figures["rate"]
    assert figure.turns == verdict.estimate.turns
    # Behind the looking for an amount of work, each pair is played by both, in either order.
    pairs = list(zip(_played[-80::2], _played[-79::2], strict=True))
    assert all(set(pair) == {"shmq", "peer"} for pair in pairs)
    assert {pair[0] for pair in pairs} == {"shmq", "peer"}


def test_a_turn_has_so_much_work_that_it_takes_its_time() -> None:
    ours = Fixed("shmq", 1e6)
    measured([ours], [at_least("shmq", 1)], visits=1)
    assert ours.amounts[-1] == pytest.approx(15_000, rel=0.05)
    assert ours.amounts[0] == 1


def test_only_the_peers_that_can_be_the_best_are_visited_again() -> None:
    ours = Fixed("shmq", 3e6)
    near, nearer, far = Fixed("near", 2.5e6), Fixed("nearer", 2.9e6), Fixed("far", 1e4)
    other = Fixed("shmq other", 1e6)
    bars = [times("shmq", ["near", "nearer", "far"], 1), beside("shmq other", ["far"])]
    record = measured([ours, near, nearer, far, other], bars)
    assert (ours.visits, near.visits, nearer.visits) == (3, 3, 3)
    assert (far.visits, other.visits) == (1, 1)
    found = {(each.ours, each.other): each.estimate for each in record.row("row").ratios}
    assert found["shmq", "far"].turns == found["shmq other", "far"].turns == FEWEST
    assert found["shmq", "far"].low is not None


def test_who_is_missing_is_told_and_the_others_are_measured() -> None:
    ours, gone = Fixed("shmq", 3e6), Fixed("gone", 2e6, "gone is not installed")
    record = measured([ours, gone], [times("shmq", "gone", 1)])
    row = record.row("row")
    assert [entry.missing for entry in row.entries] == [None, "gone is not installed"]
    assert row.entry("shmq").figures["rate"].turns > 0
    assert row.verdicts[0].met == "not measured"
    with pytest.raises(LookupError, match="no figures of 'gone'"):
        row.entry("gone")


def test_a_row_without_bars_is_measured_in_every_visit() -> None:
    loops = Fixed("loops", 1e6)
    record = measured([loops], [])
    assert loops.visits == 3
    assert record.row("row").entry("loops").best == pytest.approx(7 / 4, rel=0.8)


def test_the_shortest_run_plays_every_pair_once() -> None:
    ours, peer = Fixed("shmq", 3e6), Fixed("peer", 2e6)
    row = Row("row", "a row", [ours, peer], bars=[times("shmq", "peer", 1)])
    run([row], Plan(1, 0, 0), lambda *_: None)
    assert sorted(_played) == ["peer", "shmq"]
    assert ours.amounts == [1]


def test_how_far_it_is_is_told_before_each_pair_of_turns() -> None:
    told: list[tuple[int, str, int]] = []
    row = Row(
        "row", "a row", [Fixed("shmq", 3e6), Fixed("peer", 2e6)], bars=[times("shmq", "peer", 1)]
    )
    run([row], Plan(2, 0, 0), lambda over, step: told.append((over, step, len(_played))))
    steps = [(over, step) for over, step, _ in told]
    assert steps == sorted(steps)
    assert set(steps) == {(0, "visit 1 of 2: row"), (1, "visit 2 of 2: row")}
    assert {0, 2} <= {played for _, _, played in told}


def test_an_error_names_the_row_and_whose_turn_it_was() -> None:
    class Broken(Fixed):
        @contextlib.contextmanager
        def opened(self) -> Iterator[Turn]:
            def turn(_: int) -> dict[str, float]:
                raise Failed("a message was lost")

            yield turn

    with pytest.raises(Failed, match="row: shmq broken: a message was lost"):
        measured([Broken("shmq broken", 1)], [])


def test_the_bench_ends_within_ten_minutes() -> None:
    table, plan = TABLES["local"]
    shares = sum(make().share for make in table)
    assert plan.visits >= FEWEST
    assert plan.visits * plan.visit * shares <= 9 * 60
    assert 0.01 <= plan.turn <= 0.02


def test_every_bar_names_contestants_and_figures_of_its_row() -> None:
    for table, _ in TABLES.values():
        for row in (make() for make in table):
            labels = [contestant.label for contestant in row.contestants]
            assert len(set(labels)) == len(labels), row.key
            for bar in row.bars:
                assert {bar.ours, *bar.others} <= set(labels), (row.key, bar)
                assert bar.key in {figure.key for figure in row.figures}, (row.key, bar)


def test_a_long_turn_that_is_not_compared_is_played_once_a_visit() -> None:
    ours = Fixed("shmq", 1e6)
    ours.most = 1
    measured([ours], [at_least("shmq", 1)], visits=3, visit=1e-9)
    assert ours.amounts == [1, 1, 1]


def test_the_amount_of_work_is_not_looked_for_where_it_is_fixed() -> None:
    fixed = Fixed("shmq", 1e9)
    fixed.most = 1
    assert runs._amount(fixed, lambda _: pytest.fail("a turn was played"), 0.015) == 1


def test_a_hiccup_while_the_amount_is_looked_for_does_not_shorten_the_turns() -> None:
    contestant = Fixed("shmq", 1e6)
    contestant.most = 10_000_000
    played: list[int] = []

    def turn(amount: int) -> dict[str, float]:
        played.append(amount)
        hiccup = 0.02 if len(played) == 1 else 0.0
        return {SECONDS: amount / 1e6 + hiccup}

    assert runs._amount(contestant, turn, 0.015) == 15_000
