"""A namespace of this host and one of a server of NATS, and a bridge between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from tests.support.bridge import Bridged
from tests.support.nats_server import NATS_SERVER


@pytest.fixture
def bridged(namespace: str, broker: shmq.Broker) -> Iterator[Bridged]:
    with NATS_SERVER.serve(namespace) as url, shmq.connect(url) as there:
        yield Bridged(namespace, url, broker, there)
