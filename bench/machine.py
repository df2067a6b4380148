"""The machine that is measured: its cores, and what a reader of the figures wants to know."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Literal

now = time.monotonic_ns
"""The clock of every measurement: CLOCK_MONOTONIC, alike in all processes, in ns."""


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def two_cores() -> tuple[int, int]:
    """Where the two sides of a measurement run: one core each if there are two."""
    mine = cores()
    return mine[0], mine[min(1, len(mine) - 1)]


#: A client and its server on the same core, or on one each.
Place = Literal["one core", "two cores"]


def cores_of(place: Place) -> tuple[int, int] | None:
    """Where the two sides run; None: there is but one core."""
    here, there = two_cores()
    if place == "one core":
        return here, here
    return (here, there) if there != here else None


def pin(core: int) -> None:
    """Run this process on that core only."""
    os.sched_setaffinity(0, {core})


def describe() -> dict[str, str | int]:
    """What the figures were measured on."""
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
