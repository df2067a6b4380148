"""An application of FastStream is killed while it handles messages: none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
from faststream import FastStream

import shmq
from shmq.extras.faststream import ShmqBroker
from tests.support.processes import HOUR, Child, Start, sleep_undisturbed
from tests.support.server import serve
from tests.support.waiting import eventually

COUNT = 2_000


@pytest.fixture(params=["here", "tcp"])
def target(request: pytest.FixtureRequest, namespace: str) -> Iterator[str]:
    """What the application connects to."""
    if request.param == "here":
        yield namespace
        return
    with serve(namespace) as server:
        yield server.url


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts children of the test."""
    starter = Start()
    yield starter
    starter.close()


def application(pipe: Connection, target: str) -> None:
    """An application that passes each number on, until it is killed."""
    broker = ShmqBroker(target, logger=None)

    @broker.subscriber("in", max_workers=8, prefetch=32)
    @broker.publisher("out")
    async def handle(number: int) -> int:
        return number

    app = FastStream(broker, logger=None)
    app.after_startup(lambda: pipe.send("started"))
    asyncio.run(app.run())


def test_an_application_that_is_killed_again_and_again_loses_no_message(
    target: str, broker: shmq.Broker, start: Start
) -> None:
    numbers = broker.create_queue(
        "in", max_deliveries=None, retry_delay=0, capacity=COUNT, visibility_timeout=HOUR
    )
    out = broker.create_queue("out", capacity=4 * COUNT)
    assert numbers.put_many(range(COUNT), codec="json") == COUNT
    for part in range(1, 4):
        child: Child = start(application, target, method="spawn")
        child.hear()
        enough = part * COUNT // 8
        eventually(lambda: numbers.stats().acked > enough, "it works")  # noqa: B023 - called here
        child.kill()
    assert 0 < numbers.stats().acked < COUNT
    last = start(application, target, method="spawn")
    last.hear()
    eventually(lambda: numbers.stats().acked == COUNT, "all are handled")
    last.kill()
    found = set()
    with contextlib.suppress(shmq.Empty):
        while True:
            with out.get(timeout=0) as message:
                found.add(message.body)
    assert found == set(range(COUNT))
    assert numbers.stats().dead_lettered == 0


def test_an_idle_application_sleeps(target: str, broker: shmq.Broker, start: Start) -> None:
    child = start(application, target, method="spawn")
    child.hear()
    eventually(lambda: broker.queue("in").attachments() != [], "it reads")
    sleep_undisturbed([child.pid], 3.0, 90)  # a wait thread's slices of 50 ms
