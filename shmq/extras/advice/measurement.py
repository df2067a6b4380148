"""What a live queue says about its workload: rates, sizes, the time that leases last."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from shmq.api.queue import Queue
from shmq.api.stats import QueueStats

#: How often the queue is looked at, in seconds.
EVERY: Final = 0.1
#: Over how many seconds a peak is taken.
_PEAK: Final = 1.0
#: So many bodies say enough of their sizes, and so many leases of the work.
_SIZES: Final = 100
_MOST_LEASES: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was seen of a queue."""

    seconds: float
    #: Answers of a workload.
    answers: dict[str, Any]
    #: What else is of interest, a line each.
    remarks: tuple[str, ...]


@dataclasses.dataclass(slots=True)
class _Leases:
    """The leases that were seen: when each began, and how long the ended ones lasted."""

    lease: float
    begun: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)
    lasted: list[float] = dataclasses.field(default_factory=list)
    sizes: list[int] = dataclasses.field(default_factory=list)

    def look(self, queue: Queue, now: float) -> None:
        """Count the leases of now; one that is gone has ended since the last look."""
        seen = set()
        for one in queue.leases():
            key = (one.sequence, one.deliveries)
            seen.add(key)
            if key not in self.begun and len(self.begun) < _MOST_LEASES:
                self.begun[key] = now - min(max(self.lease - one.expires_in, 0.0), self.lease)
                self.sizes.append(one.size)
        for key in self.begun.keys() - seen:
            self.lasted.append(now - self.begun.pop(key))


def measure(
    queue: Queue, seconds: float, tell: Callable[[float, float], None] | None = None
) -> Measurement:
    """Look at the queue for ``seconds``; nothing is taken from it.

    ``tell`` is called with the seconds that have passed, and all.

    Work is the time that leases last. Where most leases are shorter than the time between two
    looks, it is their mean by Little's law: leased messages ÷ acknowledgements per second.
    """
    first, begun = queue.stats(), time.monotonic()
    leases = _Leases(queue.options.visibility_timeout)
    puts, in_flight = [(begun, first.put)], []
    while time.monotonic() - begun < seconds:
        time.sleep(min(EVERY, seconds))
        now, stats = time.monotonic(), queue.stats()
        puts.append((now, stats.put))
        in_flight.append(stats.in_flight)
        leases.look(queue, now)
        if tell is not None:
            tell(now - begun, seconds)
    last = queue.stats()
    taken = max(time.monotonic() - begun, EVERY)
    answers = _compute_rates(puts, taken) | _measure_sizes(queue, leases.sizes)
    answers |= _measure_work(leases, in_flight, (last.acked - first.acked) / taken)
    answers |= {"useful_for": queue.options.ttl} if queue.options.ttl is not None else {}
    return Measurement(seconds=taken, answers=answers, remarks=tuple(_make_remarks(first, last)))


def _compute_rates(puts: list[tuple[float, int]], taken: float) -> dict[str, Any]:
    """The mean rate, and the highest one over a second."""
    mean = (puts[-1][1] - puts[0][1]) / taken
    peak = mean
    at = 0
    for now, count in puts:
        while now - puts[at][0] > _PEAK:
            at += 1
        if now - puts[at][0] >= _PEAK / 2:
            peak = max(peak, (count - puts[at][1]) / (now - puts[at][0]))
    return {"rate": mean, "peak_rate": peak} if mean else {}


def _measure_sizes(queue: Queue, sizes: list[int]) -> dict[str, Any]:
    """The percentiles of the sizes of leased messages, and of waiting ones."""
    found = [*sizes, *(len(one.view) for one in queue.peek(_SIZES))]
    if not found:
        return {}
    p50, p99 = _compute_percentiles([float(one) for one in found])
    return {"body_p50": int(p50), "body_p99": int(p99)}


def _measure_work(leases: _Leases, in_flight: list[int], done: float) -> dict[str, Any]:
    mean = statistics.fmean(in_flight) / done if in_flight and done else None
    if mean is None:
        return {}
    if mean < 2 * EVERY or not leases.lasted:
        return {"work_p50": mean}
    p50, p99 = _compute_percentiles(leases.lasted)
    return {"work_p50": p50, "work_p99": p99}


def _compute_percentiles(found: list[float]) -> tuple[float, float]:
    ordered = sorted(found)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def _make_remarks(first: QueueStats, last: QueueStats) -> list[str]:
    labels = {
        "redelivered": "deliveries were not the first of their message",
        "expired": "leases ran out: the visibility timeout is short, or consumers hang",
        "nacked": "messages were returned",
        "dead_lettered": "messages became dead letters",
        "dropped": "messages were dropped",
        "deduped": "puts were duplicates",
    }
    counts = {name: getattr(last, name) - getattr(first, name) for name in labels}
    return [f"{count:,} {labels[name]}" for name, count in counts.items() if count]
