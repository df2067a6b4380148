"""What a remote client drops without closing it ends without waiting for the server."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import shmq
from shmq import Broker
from shmq.client.remote.connection import Connection
from tests.support.waiting import eventually


@pytest.fixture
def collected_by_hand() -> Iterator[None]:
    """The garbage collector runs only where the test calls it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collected_by_hand")
@pytest.mark.debris  # the server and this process have a stream open, and keep the namespace
@pytest.mark.parametrize("kind", ["group", "share"])
def test_a_member_leaves_its_group_without_an_answer(
    broker: Broker, namespace: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    stream = broker.create_stream("events", 1)
    member = stream.group("g").join() if kind == "group" else stream.share("g")
    member.__dict__["itself"] = member
    del member
    with shmq.connect(namespace) as here:
        group = next(iter(here.stream("events").groups()))
        assert group.members == 1

        with monkeypatch.context() as patch:
            patch.setattr(Connection, "call", lambda *_, **__: pytest.fail("it asks"))
            gc.collect()
        eventually(
            lambda: here.stream("events").groups()[0].members == 0, "the server has heard of it"
        )
    assert stream.latest(0) == 0, "the connection is as good as before"
