"""Namespaces for the tests, which are removed at their end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import shmq

SHM = Path("/dev/shm")


@contextlib.contextmanager
def own_namespace(*, debris: bool = False, inhabited: bool = False) -> Iterator[str]:
    """A new namespace, of which nothing may be left at the end.

    Its own file may be left if it is ``inhabited``: processes without a queue live on in it.
    """
    name = f"test-{secrets.token_hex(6)}"
    yield name
    try:
        leaked = [] if debris else _left_after_deletion(name)
        if inhabited:
            leaked = [left for left in leaked if left != f"shmq@{name}"]
    finally:
        for path in _in_shared_memory(name):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    assert not leaked, f"left in {SHM} after every queue was deleted: {', '.join(leaked)}"


def _left_after_deletion(namespace: str) -> list[str]:
    if not _in_shared_memory(namespace):
        return []
    with shmq.connect(namespace) as broker:
        delete_all(broker)
    return [path.name for path in _in_shared_memory(namespace)]


def delete_all(broker: shmq.Broker) -> None:
    """Delete the queues, exchanges, streams and tables of the broker's namespace."""
    broker.list_queues()  # which deletes those that end with a process that was killed
    for queue in broker.queue_names():
        with contextlib.suppress(shmq.NoSuchQueue):  # staging queues go with their target
            broker.delete_queue(queue)
    for exchange in broker.list_exchanges():
        broker.delete_exchange(exchange.name)
    for stream in broker.list_streams():
        with contextlib.suppress(shmq.NoSuchStream):  # a client deletes it at the same time
            broker.delete_stream(stream.name)
    for table in broker.list_tables():
        broker.delete_table(table)


def _in_shared_memory(namespace: str) -> list[Path]:
    return sorted(SHM / name for name in os.listdir(SHM) if namespace in name)
