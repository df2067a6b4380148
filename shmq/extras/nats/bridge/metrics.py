"""The numbers of ``shmq bridge`` as text for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from shmq.extras.nats.bridge.progress import Numbers
from shmq.metrics.exposition import family_lines
from shmq.metrics.families import BRIDGE


def render_bridge(namespace: str, routes: Sequence[Numbers]) -> bytes:
    """All samples of the routes, ended by ``# EOF``."""
    place = (("namespace", namespace),)
    parts: list[str] = []
    for family, read in BRIDGE:
        readings = [
            ((one.direction, one.source, one.target), number)
            for one in routes
            for _, number in read(one)
        ]
        parts += family_lines(family, [(place, readings)])
    return "".join([*parts, "# EOF\n"]).encode()
