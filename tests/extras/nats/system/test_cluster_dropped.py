"""A message of a cluster that is dropped while it is leased: the line that drops it is named."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq.extras.nats.client import loop_thread
from shmq.extras.nats.client.broker import NatsBroker
from tests.support.nats_server import NATS_SERVER
from tests.support.waiting import PATIENCE


@pytest.fixture
def queue(namespace: str) -> Iterator[shmq.Queue]:
    with NATS_SERVER.serve(namespace) as url, NatsBroker.connect(url) as broker:
        yield broker.create_queue("q")


@pytest.mark.parametrize(
    "take",
    [
        lambda queue: queue.get,
        lambda queue: lambda: queue.get_many(1),
        lambda queue: queue.consume(prefetch=1).__next__,
    ],
    ids=["get", "get_many", "consume"],
)
def test_the_line_is_the_callers_though_the_loop_is_late(
    queue: shmq.Queue,
    monkeypatch: pytest.MonkeyPatch,
    take: Callable[[shmq.Queue], Callable[[], object]],
) -> None:
    queue.put(b"x")
    take_one = take(queue)
    dropped = threading.Event()
    end = loop_thread._Call._on_end

    def late(call: Any, result: Any, error: BaseException | None) -> None:
        end(call, result, error)
        dropped.wait(PATIENCE)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        monkeypatch.setattr(loop_thread._Call, "_on_end", late)
        take_one()
        dropped.set()
        monkeypatch.undo()
        queue.stats()  # the loop has gone on by then

    assert [one.filename for one in caught] == [__file__]


_LEFT = """
import atexit, sys, shmq
queue = shmq.connect(sys.argv[1]).queue("q")
bodies = queue.bodies(timeout=60)
assert next(bodies) == b"x"
left = [bodies]
left.append(left)
atexit.register(len, left)  # keeps it until all that runs at exit has run
"""


def test_what_the_interpreter_destroys_at_its_end_waits_for_no_answer(namespace: str) -> None:
    with NATS_SERVER.serve(namespace) as url, NatsBroker.connect(url) as broker:
        broker.create_queue("q").put(b"x")
        program = [sys.executable, "-c", _LEFT, url]
        done = subprocess.run(
            program, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
