"""What tasks have run, as a file that any number of processes append to."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

#: The environment's variables: where the queues are, the broker's options as JSON, the ledger.
TARGET, OPTIONS, LEDGER = "SHMQ_TASKS_TARGET", "SHMQ_TASKS_OPTIONS", "SHMQ_TASKS_LEDGER"

#: How long a task takes after it was noted, in seconds: so that most kills find some of them begun.
WORK = 0.005

#: The bytes of an entry: eight digits and the end of the line.
ENTRY = 9


def note(number: int) -> None:
    """Append that the task ``number`` ran, whole, even if the process is killed."""
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(ledger, b"%08d\n" % number)
    finally:
        os.close(ledger)


def is_late(number: int, count: int) -> bool:
    """Whether that task of so many is of the last fifth, which the test lets begin."""
    return number >= count - count // 5


def is_open() -> bool:
    """Whether late tasks may begin."""
    return _gate(Path(os.environ[LEDGER])).exists()


def note_waiting() -> None:
    """Note that a late task was handed to a worker, and waits."""
    _waiting(Path(os.environ[LEDGER])).touch()


def _waiting(ledger: Path) -> Path:
    return ledger.with_suffix(".waiting")


def _gate(ledger: Path) -> Path:
    return ledger.with_suffix(".open")


class Ledger:
    """The tests' side."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def open(self) -> None:
        """Let late tasks begin."""
        _gate(self.path).touch()

    def has_waiting(self) -> bool:
        """Whether a late task was handed to a worker."""
        return _waiting(self.path).exists()

    def count(self) -> int:
        """How many runs there were so far."""
        return self.path.stat().st_size // ENTRY

    def runs(self) -> Counter[int]:
        """How often each task ran."""
        return Counter(map(int, self.path.read_text().split()))
