"""The durations of many steps, and their percentiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from bench.disk.figures import MEDIAN
from bench.machine import now
from bench.row import RATE, SECONDS

T = TypeVar("T")

#: The start and the end of the clock, and the duration of each call, in ns.
Times = tuple[int, int, list[int]]


def share(taken: Sequence[int], part: float) -> float:
    """The time in µs that this share of the steps, given in ns, did not exceed."""
    ordered = sorted(taken)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 1e3


def time_calls(
    meet: Callable[[], object],
    call: Callable[[T], object],
    arguments: Sequence[T],
    flush: Callable[[], object] = bool,
) -> Times:
    """Time a call with each argument but the first, after ``meet``; ``flush`` ends the clock."""
    taken = []
    call(arguments[0])
    meet()
    begun = before = now()
    for argument in arguments[1:]:
        call(argument)
        after = now()
        taken.append(after - before)
        before = after
    flush()
    return begun, now(), taken


def merge(found: Sequence[Times]) -> Times:
    """The times of calls that were made concurrently, as those of one caller."""
    begun = min(first for first, _, _ in found)
    ended = max(last for _, last, _ in found)
    return begun, ended, [one for _, _, taken in found for one in taken]


def figures(times: Times, messages: int) -> dict[str, float]:
    """The figures of so many messages."""
    begun, ended, taken = times
    seconds = (ended - begun) / 1e9
    return {RATE.key: messages / seconds, MEDIAN.key: share(taken, 0.5), SECONDS: seconds}
