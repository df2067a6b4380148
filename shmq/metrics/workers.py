"""The histograms of ``shmq worker`` as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shmq.metrics.exposition import escaped, family_text
from shmq.metrics.families import WORKERS
from shmq.workers.timings import BOUNDS, Timing, Timings


def render_workers(queues: Iterable[tuple[str, str, Sequence[Timings]]]) -> bytes:
    """The histograms of each (namespace, queue, places of its processes)."""
    lines = [
        line
        for namespace, queue, places in queues
        for timing in Timings.sum(places)
        for line in _lines(namespace, queue, timing)
    ]
    return (family_text(WORKERS[0], lines) + "# EOF\n").encode()


def _lines(namespace: str, queue: str, timing: Timing) -> list[str]:
    name, count = WORKERS[0].name, timing.counts[-1]
    labels = f'namespace="{escaped(namespace)}",queue="{escaped(queue)}",outcome="{timing.outcome}"'
    bounds = [*map(repr, BOUNDS), "+Inf"]
    return [
        *(
            f'{name}_bucket{{{labels},le="{bound}"}} {reached}\n'
            for bound, reached in zip(bounds, timing.counts, strict=True)
        ),
        f"{name}_count{{{labels}}} {count}\n",
        f"{name}_sum{{{labels}}} {timing.seconds!r}\n",
    ]
