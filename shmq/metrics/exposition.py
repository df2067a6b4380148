"""An observation as text for Prometheus, in the format OpenMetrics 1.0."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from shmq.host.diagnose.activity import ExchangeActivity, Observation, QueueActivity, StreamActivity
from shmq.host.diagnose.worst import rank_queue
from shmq.metrics import families
from shmq.metrics.families import Family, Kind, Reading

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

#: With more queues than this only the worst have samples of their own.
MOST_QUEUES: Final = 1000
#: How many that are.
WORST: Final = 100

_Named = QueueActivity | StreamActivity | ExchangeActivity


def render(
    observation: Observation,
    *,
    most_queues: int = MOST_QUEUES,
    pattern: str | None = None,
    seconds: float | None = None,
    extra: Iterable[tuple[Family, Iterable[Reading]]] = (),
) -> bytes:
    """Return all samples, ended by ``# EOF``.

    If there are more than ``most_queues``, only the 100 with the oldest messages, and of equal
    ones those with the most, have samples of their own; ``pattern`` selects queues by a name with
    ``*`` and ``?``. The totals of the namespace count all queues in any case. ``seconds`` is how
    long the scrape took; None: as long as the observation. ``extra`` has families of the caller,
    each with its readings: the values of all its labels after ``namespace``.
    """
    return render_metrics(_collect(observation, most_queues, pattern, seconds, extra))


def render_metrics(metrics: Iterable[Metric]) -> bytes:
    """Return the families as text, ended by ``# EOF``."""
    # The names need no escaping: the default replaces in each, character by character.
    text: bytes = generate_latest(_Collected(metrics), escaping="allow-utf-8")
    return text


@dataclasses.dataclass(frozen=True)
class _Collected(Collector):
    """What prometheus_client renders: the families of one scrape."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _collect(
    observation: Observation,
    most_queues: int,
    pattern: str | None,
    seconds: float | None,
    extra: Iterable[tuple[Family, Iterable[Reading]]],
) -> Iterator[Metric]:
    shown = _select(observation.queues, most_queues, pattern)
    namespace = observation.namespace
    kinds: tuple[tuple[str, families.Table, Sequence[_Named]], ...] = (
        ("queue", families.QUEUES, shown),
        ("stream", families.STREAMS, observation.streams),
        ("exchange", families.EXCHANGES, observation.exchanges),
    )
    for label, table, subjects in kinds:
        for family, read in table:
            found = [((namespace, one.name), read(one)) for one in subjects]
            yield from collect_family(family, found, label)
    for family, read in families.NAMESPACE:
        yield from collect_family(family, [((namespace,), read(observation))])
    for family, read in families.HOST if observation.host is not None else ():
        yield from collect_family(family, [((namespace,), read(observation.host))])
    readings_of: list[tuple[Family, Iterable[Reading]]] = [
        (families.SCRAPE["seconds"], [((), observation.seconds if seconds is None else seconds)]),
        (families.SCRAPE["left out"], [((), len(observation.queues) - len(shown))]),
        (families.SCRAPE["build"], [(families.build(), 1)]),
        *extra,
    ]
    for family, readings in readings_of:
        yield from collect_family(family, [((namespace,), readings)])


def collect_family(
    family: Family, found: Iterable[tuple[tuple[str, ...], Iterable[Reading]]], *subject: str
) -> Iterator[Metric]:
    """Return the family with its samples; nothing if it has none.

    ``found`` has the readings of each subject, after the values of ``namespace`` and the labels in
    ``subject``.
    """
    place = ("namespace", *subject)
    metric: GaugeMetricFamily | CounterMetricFamily | InfoMetricFamily
    if family.kind == Kind.INFO:
        metric = InfoMetricFamily(family.name, family.help, labels=place)
        for where, readings in found:
            for values, _ in readings:
                metric.add_metric(where, dict(zip(family.labels, values, strict=True)))
    else:
        type_of = CounterMetricFamily if family.kind == Kind.COUNTER else GaugeMetricFamily
        metric = type_of(family.name, family.help, labels=(*place, *family.labels))
        for where, readings in found:
            for values, number in readings:
                metric.add_metric((*where, *values), number)
    if metric.samples:
        yield metric


def _select(
    queues: Sequence[QueueActivity], most: int, pattern: str | None
) -> Sequence[QueueActivity]:
    if pattern is not None:
        queues = [one for one in queues if fnmatch.fnmatchcase(one.name, pattern)]
    if len(queues) <= most:
        return queues
    worst = sorted(queues, key=rank_queue, reverse=True)[: min(WORST, most)]
    return sorted(worst, key=lambda one: one.name)
