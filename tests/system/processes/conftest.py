"""What the tests with real processes share: children, and a queue whose leases last."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from shmq import Broker, Queue
from shmq.namespace import name_book
from tests.support.processes import HOUR, Start


@pytest.fixture(autouse=True)
def few_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files other tests have in /dev/shm meanwhile, it is listed when it changes."""
    if "many_files" not in request.fixturenames:
        monkeypatch.setattr(name_book, "_FEW", sys.maxsize)


@pytest.fixture
def start(namespace: str) -> Iterator[Start]:
    """Starts children of the test."""
    starter = Start()
    yield starter
    starter.close()


@pytest.fixture
def queue(broker: Broker) -> Queue:
    """A queue of which no lease runs out during a test."""
    return broker.create_queue("q", visibility_timeout=HOUR)
