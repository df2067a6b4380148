"""Latencies are told to within a bucket's width."""

from __future__ import annotations

import random
from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies

from shmq.extras.stress.counters import BUCKETS, bucket_of, percentile, sum_counts, upper_bound


@hypothesis.given(ns=strategies.integers(0, (1 << 42) - 1))
def test_a_bucket_is_as_narrow_as_promised(ns: int) -> None:
    bound = upper_bound(bucket_of(ns))

    assert ns <= bound <= ns + ns // 64


def test_buckets_follow_each_other_without_a_gap() -> None:
    for bucket in range(BUCKETS - 1):
        assert bucket_of(upper_bound(bucket)) == bucket
        assert bucket_of(upper_bound(bucket) + 1) == bucket + 1
    assert bucket_of(1 << 60) == BUCKETS - 1


@pytest.mark.parametrize("part", [0.5, 0.9, 0.99, 0.999, 1.0])
def test_a_percentile_is_that_of_the_sorted_values(part: float) -> None:
    chance = random.Random(7)
    values = sorted(int(chance.lognormvariate(10, 2)) for _ in range(5000))
    counted = Counter(map(bucket_of, values))

    told = percentile([counted[bucket] for bucket in range(BUCKETS)], part)

    exact = values[int(part * len(values)) - 1]
    assert exact <= told <= exact + exact // 64


def test_nothing_counted_is_no_latency() -> None:
    assert percentile([0] * BUCKETS, 0.5) == 0


def test_histograms_are_added_bucket_by_bucket() -> None:
    assert sum_counts([[1, 0, 2], [0, 5, 1]]) == [1, 5, 3]
