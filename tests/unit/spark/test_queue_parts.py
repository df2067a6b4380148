"""Into how many tasks a read of a queue is divided."""

from __future__ import annotations

import itertools
import os

import pytest

from shmq.spark.queue.reader import parts_of


@pytest.mark.parametrize(
    ("count", "least", "parts"),
    [
        (0, 0, 0),
        (1, 0, 1),
        (1_000, 0, 1),
        (1_001, 0, 2),
        (3_000, 0, 3),
        (1_000_000, 0, 4),
        (4_000_000, 0, 4),
        (4_000_001, 0, 8),
        (16_777_216, 0, 20),
        (10, 3, 3),
        (2, 3, 2),
    ],
)
def test_a_read_has_as_many_tasks_as_there_are_cores_or_a_multiple(
    monkeypatch: pytest.MonkeyPatch, count: int, least: int, parts: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    ranges = parts_of(count, least)
    sizes = [end - start for start, end in ranges]
    assert len(ranges) == parts
    assert sum(sizes) == count
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ranges))
