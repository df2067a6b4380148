"""What a remote client drops without closing it ends without waiting for the server."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import shmq
from shmq import Broker
from shmq.client.remote.connection import Connection
from tests.support.processes import run_script
from tests.support.waiting import PATIENCE, eventually


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


_UNFINISHED = """
import sys
import shmq
broker = shmq.connect(sys.argv[1])
stream = broker.create_stream("events", 1)
stream.append_many([b"1", b"2", b"3"], partition=0)
lent = stream.share("g").consume()
kept = [lent, next(lent)]
"""


def test_a_process_that_ends_within_an_iteration_says_nothing(broker: Broker, url: str) -> None:
    run_script(_UNFINISHED, url)  # it writes nothing to stderr

    share = broker.stream("events").share("g")
    assert [record.body for record in share.get_many(3, timeout=PATIENCE)] == [b"1", b"2", b"3"]
