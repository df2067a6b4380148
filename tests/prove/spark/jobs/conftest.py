"""What the tests of jobs start from."""

from __future__ import annotations

import pytest

import shmq


@pytest.fixture
def queue(broker: shmq.Broker) -> shmq.Queue:
    """The queue of :func:`tests.prove.spark.jobs.tools.queue_of`, with ten batches."""
    made = broker.create_queue("in", dead_letter=None)
    made.put_many([b"x"] * 100)
    return made
