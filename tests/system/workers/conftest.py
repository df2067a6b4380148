"""A journal, a queue, and workers that end with the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmq
from tests.system.workers.tools import Journal, Workers

Work = Callable[..., Workers]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def jobs(broker: shmq.Broker) -> shmq.Queue:
    """A queue whose messages come back soon, and of which no lease runs out in a test."""
    return broker.create_queue("jobs", retry_delay=0.01, visibility_timeout=3600)


@pytest.fixture
def started(namespace: str, tmp_path: Path, journal: Journal) -> Iterator[Callable[..., Workers]]:
    """Starts Python with arguments; what it says on stderr is their log."""
    with contextlib.ExitStack() as stack:
        numbers = iter(range(100))

        def start(*arguments: str) -> Workers:
            log = tmp_path / f"log-{next(numbers)}"
            workers = Workers(list(arguments), namespace, log, journal)
            stack.callback(workers.close)
            return workers

        yield start


@pytest.fixture
def work(started: Callable[..., Workers]) -> Work:
    """Starts ``shmq worker`` on the queue ``jobs``."""

    def start(*flags: str, handler: str = "act", queue: str = "jobs") -> Workers:
        target = f"tests.system.workers.handlers:{handler}"
        return started("-m", "shmq.cli", "worker", target, "-q", queue, *flags)

    return start
