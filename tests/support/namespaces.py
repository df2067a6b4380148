"""Namespaces for the tests, which are removed at their end."""

from __future__ import annotations

import contextlib
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
    with shmq.connect(namespace) as broker:
        delete_all(broker)
    return [path.name for path in _in_shared_memory(namespace)]


def delete_all(broker: shmq.Broker) -> None:
    """Delete the queues, exchanges, streams and tables of the broker's namespace."""
    for summary in broker.list_queues():
        with contextlib.suppress(shmq.NoSuchQueue):  # staging queues go with their target
            broker.delete_queue(summary.name)
    for exchange in broker.list_exchanges():
        broker.delete_exchange(exchange.name)
    for stream in broker.list_streams():
        broker.delete_stream(stream.name)
    for table in broker.list_tables():
        broker.delete_table(table)


def _in_shared_memory(namespace: str) -> list[Path]:
    return sorted(path for path in SHM.iterdir() if namespace in path.name)
