"""A Celery application of one task; its worker is told the broker by the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from celery import Celery

from bench.frameworks.ledger import note

BROKER = "BENCH_BROKER"


def made(url: str) -> tuple[Any, Any]:
    """An application on that broker, and its task ``note(number)``."""
    app = Celery("bench", broker=url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=16,
        broker_connection_retry_on_startup=True,
        worker_send_task_events=False,
    )
    return app, app.task(name="bench.note")(note)


@contextlib.contextmanager
def sender(url: str) -> Iterator[Callable[[range], None]]:
    """A function that sends the tasks of those numbers."""
    app, task = made(url)
    with app, app.producer_or_acquire() as producer:

        def send(numbers: range) -> None:
            for number in numbers:
                task.apply_async((number,), producer=producer)

        yield send


if BROKER in os.environ:
    app, _ = made(os.environ[BROKER])
