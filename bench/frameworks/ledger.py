"""What workers have done: a pipe into which each task writes its number and when it ran."""

from __future__ import annotations

import os
import select
import struct
import time
from pathlib import Path
from typing import Final

from bench.machine import now
from bench.stage import Failed

#: The environment variable with the pipe's path, for workers.
PIPE: Final = "BENCH_LEDGER"
#: A task's number and the time at which it ran, in ns of CLOCK_MONOTONIC.
_LINE: Final = struct.Struct("<QQ")
#: Seconds within which a task must have run.
PATIENCE: Final = 60.0

_written: dict[int, int] = {}


def note(number: int) -> None:
    """Note that task ``number`` runs now. For workers; each process opens the pipe once.

    A line is shorter than PIPE_BUF, so lines of several processes do not mix.
    """
    process = os.getpid()
    if process not in _written:
        _written[process] = os.open(os.environ[PIPE], os.O_WRONLY)
    os.write(_written[process], _LINE.pack(number, now()))


class Ledger:
    """The reading end of the pipe."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        # Open for writing too, so that the end of a worker is not the end of the pipe.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._fd)

    def await_all(self, numbers: range, *, strangers: bool = False) -> dict[int, int]:
        """When each of the tasks ran. Raises Failed if one ran twice, or none of them came.

        With ``strangers`` other tasks are passed over: those that the worker before ran and did
        not acknowledge, as it was ended.
        """
        ran: dict[int, int] = {}
        end = time.monotonic() + PATIENCE
        while len(ran) < len(numbers):
            for number, at in self._lines(end):
                if strangers and number not in numbers:
                    continue
                if number not in numbers or number in ran:
                    raise Failed(f"task {number} ran twice, or is of another turn")
                ran[number] = at
            if time.monotonic() > end:
                raise Failed(f"{len(numbers) - len(ran)} of {len(numbers)} tasks did not run")
        return ran

    def _lines(self, end: float) -> list[tuple[int, int]]:
        select.select([self._fd], [], [], max(0.0, end - time.monotonic()))
        try:
            found = self._rest + os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return []
        whole = len(found) // _LINE.size * _LINE.size
        self._rest = found[whole:]
        return [(number, at) for number, at in _LINE.iter_unpack(found[:whole])]
