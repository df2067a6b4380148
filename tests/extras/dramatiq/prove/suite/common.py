"""What dramatiq's tests import from ``tests/common.py``, which its source distribution lacks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from dramatiq import Broker, Worker

RABBITMQ_USERNAME = RABBITMQ_PASSWORD = "guest"
RABBITMQ_CREDENTIALS = None

skip_unless_rabbit_mq = pytest.mark.skip(reason="of RabbitMQ's own connections")


def _run_here(test: Any) -> Any:
    return test


skip_in_ci = skip_on_windows = skip_on_pypy = _run_here


@contextlib.contextmanager
def worker(broker: Broker, *arguments: Any, **options: Any) -> Iterator[Worker]:
    """A worker for the block."""
    started = Worker(broker, *arguments, **options)
    started.start()
    threads: list[Any] = [*started.workers, *started.consumers.values()]
    while not all(thread.running for thread in threads):  # one that is stopped before never ends
        time.sleep(0.001)
    try:
        yield started
    finally:
        started.stop()
