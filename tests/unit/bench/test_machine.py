"""What the machine tells of its processes."""

from __future__ import annotations

import os
import time

import pytest

from bench.machine import cpu_clock


def test_the_cpu_time_of_a_process_is_finer_than_a_tick() -> None:
    clock = cpu_clock(os.getpid())

    before = time.process_time_ns()
    found = time.clock_gettime_ns(clock)
    after = time.process_time_ns()

    assert before <= found <= after
    assert time.clock_getres(clock) < 1e-6


def test_a_process_that_is_not_there_has_no_cpu_time() -> None:
    with pytest.raises(ProcessLookupError):
        cpu_clock(2**22 + 1)
