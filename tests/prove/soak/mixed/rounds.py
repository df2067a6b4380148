"""Rounds for a given time, of which a busy host has time for one at least."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator


def until(end: float) -> Iterator[int]:
    """The numbers of the rounds that begin before ``end``, on the monotonic clock, and 0."""
    for number in itertools.count():
        if number and time.monotonic() >= end:
            return
        yield number
