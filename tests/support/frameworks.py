"""Fixtures of the frameworks: a namespace of the test's own, in memory and over TCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.namespaces import own_namespace
from tests.support.tcp_servers import TCP_SERVERS


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace of the test's own, in which a server may live on."""
    with own_namespace(inhabited=True) as name:
        yield name


@pytest.fixture(params=["memory", pytest.param("tcp", marks=pytest.mark.prove)])
def target(request: pytest.FixtureRequest, namespace: str) -> Iterator[str]:
    """What a broker is given to reach the namespace; `make test` runs each test in memory."""
    if request.param == "memory":
        yield namespace
    else:
        with TCP_SERVERS.serve(namespace) as url:
            yield url
