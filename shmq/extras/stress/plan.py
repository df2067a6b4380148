"""The plan of a stress run, and its result: workers, duration, bodies, kills; samples and rates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from shmq.extras.stress.counters import percentile

#: The size of the smallest body, in bytes: producer, number, time of the put, and checksum.
LEAST_SIZE = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many producers and consumers work, and for how long or how many messages."""

    producers: int = 2
    consumers: int = 2
    #: How long the producers put, in seconds; None if `messages` is the limit.
    seconds: float | None = 5.0
    #: How many messages are put in all.
    messages: int | None = None
    #: Bytes of a body, at least :data:`LEAST_SIZE`.
    size: int = 64
    #: Messages in one call; 1: `put`, `get` and `ack`, more: `put_many` and so on.
    batch: int = 1
    #: Whether consumers are killed at random, and others started in their place.
    kill: bool = False
    #: Whether the messages of each producer are a group.
    grouped: bool = False
    seed: int = 0

    @property
    def careful(self) -> bool:
        """Whether each step is written at once, so that it survives a kill."""
        return self.kill or self.grouped

    def share(self, producer: int) -> int | None:
        """How many messages the producer puts, the first producer being 1; None: no limit."""
        if self.messages is None:
            return None
        whole, rest = divmod(self.messages, self.producers)
        return whole + (producer <= rest)


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
    latencies = {
        name: min(percentile(counts, part), longest) / 1000 for name, part in PARTS.items()
    }
    return {**latencies, "max": longest / 1000}
