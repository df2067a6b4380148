"""A server for each test, a client of it, and a proxy between the two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.proxy import Proxy
from tests.support.tcp_servers import TCP_SERVERS


@pytest.fixture
def url(namespace: str) -> Iterator[str]:
    """Where the test's own namespace is served."""
    with TCP_SERVERS.serve(namespace) as url:
        yield url


@pytest.fixture
def broker(url: str) -> Iterator[Broker]:
    """A client that speaks to the server directly."""
    with shmq.connect(url) as broker:
        yield broker


@pytest.fixture
def queue(broker: Broker) -> Queue:
    """A local handle of the queue."""
    return broker.create_queue("q")


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy before the server."""
    proxy = Proxy(url)
    yield proxy
    proxy.close()


@pytest.fixture
def afar(proxy: Proxy) -> Iterator[Broker]:
    """A client that speaks through the proxy."""
    with shmq.connect(proxy.url, request_timeout=30) as broker:
        yield broker
