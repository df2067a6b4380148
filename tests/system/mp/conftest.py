"""What the tests of shmq.mp share: a namespace of which nothing may be left."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.processes import Start, files_of
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def own_namespace(namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """New queues are made in the test's own namespace, and leave nothing of it."""
    monkeypatch.setenv("SHMQ_MP_NAMESPACE", namespace)
    yield namespace
    gc.collect()
    # A collection in another thread, such as a guardian's, may be running the destructors.
    eventually(lambda: queues_of(namespace) == [], "nothing is left")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts children of the test."""
    starter = Start()
    yield starter
    starter.close()


def queues_of(namespace: str) -> list[str]:
    """The files of queues; the namespace's file stays while a process may use it."""
    return [name for name in files_of(namespace) if name != f"shmq@{namespace}"]
