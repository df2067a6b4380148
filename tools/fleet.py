"""A simulation of the queues of a fleet over hosts that fail: which layout carries how much.

    python -m tools.fleet --hosts 12 --queues 2000 --rate 20000

Each queue has a rate; a few have most of it, as a Zipf distribution says. Hosts fail at random and
are repaired after a while. For each layout it says how busy the busiest part is, and how long a
message's queue is away in a year. The rates of one host and of one cluster are given: measure
them on your machines, `python -m bench` and `python -m bench --cluster`.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

import click

_YEAR: Final = 365.0 * 24 * 3600
#: Servers of a cluster: one of them may be away.
_OF_CLUSTER: Final = 3

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is simulated. Rates are in messages a second, times in seconds."""

    hosts: int
    queues: int
    rate: float
    #: The exponent of Zipf: 0 gives all queues the same rate.
    skew: float
    #: What one host carries alone, and one cluster of three.
    host_rate: float
    cluster_rate: float
    #: The mean time between two failures of a host, and until it is repaired.
    between_failures: float
    repair: float
    #: How long a cluster takes no message after the server that leads a queue died.
    election: float
    years: float
    seed: int


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What a layout gives."""

    layout: str
    #: How many hosts, or clusters, the queues are on.
    parts: int
    #: The load of the busiest part, as a share of what it carries; above 1 it is too much.
    busiest: float
    #: How long in a year a message meets a queue that takes no put, in seconds.
    away: float
    #: How long in a year what was put waits for a host or a cluster to be back, in seconds.
    delayed: float


def simulate(fleet: Fleet) -> list[Result]:
    """Each layout, on the same failures."""
    chance = random.Random(fleet.seed)
    rates = _rates(fleet)
    outages = [_outages(fleet, chance) for _ in range(fleet.hosts)]
    span = fleet.years * _YEAR
    clusters = max(1, fleet.hosts // _OF_CLUSTER)
    one = _cluster_outages(fleet, outages[:_OF_CLUSTER])
    every = [
        _cluster_outages(fleet, outages[at * _OF_CLUSTER : (at + 1) * _OF_CLUSTER])
        for at in range(clusters)
    ]
    hosts = _place(rates, fleet.hosts)
    shards = _place(rates, clusters)
    alone = _weighted(hosts, [_length(some) for some in outages], span)
    results = [
        Result("host alone", fleet.hosts, max(hosts) / fleet.host_rate, alone, alone),
        # A producer puts on its own host: that is away only when the producer is, too. What it put
        # waits there while the cluster is away.
        Result("bridge", 1, fleet.rate / fleet.cluster_rate, 0.0, _length(one) / span),
        Result("cluster", 1, fleet.rate / fleet.cluster_rate, _length(one) / span, 0.0),
        Result(
            "clusters",
            clusters,
            max(shards) / fleet.cluster_rate,
            _weighted(shards, [_length(some) for some in every], span),
            0.0,
        ),
    ]
    return [
        dataclasses.replace(result, away=result.away * _YEAR, delayed=result.delayed * _YEAR)
        for result in results
    ]


def _rates(fleet: Fleet) -> list[float]:
    """The rate of each queue, the largest first."""
    weights = [1.0 / rank**fleet.skew for rank in range(1, fleet.queues + 1)]
    total = sum(weights)
    return [fleet.rate * weight / total for weight in weights]


def _place(rates: Sequence[float], parts: int) -> list[float]:
    """The load of each part, if each queue in turn goes to the one with the least."""
    loads = [(0.0, part) for part in range(parts)]
    for rate in rates:
        load, part = loads[0]
        heapq.heapreplace(loads, (load + rate, part))
    by_part = sorted(loads, key=lambda one: one[1])
    return [load for load, _ in by_part]


def _outages(fleet: Fleet, chance: random.Random) -> list[Interval]:
    """When one host is away."""
    found: list[Interval] = []
    at, end = 0.0, fleet.years * _YEAR
    while True:
        at += chance.expovariate(1.0 / fleet.between_failures)
        if at >= end:
            return found
        until = min(end, at + chance.expovariate(1.0 / fleet.repair))
        found.append((at, until))
        at = until


def _cluster_outages(fleet: Fleet, outages: Sequence[Sequence[Interval]]) -> list[Interval]:
    """When a queue of a cluster takes no put: most servers are away, or a leader is elected.

    A third of the failures meet the server that leads the queue.
    """
    most = len(outages) // 2 + 1
    missing = [*_overlaps(outages, most)]
    elections = [
        (begin, begin + fleet.election / len(outages)) for some in outages for begin, _ in some
    ]
    return [*_overlaps([missing, *([one] for one in elections)], 1)]


def _overlaps(outages: Sequence[Sequence[Interval]], least: int) -> Iterator[Interval]:
    """When at least so many are away at once."""
    steps = sorted(
        itertools.chain.from_iterable(
            ((begin, 1), (end, -1)) for some in outages for begin, end in some
        )
    )
    count, since = 0, 0.0
    for at, step in steps:
        before, count = count, count + step
        if before < least <= count:
            since = at
        elif count < least <= before and at > since:
            yield since, at


def _length(intervals: Sequence[Interval]) -> float:
    return math.fsum(end - begin for begin, end in intervals)


def _weighted(loads: Sequence[float], away: Sequence[float], span: float) -> float:
    """The share of all messages whose part is away."""
    total = math.fsum(loads)
    return math.fsum(load * time for load, time in zip(loads, away, strict=True)) / (total * span)


@click.command()
@click.option("--hosts", type=click.IntRange(3), default=12, show_default=True)
@click.option("--queues", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--rate", type=click.FloatRange(1.0), default=20_000.0, show_default=True,
              help="Messages a second, of all queues.")  # fmt: skip
@click.option("--skew", type=click.FloatRange(0.0, 3.0), default=1.0, show_default=True)
@click.option("--host-rate", type=click.FloatRange(1.0), required=True,
              help="Messages a second that one host carries.")  # fmt: skip
@click.option("--cluster-rate", type=click.FloatRange(1.0), required=True,
              help="Messages a second that one cluster carries.")  # fmt: skip
@click.option("--days", type=click.FloatRange(0.1), default=90.0, show_default=True,
              help="Days between two failures of a host.")  # fmt: skip
@click.option("--repair", type=click.FloatRange(0.01), default=4.0, show_default=True,
              help="Hours until it is back.")  # fmt: skip
@click.option("--election", type=click.FloatRange(0.0), default=5.0, show_default=True,
              help="Seconds without a leader after it died.")  # fmt: skip
@click.option("--years", type=click.FloatRange(0.1), default=100.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(days: float, repair: float, **given: float) -> None:
    """Simulate a fleet, and print a row for each layout."""
    fleet = Fleet(between_failures=days * 86_400, repair=repair * 3600, **given)  # type: ignore[arg-type]
    click.echo("| layout | parts | busiest part | no put, a year | messages wait, a year |")
    click.echo("| --- | --- | --- | --- | --- |")
    for one in simulate(fleet):
        click.echo(
            f"| {one.layout} | {one.parts} | {one.busiest:.0%} | {_span(one.away)} | "
            f"{_span(one.delayed)} |"
        )


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    main()
