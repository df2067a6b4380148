"""Servers and certificates for the tests of the server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import WHY_NOT, Certificates
from tests.support.server import Server, serve

Serve = Callable[..., Server]


@pytest.fixture
def served(namespace: str) -> Iterator[Serve]:
    """Starts servers of the test's namespace; each ends with the test, and must end well."""
    with contextlib.ExitStack() as stack:

        def start(**settings: Any) -> Server:
            return stack.enter_context(serve(namespace, **settings))

        yield start


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def server_pair(certificates: Certificates) -> tuple[Path, Path]:
    """The server's certificate and its key."""
    return certificates.sign("server")
