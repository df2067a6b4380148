"""Divides the rows of a batch, or the tasks of a read, among the places that have rows waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

#: A queue, a partition of a stream, or an index.
Place = TypeVar("Place", str, tuple[str, int], int)


def divide(
    waiting: Mapping[Place, int], limit: int | None, turn: Place | None = None
) -> tuple[dict[Place, int], Place | None]:
    """Divide ``limit`` rows among the places, and return the shares and the next ``turn``.

    If not all waiting rows fit, each waiting place gets one row, and the rest is divided in
    proportion to what waits. Rows that remain go to one place each, in rotation: the first is
    the one after ``turn``, the last place that got such a row. If there are fewer rows than
    waiting places, all rows are given out by that rotation, so that each of ``n`` places gets one
    within ``ceil(n / limit)`` batches. The shares are in the order of the rotation.
    """
    total = sum(waiting.values())
    places = _rotate((place for place, count in waiting.items() if count), turn)
    if limit is None or total <= limit:
        return {place: waiting[place] for place in places}, None
    by_backlog = _share_proportionally(waiting, places, limit) if limit >= len(places) else {}
    shares = {place: by_backlog.get(place, 0) for place in places}
    remainder = limit - sum(shares.values())
    for place in [each for each in places if shares[each] < waiting[each]][:remainder]:
        shares[place] += 1
        turn = place
    return shares, turn


def task_counts(sizes: Sequence[int], least: int) -> list[int]:
    """Into how many tasks to cut each of several ranges of rows: ``least`` in all, or more.

    A range without rows has no task, any other one at least one, and none has more tasks than rows.
    """
    limit = max(least, sum(size > 0 for size in sizes))
    counts, _ = divide(dict(enumerate(sizes)), limit)
    return [counts.get(index, 0) for index in range(len(sizes))]


def _share_proportionally(
    waiting: Mapping[Place, int], places: Sequence[Place], limit: int
) -> dict[Place, int]:
    """The limit in proportion to what waits, rounded down, but at least 1 for each place."""
    shares: dict[Place, int] = {}
    while True:
        total = sum(waiting[place] for place in places)
        small = [place for place in places if limit * waiting[place] < total]
        if not small:
            return shares | {place: limit * waiting[place] // total for place in places}
        shares |= dict.fromkeys(small, 1)
        places = [place for place in places if place not in shares]
        limit -= len(small)


def _rotate(places: Iterable[Place], turn: Place | None) -> list[Place]:
    """The places in order, those after ``turn`` first."""
    return sorted(places, key=lambda place: (turn is not None and not place > turn, place))
