"""One broker per test, over each transport, in a namespace of its own.

A transport is an entry of ``TRANSPORTS``: it serves a namespace for the length of a
``with`` block and gives a function that connects one more client to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import shmq
from shmq import Broker, Queue

Connect = Callable[[], Broker]


@contextlib.contextmanager
def local(namespace: str) -> Iterator[Connect]:
    """Attached directly: no server."""
    yield lambda: shmq.connect(namespace)


TRANSPORTS: dict[str, Callable[[str], AbstractContextManager[Connect]]] = {"local": local}


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest, namespace: str) -> Iterator[Connect]:
    """Connects one more client, which is closed after the test."""
    with TRANSPORTS[request.param](namespace) as client, contextlib.ExitStack() as clients:
        yield lambda: clients.enter_context(client())


@pytest.fixture
def broker(connect: Connect) -> Broker:
    return connect()


@pytest.fixture
def queue(broker: Broker) -> Queue:
    """A queue with the default options."""
    return broker.create_queue("q")


@pytest.fixture
def other(connect: Connect, queue: Queue) -> Queue:
    """The same queue, from another client."""
    return connect().queue(queue.name)
