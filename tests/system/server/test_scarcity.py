"""A server that has no descriptors left."""

from __future__ import annotations

import shutil

import pytest

import shmq
from shmq.protocol.opcodes import FOREVER, Status, Type
from tests.support.peer import Peer, name_of
from tests.support.waiting import eventually
from tests.system.server.conftest import Serve

pytestmark = pytest.mark.prove

LIMIT = 64


@pytest.fixture
def short(served: Serve) -> Serve:
    if shutil.which("prlimit") is None:
        pytest.skip("there is no prlimit (util-linux)")

    def start() -> object:
        return served(workers=1, before=["prlimit", f"--nofile={LIMIT}:{LIMIT}"])

    return start  # type: ignore[return-value]


def test_what_cannot_be_attached_to_for_want_of_descriptors_is_no_space(
    short: Serve, namespace: str
) -> None:
    server = short()
    with shmq.connect(namespace) as here:
        for number in range(LIMIT):
            here.create_queue(f"q{number}", dead_letter=None)

        with Peer(server) as peer, Peer(server) as other:
            other.ok(Type.PING)
            for number in range(LIMIT):  # a wait keeps the server attached
                peer.begin_to_take(f"q{number}", FOREVER)
            assert peer.receive().status == Status.NO_SPACE
            answer = other.ask(Type.STATS, name_of(f"q{LIMIT - 1}"))

        assert answer.status == Status.NO_SPACE
        assert b"open files" in answer.payload

    eventually(lambda: "open files" in server.log, "it is told")
    assert "Traceback" not in server.log
