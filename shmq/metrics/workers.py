"""The histograms of ``shmq worker`` as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import HistogramMetricFamily

from shmq.metrics.exposition import render_metrics
from shmq.metrics.families import WORKERS
from shmq.workers.timings import BOUNDS, Timings

_BOUNDS = (*map(repr, BOUNDS), "+Inf")


def render_workers(queues: Iterable[tuple[str, str, Sequence[Timings]]]) -> bytes:
    """Return the histograms of each (namespace, queue, places of its processes)."""
    (family,) = WORKERS
    metric = HistogramMetricFamily(family.name, family.help, labels=("namespace", *family.labels))
    for namespace, queue, places in queues:
        for timing in Timings.sum(places):
            buckets = list(zip(_BOUNDS, timing.counts, strict=True))
            metric.add_metric((namespace, queue, timing.outcome), buckets, timing.seconds)
    return render_metrics([metric])
