"""A measurement's own namespace, which is removed at its end."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import shmq

_numbers: Iterator[int] = itertools.count()


def unique_name() -> str:
    """A new name for a measurement's objects, unique to this process."""
    return f"bench-{os.getpid()}-{next(_numbers)}"


@contextlib.contextmanager
def scratch() -> Iterator[shmq.Broker]:
    """A broker of a new namespace; all that it has is deleted at the end."""
    name = unique_name()
    try:
        with shmq.connect(name) as broker:
            yield broker
    finally:
        delete_all(name)


def delete_all(namespace: str) -> None:
    """Delete all that the namespace has; other processes may delete some of it, too."""
    with shmq.connect(namespace) as broker:
        for summary in broker.list_queues():
            with contextlib.suppress(shmq.NoSuchQueue):
                broker.delete_queue(summary.name)
        for exchange in broker.list_exchanges():
            with contextlib.suppress(shmq.NoSuchExchange):
                broker.delete_exchange(exchange.name)
        for stream in broker.list_streams():
            with contextlib.suppress(shmq.NoSuchStream):
                broker.delete_stream(stream.name)
        for table in broker.list_tables():
            with contextlib.suppress(shmq.NoSuchTable):
                broker.delete_table(table)
