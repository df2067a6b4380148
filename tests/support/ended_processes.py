"""Processes that tests kill, and whether they are gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import psutil

from tests.support.waiting import PATIENCE, eventually


def runs(pid: int) -> bool:
    """Whether that process runs, or a thread of it; what only waits to be reaped does not.

    As long as one of its threads is there, it has its files open and holds its locks.
    """
    try:
        return _runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _runs(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1


def kill_groups(leaders: Iterable[subprocess.Popen[Any] | psutil.Popen]) -> None:
    """Kill the process groups that these processes lead; return once all their processes are gone.

    A child whose parent was killed is still in its group.
    """
    leaders = list(leaders)
    groups = {leader.pid for leader in leaders}
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for leader in leaders:
        leader.wait(PATIENCE)
    eventually(lambda: not groups.intersection(_groups()), "the killed processes end")


def _groups() -> Iterator[int]:
    """The process groups of all processes that run."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if _runs(process):
                yield os.getpgid(process.pid)
