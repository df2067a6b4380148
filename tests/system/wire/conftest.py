"""A server for all tests of the folder, a server of a test's own, and queues of their own."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

import shmq
from tests.support.namespaces import SHM
from tests.support.server import Server
from tests.support.server import serve as serve_namespace
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import T


class Serve(Protocol):
    """Starts a server for as long as the context: see :func:`tests.support.server.serve`."""

    def __call__(self, **settings: Any) -> contextlib.AbstractContextManager[Server]: ...


@contextlib.contextmanager
def _serve(**settings: Any) -> Iterator[Server]:
    """A server with a namespace of its own, of which nothing is left."""
    namespace = f"test-{secrets.token_hex(6)}"
    try:
        with serve_namespace(namespace, **settings) as server:
            yield server
        with shmq.connect(namespace) as broker:
            for summary in reversed(broker.list_queues()):
                broker.delete_queue(summary.name)
            for stream in broker.list_streams():
                broker.delete_stream(stream.name)
            for exchange in broker.list_exchanges():
                broker.delete_exchange(exchange.name)
            for table in broker.list_tables():
                broker.delete_table(table)
        left = [path.name for path in SHM.iterdir() if namespace in path.name]
    finally:
        for path in SHM.iterdir():
            if namespace in path.name and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif namespace in path.name:
                path.unlink(missing_ok=True)
    assert not left, f"left in {SHM} after every queue was deleted: {', '.join(left)}"


@pytest.fixture(scope="session")
def serve() -> Serve:
    """Starts servers."""
    return _serve


@pytest.fixture(scope="package")
def shared_server(serve: Serve) -> Iterator[Server]:
    """The server of all tests that need none of their own: two workers, no token."""
    with serve(workers=2) as server:
        yield server


@pytest.fixture
def address(shared_server: Server) -> Address:
    return shared_server.address


@pytest.fixture
def broker(shared_server: Server) -> Iterator[shmq.Broker]:
    """A local process's broker of the queues that the server serves."""
    with shmq.connect(shared_server.namespace) as broker:
        yield broker


@pytest.fixture
def wire(address: Address) -> Iterator[Wire]:
    with Wire(address) as wire:
        yield wire


@pytest.fixture
def name(address: Address) -> Iterator[str]:
    """A name that no queue has yet; what the test makes of it is deleted."""
    name = f"q-{secrets.token_hex(4)}"
    yield name
    with Wire(address) as wire:
        for each in wire.names():
            if name in each:
                wire.ok(T.DELETE, frames.name(each))


@pytest.fixture
def make_queue(address: Address, name: str) -> Callable[..., str]:
    """Makes queues with options."""
    made = iter(range(1000))

    def make(**options: object) -> str:
        queue = f"{name}.{next(made)}"
        with Wire(address) as wire:
            wire.create(queue, **options)
        return queue

    return make


@pytest.fixture
def queue(make_queue: Callable[..., str]) -> str:
    """A queue with the default options."""
    return make_queue()
