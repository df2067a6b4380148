"""The rows over a cluster. Three servers on one host are a comparison, not a cluster's rate."""

from __future__ import annotations

from collections.abc import Callable

from bench.cluster.clients import Ours, OursMany, OursSynced, Theirs, TheirsMany, TheirsSynced
from bench.row import Row, times
from bench.tcp.cycle import BATCH, Client, Cycle

#: The bar: so much of the rate of the bare client that does the same work.
LEAST = 0.8


def _row(
    key: str, title: str, ours: type[Client], theirs: type[Client], limit: str, count: int = BATCH
) -> Row:
    return Row(
        key=key,
        title=title,
        contestants=[Cycle(ours, count=count), Cycle(theirs, count=count)],
        bars=[times(ours.label, theirs.label, LEAST)],
        limit=limit,
    )


def one_row() -> Row:
    """One message at a time."""
    title = "Put, get and acknowledge one message at a time, 64 B, three servers"
    return _row("cluster-one", title, Ours, Theirs, "round trips, and two changes of thread", 8)


def many_row() -> Row:
    """64 messages in flight."""
    title = f"The same, {BATCH} messages in flight"
    return _row("cluster-many", title, OursMany, TheirsMany, "the client's Python, in one loop")


def synced_row() -> Row:
    """64 messages in flight, synced."""
    title = f"The same, {BATCH} in flight, sync_interval: always"
    return _row("cluster-synced", title, OursSynced, TheirsSynced, "the disks of three servers")


CLUSTER: tuple[Callable[[], Row], ...] = (one_row, many_row, synced_row)
