"""The result: the table per carrier, and its comparison with the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from rich import box
from rich.table import Table

from examples.flights.archive import Archived
from examples.flights.cluster import Clustered
from examples.flights.flights import LATE_MINUTES, Flight
from examples.flights.groups import GROUPS, Grouped
from examples.flights.job import Outcome
from examples.flights.ledger import Ledger
from examples.flights.machine import Loss, waiting
from examples.flights.tally import Sums

_CAPTION: Final = (
    f"Mean delays are in minutes. Late: {LATE_MINUTES} minutes or more behind, at either end."
)


def direct_sums(flights: Iterable[Flight]) -> dict[str, Sums]:
    """The sums per carrier, directly from the ``flights`` without a queue."""
    carriers: defaultdict[str, list[Flight]] = defaultdict(list)
    for flight in flights:
        carriers[flight.carrier].append(flight)
    return {code: _direct(own) for code, own in carriers.items()}


def direct_delays(flights: Iterable[Flight]) -> dict[tuple[str, int], Sums]:
    """The sums of each carrier in each hour of the day, directly from the ``flights``."""
    cells: defaultdict[tuple[str, int], list[Flight]] = defaultdict(list)
    for flight in flights:
        cells[flight.carrier, flight.hour].append(flight)
    return {cell: _direct(own) for cell, own in cells.items()}


def archive_faults(archived: Archived, expected: Mapping[tuple[str, int], Sums]) -> list[str]:
    """The violations of "archived, each once", a line each; empty if there are none."""
    found = []
    total = sum(sums.flights for sums in expected.values())
    if not archived.rows == archived.flights == total:
        found.append(
            f"Spark archived {archived.rows:,} rows of {archived.flights:,} flights for {total:,}"
        )
    found += [
        f"carrier {cell[0]} in hour {cell[1]}: Spark's {archived.delays.get(cell)} are not the "
        f"file's {expected.get(cell)}"
        for cell in sorted(archived.delays.keys() | expected.keys())
        if archived.delays.get(cell) != expected.get(cell)
    ]
    return found


def cluster_faults(clustered: Clustered, expected: Mapping[str, Sums]) -> list[str]:
    """The violations of "each flight came from the cluster", a line each; empty if none."""
    return [
        f"carrier {code}: the cluster's {clustered.carriers.get(code)} are not the file's "
        f"{expected.get(code)}"
        for code in sorted(clustered.carriers.keys() | expected.keys())
        if clustered.carriers.get(code) != expected.get(code)
    ]


def group_faults(grouped: Grouped, expected: Mapping[tuple[str, int], Sums]) -> list[str]:
    """The violations of "each group has read each flight once, in order", a line each.

    Each group's sums must be the totals of the ``expected`` sums by its key.
    """
    found = []
    for group, reading in grouped.readings.items():
        found += [f"group {group}: {fault}" for fault in reading.faults]
        sums: defaultdict[object, Sums] = defaultdict(Sums)
        for cell, own in expected.items():
            sums[GROUPS[group](*cell)].add(own)
        found += [
            f"group {group}: {reading.sums.get(what)} of {what} are not the file's {sums.get(what)}"
            for what in sorted(reading.sums.keys() | sums.keys(), key=str)
            if reading.sums.get(what) != sums.get(what)
        ]
    return found


def faults(outcome: Outcome, expected: Mapping[str, Sums]) -> list[str]:
    """The violations of "all acknowledged, none lost", a line each; empty if there are none."""
    return [
        *_faults_of_ledger(outcome.ledger),
        *_faults_of_queue(outcome),
        *_faults_of_sums(outcome.ledger.carriers, expected),
    ]


def verdict(outcome: Outcome) -> str:
    """The last lines of a run without faults."""
    ledger = outcome.ledger
    kills = {0: "", 1: " after the kill"}.get(len(outcome.killed), " after the kills")
    loss = "" if outcome.loss is None else _told(outcome.loss)
    grouped = "" if outcome.grouped is None else _of_groups(outcome.grouped)
    clustered = "" if outcome.clustered is None else _of_cluster(outcome.clustered)
    archived = "" if outcome.archived is None else _of_spark(outcome.archived)
    return (
        f"{ledger.total:,} acknowledged, none lost\n{loss}"
        f"{outcome.remote:,} of them read over TCP; {ledger.again:,} delivered again{kills}, "
        f"{ledger.repeated:,} counted already and left out; "
        f"{outcome.seconds:.1f} s, {ledger.total / outcome.seconds:,.0f} flights/s"
        f"{grouped}{clustered}{archived}"
    )


def _of_groups(grouped: Grouped) -> str:
    readings = grouped.readings.values()
    return (
        f"\n{max(one.counted for one in readings):,} read from a stream by each of "
        f"{len(readings)} groups, {grouped.killed} members killed, none missed; "
        f"{sum(one.repeated for one in readings):,} read again and left out; "
        f"{grouped.seconds:.1f} s"
    )


def _of_cluster(clustered: Clustered) -> str:
    return (
        f"\n{clustered.flights:,} forwarded to three servers and read there, none missed; "
        f"{clustered.killed}, which led, killed at {clustered.killed_at:,}; "
        f"{clustered.again:,} delivered again and left out; {clustered.seconds:.1f} s"
    )


def _of_spark(archived: Archived) -> str:
    return (
        f"\n{archived.rows:,} archived by Spark as Parquet, each once, in "
        f"{archived.seconds:.1f} s; the delays of {len(archived.delays):,} carriers and hours "
        "are the file's"
    )


def _told(loss: Loss) -> str:
    return (
        f"shared memory lost with {loss.held:,} in the queue: {waiting(loss.stats):,} came back "
        f"from its journal in {loss.seconds:.2f} s, {loss.put_again:,} were put again\n"
    )


def table(carriers: Mapping[str, Sums], names: Mapping[str, str]) -> Table:
    """The sums per carrier, the carrier with the most flights first; fits 80 columns."""
    result = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), caption=_CAPTION
    )
    result.add_column("carrier", no_wrap=True)
    for title in ("flights", "cancelled", "late", "mean dep.", "mean arr."):
        result.add_column(title, justify="right")
    for code, sums in sorted(carriers.items(), key=lambda item: (-item[1].flights, item[0])):
        result.add_row(
            f"{code} {names.get(code, '')}",
            f"{sums.flights:,}",
            f"{sums.flights - sums.departed:,}",
            f"{sums.late / sums.flights:.1%}",
            _minutes(sums.mean_departure_delay),
            _minutes(sums.mean_arrival_delay),
        )
    return result


def _direct(flights: list[Flight]) -> Sums:
    departures = [f.departure_delay for f in flights if f.departure_delay is not None]
    arrivals = [f.arrival_delay for f in flights if f.arrival_delay is not None]
    return Sums(
        flights=len(flights),
        late=sum(flight.late for flight in flights),
        departed=len(departures),
        departure_minutes=sum(departures),
        arrived=len(arrivals),
        arrival_minutes=sum(arrivals),
    )


def _faults_of_ledger(ledger: Ledger) -> list[str]:
    found = []
    if not ledger.complete:
        missing = ledger.missing()
        found.append(f"{len(missing):,} flights were never counted, first number {missing[0]}")
    if ledger.torn:
        found.append(f"{ledger.torn:,} tallies hold flights counted before beside new ones")
    return found


def _faults_of_queue(outcome: Outcome) -> list[str]:
    found = []
    stats, loss, total = outcome.stats, outcome.loss, outcome.ledger.total
    left = waiting(stats)
    if left:
        found.append(f"{left:,} messages are left in the queue")
    if stats.dropped or stats.dead_lettered:
        found.append(f"{stats.dropped:,} dropped and {stats.dead_lettered:,} dead-lettered")
    put, acked, to_put, there = stats.put, stats.acked, total, 0
    if loss is not None:  # count from the recovery: totals that were only in memory are lost
        put, acked = put - loss.stats.put, acked - loss.stats.acked
        to_put, there = loss.to_put, waiting(loss.stats)
    if put != to_put:
        found.append(f"{put:,} messages were put for {to_put:,} flights")
    # A process killed between an acknowledgement and its total leaves the total one too low,
    # and counts as a recovery.
    kills = len(outcome.killed)
    if not 0 <= there + to_put - acked <= min(stats.recoveries, kills):
        found.append(f"{acked:,} messages were acknowledged of {there + to_put:,}")
    return found


def _faults_of_sums(counted: Mapping[str, Sums], expected: Mapping[str, Sums]) -> list[str]:
    return [
        f"carrier {code}: the queue's {counted.get(code)} are not the file's {expected.get(code)}"
        for code in sorted(counted.keys() | expected.keys())
        if counted.get(code) != expected.get(code)
    ]


def _minutes(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.2f}"
