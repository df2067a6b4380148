"""The numbers of ``shmq bridge`` as text for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from shmq.extras.nats.bridge.progress import Numbers
from shmq.metrics.exposition import collect_family, render_metrics
from shmq.metrics.families import BRIDGE


def render_bridge(namespace: str, routes: Sequence[Numbers]) -> bytes:
    """Return all samples of the routes, ended by ``# EOF``."""
    return render_metrics(
        metric
        for family, read in BRIDGE
        for metric in collect_family(
            family,
            [((namespace, one.direction, one.source, one.target), read(one)) for one in routes],
        )
    )
