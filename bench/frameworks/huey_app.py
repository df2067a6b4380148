"""A huey application of one task; its consumer finds the broker in the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from huey.serializer import SignedSerializer

from bench.frameworks.ledger import note

BROKER = "BENCH_BROKER"


def made(url: str) -> tuple[Any, Any]:
    """An application on that broker, and its task ``note(number)``."""
    options = {"url": url, "results": False, "serializer": SignedSerializer(secret=BROKER)}
    app: Any
    if url.startswith("redis"):
        from huey import RedisHuey

        app = RedisHuey("bench", **options)
    else:
        from shmq.extras.huey import ShmqHuey

        app = ShmqHuey("bench", **options)
    return app, app.task(name="note")(note)


@contextlib.contextmanager
def sender(url: str) -> Iterator[Callable[[range], None]]:
    """A function that sends the tasks of those numbers."""
    app, task = made(url)

    def send(numbers: range) -> None:
        for number in numbers:
            task(number)

    yield send
    app.storage.close()


if BROKER in os.environ:
    huey, _ = made(os.environ[BROKER])
