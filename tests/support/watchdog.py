"""Ends a test run that hangs, and shows where.

The watchdog is a separate process. A thread would hang with C code that holds the
interpreter's lock, and would make every fork in a test a fork of a threaded process. If a test
takes longer than its limit, the watchdog sends SIGABRT to the run and to all its descendants,
so that faulthandler writes the stacks of all threads. Then it kills the remaining processes.

The run sends lines to its standard input: ``SECONDS WHAT`` when something starts, and an empty
line when it ends. The end of the input ends the watchdog.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil

#: How long writing the stacks may take, in seconds.
GRACE = 5.0


class Watchdog:
    """The run's side: starts the watchdog and tells it what is running."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        starter = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(self._owner)], stdin=subprocess.PIPE
        )
        assert starter.stdin is not None
        self._lines = starter.stdin
        # The starter forks the watchdog and ends, so that all children of the run are made
        # by tests.
        starter.wait()

    def watch(self, what: str, seconds: float) -> None:
        """End the run unless :meth:`rest` is called within that time."""
        self._tell(f"{seconds} {what}\n")

    def rest(self) -> None:
        """Tell the watchdog that nothing is running."""
        self._tell("\n")

    def close(self) -> None:
        """End the watchdog."""
        self._lines.close()

    def _tell(self, line: str) -> None:
        if os.getpid() != self._owner:  # a test's forked child must not talk to the watchdog
            return
        with contextlib.suppress(BrokenPipeError):
            self._lines.write(line.encode())
            self._lines.flush()


def main() -> None:
    """The watchdog's side: ``watchdog.py PID``."""
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = psutil.Process(int(sys.argv[1]))
    what, limit = "", None
    while select.select([sys.stdin.buffer], [], [], limit)[0]:
        line = os.read(sys.stdin.fileno(), 65536).decode()
        if not line:
            return
        seconds, _, what = line.splitlines()[-1].partition(" ")
        limit = float(seconds) if seconds else None
    print(f"\nwatchdog: {what} did not end within {limit} s", file=sys.stderr, flush=True)
    _end(run)


def _end(run: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        doomed = [run, *run.children(recursive=True)]
        for last_word in (signal.SIGABRT, signal.SIGKILL):
            for process in doomed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(last_word)
            psutil.wait_procs(doomed, timeout=GRACE)


if __name__ == "__main__":
    main()
