"""A traced broker, and what is recorded of it."""

from __future__ import annotations

import pytest

import shmq
from tests.support.telemetry import Recorder


@pytest.fixture
def recorded() -> Recorder:
    return Recorder()


@pytest.fixture
def traced(broker: shmq.Broker, recorded: Recorder) -> shmq.Broker:
    return recorded.instrument(broker)


@pytest.fixture
def jobs(traced: shmq.Broker) -> shmq.Queue:
    return traced.create_queue("jobs", retry_delay=0.01)
