"""What the tests with real processes share: children, and a queue whose leases last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shmq import Broker, Queue
from tests.support.processes import HOUR, Start


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
