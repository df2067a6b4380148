"""Connections of kombu to the test's namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.frameworks import namespace, target

__all__ = ["connection", "namespace", "target"]


@pytest.fixture
def connection(namespace: str) -> Iterator[Any]:
    """A connection of kombu to the namespace."""
    kombu = pytest.importorskip("kombu", reason="the package kombu (extra 'celery') is missing")
    pytest.importorskip("celery", reason="the package celery (the extra 'celery') is missing")
    import shmq.extras.celery  # noqa: F401 - it registers the scheme

    with kombu.Connection(f"shmq:///{namespace}") as connection:
        yield connection
