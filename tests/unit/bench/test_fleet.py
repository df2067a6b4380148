"""The simulation of a fleet's queues."""

from __future__ import annotations

import dataclasses

import pytest

from tools.fleet import Fleet, Result, simulate

FLEET = Fleet(
    hosts=6,
    queues=100,
    rate=1000.0,
    skew=1.0,
    host_rate=10_000.0,
    cluster_rate=2000.0,
    between_failures=30 * 86_400.0,
    repair=3600.0,
    election=5.0,
    years=50.0,
    seed=1,
)


def layouts(fleet: Fleet) -> dict[str, Result]:
    return {one.layout: one for one in simulate(fleet)}


def test_the_time_away_of_a_host_is_what_its_failures_say() -> None:
    share = FLEET.repair / (FLEET.between_failures + FLEET.repair)
    assert layouts(FLEET)["host alone"].away == pytest.approx(share * 365 * 86_400, rel=0.2)


def test_a_cluster_is_away_far_less_and_a_bridge_never() -> None:
    found = layouts(FLEET)
    assert found["cluster"].away < found["host alone"].away / 20
    assert found["bridge"].away == 0


def test_without_failures_nothing_is_away() -> None:
    found = layouts(dataclasses.replace(FLEET, between_failures=1e18))
    assert {one.away for one in found.values()} == {0.0}


def test_the_load_of_equal_queues_is_shared_evenly() -> None:
    found = layouts(dataclasses.replace(FLEET, skew=0.0, queues=600))
    assert found["host alone"].busiest == pytest.approx(1000 / 6 / 10_000)
    assert found["clusters"].busiest == pytest.approx(0.25)
    assert found["cluster"].busiest == pytest.approx(0.5)


def test_one_queue_is_on_one_part_however_many_there_are() -> None:
    found = layouts(dataclasses.replace(FLEET, queues=1))
    assert found["clusters"].busiest == found["cluster"].busiest == pytest.approx(0.5)
