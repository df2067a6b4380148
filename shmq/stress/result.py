"""The result of a stress run, and its samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from shmq.stress.latency import percentile

__all__ = ["PARTS", "Result", "Sample", "latencies"]

#: The reported percentiles, by name.
PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A moment of a run; the rates and latencies are those since the sample before."""

    #: Since the start of the run.
    seconds: float
    put: int
    got: int
    put_per_second: float
    got_per_second: float
    #: Messages put and not yet counted as acknowledged.
    backlog: int
    #: Consumers killed so far.
    killed: int
    #: From put to get, in µs.
    latency: dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A whole run. Rates are from the start of the workers to the last put or ack."""

    queue: str
    producers: int
    consumers: int
    size: int
    batch: int
    #: ``exactly once, in order`` or, where consumers were killed, ``at least once``.
    promise: str
    seconds: float
    put: int
    #: Messages acknowledged; one too few for each kill between an acknowledgement and its count.
    got: int
    put_per_second: float
    got_per_second: float
    #: From put to get, in µs.
    latency: dict[str, float]
    redelivered: int
    killed: int
    #: One sentence for each broken promise; empty if all were kept.
    problems: list[str]


def latencies(counts: Sequence[int], longest: int) -> dict[str, float]:
    """The percentiles of a histogram in µs, with ``longest``, given in ns, as the maximum."""
    told = {name: min(percentile(counts, part), longest) / 1000 for name, part in PARTS.items()}
    return {**told, "max": longest / 1000}
