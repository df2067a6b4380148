"""One broker per test, over each transport, in a namespace of its own.

A transport is an entry of ``TRANSPORTS``: it serves a namespace for the length of a
``with`` block and gives a function that connects one more client to it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import cast

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.http_broker import HttpBroker
from tests.support.http_servers import HTTP_SERVERS
from tests.support.nats_server import NATS_SERVER
from tests.support.processes import HOUR
from tests.support.tcp_servers import TCP_SERVERS

from . import nats_offers
from .http_offers import QUICK, offers

Connect = Callable[..., Broker]


@contextlib.contextmanager
def local(namespace: str) -> Iterator[Connect]:
    """Attached directly: no server."""
    yield lambda **how: shmq.connect(namespace, **how)


@contextlib.contextmanager
def tcp(namespace: str) -> Iterator[Connect]:
    """Over the network: a front end of a server that is there for the whole run."""
    with TCP_SERVERS.serve(namespace) as url:
        yield lambda **how: shmq.connect(url, **how)


@contextlib.contextmanager
def http(namespace: str) -> Iterator[Connect]:
    """By the console's API, as far as it offers what is tested: see `http_offers`."""
    with HTTP_SERVERS.serve(namespace) as url:
        yield lambda: cast(Broker, HttpBroker(url))


@contextlib.contextmanager
def nats(namespace: str) -> Iterator[Connect]:
    """By a server of NATS JetStream, as far as it can do what is tested: see `nats_offers`."""
    with NATS_SERVER.serve(namespace) as url:
        yield lambda **how: shmq.connect(url, **how)


TRANSPORTS: dict[str, Callable[[str], AbstractContextManager[Connect]]] = {
    "local": local,
    "tcp": tcp,
    "http": http,
    "nats": nats,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is marked ``only_local(why)`` looks at what no other transport can have.

    Over TCP and HTTP, `make test` runs each test once, with the first of its parameters, and none
    that waits for a disk: those, and the other parameters, are of `make prove`. What HTTP does not
    offer is in the tables of `http_offers`, with the reasons; of the rest some modules are quick.
    """
    items[:] = [item for item in items if _runs(item)]
    met: set[tuple[object, str]] = set()
    for item in items:
        if _transport(item) in {"tcp", "http", "nats"}:
            test = _transport(item), item.nodeid.partition("[")[0]
            slow = item.path.stem not in _QUICK.get(str(test[0]), {item.path.stem})
            if slow or test in met or "writer_process" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.prove)
            met.add(test)


#: The modules whose tests `make test` runs, where that is not all of them.
_QUICK = {"http": QUICK, "nats": nats_offers.QUICK}


def _runs(item: pytest.Item) -> bool:
    """Whether the test is for its transport."""
    transport = _transport(item)
    if transport == "http" and isinstance(item, pytest.Function):
        named = item.path.stem, item.originalname
        return offers(*named) and not _is_only_local(item)
    if transport == "nats" and isinstance(item, pytest.Function):
        test = item.originalname, _parameters(item)
        if nats_offers.is_refused(*test) or item.get_closest_marker("refused_by_clusters"):
            item.obj = _refused(item.obj)
        return nats_offers.offers(item.path.stem, *test) and not _is_only_local(item)
    return not (_is_only_local(item) and transport == "tcp")


#: What is not possible on a cluster, and why.
_WHY = r"is not possible on a cluster.*(\(|: |, )\w+|is the shortest of a cluster"


def _refused(test: Callable[..., None]) -> Callable[..., None]:
    """The test, which must raise Unsupported, and why: no xfail, which formats every traceback."""

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        with pytest.raises(shmq.Unsupported, match=_WHY):
            test(**arguments)

    return run


def _parameters(item: pytest.Function) -> str:
    """The parameters of a test but its transport, as pytest shows them."""
    return item.callspec.id.removeprefix("nats").removeprefix("-")


def _is_only_local(item: pytest.Item) -> bool:
    return item.get_closest_marker("only_local") is not None


def _transport(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("connect")


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest, namespace: str) -> Iterator[Connect]:
    """Connects one more client, which is closed after the test."""
    with TRANSPORTS[request.param](namespace) as client, contextlib.ExitStack() as clients:
        yield lambda **how: clients.enter_context(client(**how))


@pytest.fixture
def broker(connect: Connect) -> Broker:
    return connect()


@pytest.fixture
def queue(broker: Broker) -> Queue:
    """A queue whose leases outlast any test, however slow the machine is."""
    return broker.create_queue("q", visibility_timeout=HOUR)


@pytest.fixture
def other(connect: Connect, queue: Queue) -> Queue:
    """The same queue, from another client."""
    return connect().queue(queue.name)
