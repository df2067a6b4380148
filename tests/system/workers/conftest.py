"""A journal, a queue, and crews that end with the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmq
from tests.system.workers.tools import Crew, Journal

Work = Callable[..., Crew]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def jobs(broker: shmq.Broker) -> shmq.Queue:
    """A queue whose messages come back soon, and of which no lease runs out in a test."""
    return broker.create_queue("jobs", retry_delay=0.01, visibility_timeout=3600)


@pytest.fixture
def started(namespace: str, tmp_path: Path, journal: Journal) -> Iterator[Callable[..., Crew]]:
    """Starts Python with arguments; what it says on stderr is the crew's log."""
    with contextlib.ExitStack() as stack:
        crews = iter(range(100))

        def start(*arguments: str) -> Crew:
            log = tmp_path / f"log-{next(crews)}"
            crew = Crew(list(arguments), namespace, log, journal)
            stack.callback(crew.close)
            return crew

        yield start


@pytest.fixture
def work(started: Callable[..., Crew]) -> Work:
    """Starts ``shmq worker`` on the queue ``jobs``."""

    def start(*flags: str, handler: str = "act", queue: str = "jobs") -> Crew:
        target = f"tests.system.workers.handlers:{handler}"
        return started("-m", "shmq.cli", "worker", target, "-q", queue, *flags)

    return start
