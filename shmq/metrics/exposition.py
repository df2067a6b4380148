"""An observation as text for Prometheus, in the format OpenMetrics 1.0."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from shmq.host.diagnose.activity import ExchangeActivity, Observation, QueueActivity, StreamActivity
from shmq.metrics import families
from shmq.metrics.families import Family, Kind, Reading

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: With more queues than this only the worst have samples of their own.
MOST_QUEUES: Final = 1000
#: How many that are.
WORST: Final = 100

_Labels = tuple[tuple[str, str], ...]
_Named = QueueActivity | StreamActivity | ExchangeActivity

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render(
    observation: Observation,
    *,
    most_queues: int = MOST_QUEUES,
    pattern: str | None = None,
    seconds: float | None = None,
    extra: Iterable[tuple[Family, Iterable[Reading]]] = (),
) -> bytes:
    """All samples, ended by ``# EOF``.

    If there are more than ``most_queues``, only the 100 with the oldest messages, and of equal
    ones those with the most, have samples of their own; ``pattern`` selects queues by a name with
    ``*`` and ``?``. The totals of the namespace count all queues in any case. ``seconds`` is how
    long the scrape took; None: as long as the look. ``extra`` has families of the caller, each
    with its readings: the values of all its labels behind ``namespace``.
    """
    shown = _format(observation.queues, most_queues, pattern)
    place = (("namespace", observation.namespace),)
    took = observation.seconds if seconds is None else seconds
    parts: list[str] = []
    kinds: tuple[tuple[str, families.Table, Sequence[_Named]], ...] = (
        ("queue", families.QUEUES, shown),
        ("stream", families.STREAMS, observation.streams),
        ("exchange", families.EXCHANGES, observation.exchanges),
    )
    for label, table, subjects in kinds:
        places = [(one, (*place, (label, one.name))) for one in subjects]
        for family, read in table:
            parts += family_lines(family, [(where, read(one)) for one, where in places])
    for family, read in families.NAMESPACE:
        parts += family_lines(family, [(place, read(observation))])
    for family, read in families.HOST if observation.host is not None else ():
        parts += family_lines(family, [(place, read(observation.host))])
    scrape = families.SCRAPE
    left_out = len(observation.queues) - len(shown)
    readings_of: list[tuple[Family, Iterable[Reading]]] = [
        (scrape["seconds"], [((), took)]),
        (scrape["left out"], [((), left_out)]),
        (scrape["build"], [(families.build(), 1)]),
        *extra,
    ]
    for family, readings in readings_of:
        parts += family_lines(family, [(place, readings)])
    return "".join([*parts, "# EOF\n"]).encode()


def family_text(family: Family, lines: Iterable[str]) -> str:
    """The family's heading and its samples, which end in a line feed each."""
    return f"# TYPE {family.name} {family.kind}\n# HELP {family.name} {escaped(family.help)}\n" + (
        "".join(lines)
    )


def _format(
    queues: Sequence[QueueActivity], most: int, pattern: str | None
) -> Sequence[QueueActivity]:
    if pattern is not None:
        queues = [one for one in queues if fnmatch.fnmatchcase(one.name, pattern)]
    if len(queues) <= most:
        return queues
    worst = sorted(queues, key=_badness, reverse=True)[: min(WORST, most)]
    return sorted(worst, key=lambda one: one.name)


def _badness(queue: QueueActivity) -> tuple[bool, float, int]:
    if queue.stats is None:
        return True, 0.0, 0
    return False, queue.stats.oldest_age, queue.stats.depth


def family_lines(
    family: Family, found: Iterable[tuple[_Labels, Iterable[Reading]]]
) -> Iterator[str]:
    """The family; nothing if it has no samples."""
    ending = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(family.kind, "")
    lines = []
    for place, readings in found:
        before = ",".join(f'{label}="{escaped(value)}"' for label, value in place)
        for values, number in readings:
            labels = before
            for label, value in zip(family.labels, values, strict=True):
                labels += f',{label}="{escaped(value)}"'
            lines.append(f"{family.name}{ending}{{{labels}}} {_format_number(number)}\n")
    if lines:
        yield family_text(family, lines)


def escaped(text: str) -> str:
    """The text as the value of a label."""
    return text.translate(_ESCAPES)


def _format_number(number: float) -> str:
    return str(int(number)) if isinstance(number, int) else repr(number)
