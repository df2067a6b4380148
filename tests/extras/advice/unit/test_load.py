"""The formulas, against known values, exact sums and a simulation."""

from __future__ import annotations

import heapq
import math
import random
import statistics
from pathlib import Path

import pytest

from shmq.extras.advice import plot
from shmq.extras.advice.load import Load, consumers_for, erlang_c, mean_of, spread_of
from shmq.extras.advice.report import advise
from shmq.extras.advice.workload import Workload


@pytest.mark.parametrize(
    ("consumers", "offered", "waits"),
    [
        (1, 0.5, 0.5),  # M/M/1: the load itself
        (1, 0.9, 0.9),
        (2, 1.0, 1 / 3),  # a²/2 ÷ (1 - a/2) over the sum, by hand
        (10, 8.0, 0.4092),  # tables of Erlang's C formula
        (5, 5.0, 1.0),
        (3, 7.0, 1.0),
        (4, 0.0, 0.0),
    ],
)
def test_erlang_c_has_the_values_of_the_tables(
    consumers: int, offered: float, waits: float
) -> None:
    assert erlang_c(consumers, offered) == pytest.approx(waits, abs=5e-5)


def test_erlang_c_is_the_sum_that_defines_it() -> None:
    for consumers in (1, 2, 7, 30):
        offered = 0.8 * consumers
        last = offered**consumers / math.factorial(consumers) / (1 - offered / consumers)
        below = sum(offered**one / math.factorial(one) for one in range(consumers))
        assert erlang_c(consumers, offered) == pytest.approx(last / (below + last))


def test_the_wait_of_one_consumer_is_that_of_pollaczek_and_khinchine() -> None:
    load = Load(rate=8, consumers=1, work=0.1, spread=0.0)
    assert load.wait == pytest.approx(8 * 0.01 / (2 * (1 - 0.8)))
    assert load.waiting == pytest.approx(8 * load.wait)
    assert load.in_flight == pytest.approx(0.8)


def test_what_comes_faster_than_it_is_done_waits_for_ever() -> None:
    assert Load(rate=20, consumers=1, work=0.1, spread=1).wait == math.inf
    assert Load(rate=0, consumers=1, work=0.1, spread=1).wait == 0


def test_the_mean_and_the_spread_are_those_of_the_lognormal_distribution() -> None:
    draw = random.Random(1)
    sigma = math.log(5) / 2.3263478740408408
    drawn = [draw.lognormvariate(math.log(0.02), sigma) for _ in range(200_000)]
    mean = statistics.fmean(drawn)
    assert mean_of(0.02, 0.1) == pytest.approx(mean, rel=0.01)
    assert spread_of(0.02, 0.1) == pytest.approx(statistics.pvariance(drawn) / mean**2, rel=0.1)
    assert mean_of(0.02, 0.02) == pytest.approx(0.02)
    assert mean_of(0.0, 1.0) == mean_of(0.001, 1.0) > 0.01
    assert spread_of(0.0, 1.0) == spread_of(0.001, 1.0)
    assert mean_of(0.0, 0.0) == 0.0


@pytest.mark.parametrize("consumers", [1, 3, 8])
def test_the_formula_tells_what_a_simulation_does(consumers: int) -> None:
    """Poisson arrivals and exponential work, as the formula assumes: within five percent."""
    draw = random.Random(consumers)
    rate = 0.8 * consumers
    free = [0.0] * consumers
    now, waits = 0.0, []
    for _ in range(400_000):
        now += draw.expovariate(rate)
        at = max(now, heapq.heappop(free))
        waits.append(at - now)
        heapq.heappush(free, at + draw.expovariate(1))
    load = Load(rate=rate, consumers=consumers, work=1.0, spread=1.0)
    assert load.wait == pytest.approx(statistics.fmean(waits), rel=0.05)


def test_consumers_are_as_many_as_keep_a_third_of_their_time() -> None:
    assert consumers_for(100, 0.07) == 10
    assert consumers_for(0, 1) == 1
    assert [consumers_for(7, 0.1), consumers_for(7.1, 0.1)] == [1, 2]


def test_the_wait_rises_with_the_load() -> None:
    curve = Load(rate=1, consumers=4, work=0.1, spread=2).curve(40)
    waits = [wait for _, wait in curve]
    assert waits == sorted(waits) and waits[-1] > 20 * waits[len(waits) // 2]


def test_the_plot_has_no_wait_below_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[tuple[float, float]] = []
    monkeypatch.setattr(
        figures.Figure, "savefig", lambda made, _: drawn.append(made.axes[0].get_ylim())
    )
    plot.figure(advise(Workload.of({}), cores=8).plan.load, 150, tmp_path / "wait.png")
    ((lowest, highest),) = drawn
    assert lowest == 0 < highest
