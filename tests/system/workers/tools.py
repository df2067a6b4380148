"""A crew for the tests: the command ``shmq worker`` as a process, and what it has done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.support.ended_processes import runs
from tests.support.logged import Logged
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE, eventually


class Entry(NamedTuple):
    """A line of the journal that the handlers write."""

    what: str
    number: int
    pid: int
    delivery: int


class Journal:
    """What the handlers have written so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._gate = path.with_name("gate")

    def entries(self, what: str | None = None) -> list[Entry]:
        text = self.path.read_text() if self.path.exists() else ""
        rows = (line.split() for line in text.splitlines())
        entries = [Entry(row[0], *map(int, row[1:])) for row in rows]
        return [entry for entry in entries if what in (None, entry.what)]

    def numbers(self, what: str) -> list[int]:
        return [entry.number for entry in self.entries(what)]

    def until(self, what: str, count: int) -> list[Entry]:
        """The entries, once there are so many."""
        eventually(lambda: len(self.entries(what)) >= count, f"{count} times {what}")
        return self.entries(what)

    def open_gate(self) -> None:
        """Let all go on that wait, now or later."""
        self._gate.touch()


class Workers(Logged):
    """A supervisor with its processes, started by a command."""

    process: psutil.Popen

    def __init__(self, command: list[str], namespace: str, log: Path, journal: Journal) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = psutil.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment(SHMQ_NAMESPACE=namespace, JOURNAL=journal.path),
                stdin=subprocess.DEVNULL,
                stderr=stderr,
            )

    def has_ended(self) -> bool:
        """Whether nothing more will be written: its workers may write after its end."""
        return False

    def ready(self, count: int) -> None:
        """Return once so many processes take messages."""
        self.hears("consumes queue", count)

    def started(self) -> list[int]:
        """The process ids of all workers there ever were."""
        return [int(pid) for pid in self.said(r"started, pid (\d+)")]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for the supervisor's end; its exit code. None of its workers is left."""
        code = int(self.process.wait(PATIENCE))
        self.leaves_no_process()
        return code

    def stops(self) -> int:
        """Ask it to end, and wait for that."""
        self.signal(signal.SIGTERM)
        return self.ends()

    def leaves_no_process(self) -> None:
        eventually(lambda: not any(map(runs, self.started())), "the workers end")

    def close(self) -> None:
        """Kill the supervisor, if it still runs; its workers do not outlive it."""
        if self.process.poll() is None:
            pids = [child.pid for child in self.process.children(recursive=True)]
            self.process.kill()
            self.process.wait()
            eventually(lambda: not any(map(runs, pids)), "the workers end")


def overlaps(entries: list[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """The adjacent pairs that are not a beginning and its end."""
    for first, second in zip(entries[::2], entries[1::2], strict=True):
        if (first.what, second.what) != ("begin", "end") or first.number != second.number:
            yield first, second


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
