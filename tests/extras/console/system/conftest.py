"""One console for the tests of a module, over a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from tests.support.console import Console, console
from tests.support.namespaces import own_namespace


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A namespace that all tests of the module share: each uses names of its own."""
    with own_namespace() as name:
        yield name


@pytest.fixture(scope="module")
def site(place: str) -> Iterator[Console]:
    """A console that may change things, and asks for no token."""
    with console(place) as made:
        yield made


@pytest.fixture
def shop(place: str) -> Iterator[shmq.Broker]:
    """A local broker of the console's namespace, empty again at the end."""
    with shmq.connect(place) as broker:
        yield broker
        for name in reversed(broker.queue_names()):
            broker.delete_queue(name)
        for stream in broker.list_streams():
            broker.delete_stream(stream.name)
        for exchange in broker.list_exchanges():
            broker.delete_exchange(exchange.name)
