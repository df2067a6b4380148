"""A server that has no descriptors left."""

from __future__ import annotations

import shutil

import pytest

import shmq
from tests.conformance.tools import eventually
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

        with shmq.connect(server.url) as broker, pytest.raises(shmq.NoSpace, match="open files"):
            for number in range(LIMIT):
                broker.queue(f"q{number}").put("x", dedupe_id=None)

    eventually(lambda: "open files" in server.log, "it is told")
    assert "Traceback" not in server.log
