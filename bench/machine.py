"""The measured machine: its cores, and its description for readers of the figures."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from pathlib import Path
from typing import Literal

now = time.monotonic_ns
"""The clock of every measurement: CLOCK_MONOTONIC, alike in all processes, in ns."""


def cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, for ``time.clock_gettime_ns``: clock_getcpuclockid(3).

    The times in /proc are in ticks of 10 ms, too coarse for a process that does little. Raises
    ProcessLookupError.
    """
    clock = ctypes.c_int()
    error = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise ProcessLookupError(error, f"process {pid}: {os.strerror(error)}")
    return clock.value


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def two_cores() -> tuple[int, int]:
    """The cores of the two sides of a measurement: one each if there are two."""
    mine = cores()
    return mine[0], mine[min(1, len(mine) - 1)]


#: A client and its server on the same core, or on one core each.
Place = Literal["one core", "two cores"]


def cores_of(place: Place) -> tuple[int, int] | None:
    """The cores of the two sides; None if there is only one core."""
    here, there = two_cores()
    if place == "one core":
        return here, here
    return (here, there) if there != here else None


def pin(core: int) -> None:
    """Run this process only on that core."""
    os.sched_setaffinity(0, {core})


def describe() -> dict[str, str | int]:
    """The machine and software on which the figures were measured."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "Model"))
    ]
    return {
        "processor": model[0] if model else platform.machine(),
        "cores": len(cores()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
