"""Waits end in programs whose tests freeze Python's clock."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import shmq
from tests.support.namespaces import own_namespace
from tests.support.processes import run_script
from tests.support.tcp_servers import TCP_SERVERS

#: How each library freezes the clock.
FREEZERS = {
    "freezegun": "from freezegun import freeze_time; freeze_time('2030-01-01').start()",
    "time-machine": "import time_machine; time_machine.travel(1.9e9, tick=False).start()",
}

#: Each wait in turn, with a timeout. A wait that does not end prints where it is.
WAITS = """
import asyncio, contextlib, faulthandler, sys
import shmq
broker = shmq.connect(sys.argv[1])
queue, full, stream = broker.queue("q"), broker.queue("full"), broker.stream("s")
table, exchange = broker.ensure_table("t"), broker.exchange("e")
{freeze}
SOON = 0.05

async def aread():
    async for _ in stream.areader("latest", timeout=SOON):
        pass

async def asubscribe():
    async for _ in broker.asubscribe("s", timeout=SOON):
        pass

async def aconsume():
    async with queue.aconsume(timeout=SOON) as messages:
        async for _ in messages:
            pass

def join():
    with stream.group("g").join("m") as member:
        member.poll(timeout=SOON)

waits = {{
    "get": lambda: queue.get(timeout=SOON),
    "get_many": lambda: queue.get_many(5, SOON),
    "get where": lambda: queue.get(timeout=SOON, where="priority = 1"),
    "put": lambda: full.put(b"", block=True, timeout=SOON),
    "consume": lambda: list(queue.consume(timeout=SOON)),
    "wait": lambda: shmq.wait([queue], SOON),
    "read": lambda: stream.read(0, stream.latest(0), block=True, timeout=SOON),
    "reader": lambda: list(stream.reader("latest", timeout=SOON)),
    "member": join,
    "table": lambda: table.wait("key", SOON),
    "request": lambda: broker.request("asked", 1, SOON),
    "publish": lambda: exchange.publish(b"", key="full", block=True, timeout=SOON),
    "aget": lambda: asyncio.run(queue.aget(SOON)),
    "aput": lambda: asyncio.run(full.aput(b"", timeout=SOON)),
    "aconsume": lambda: asyncio.run(aconsume()),
    "areader": lambda: asyncio.run(aread()),
    "asubscribe": lambda: asyncio.run(asubscribe()),
    "await_": lambda: asyncio.run(table.await_("key", SOON)),
    "arequest": lambda: asyncio.run(broker.arequest("asked", 1, SOON)),
}}
for name, wait in waits.items():
    faulthandler.dump_traceback_later(30, exit=True)
    with contextlib.suppress(shmq.Empty, shmq.Full, shmq.NoReply, shmq.PublishRefused):
        wait()
    faulthandler.cancel_dump_traceback_later()
broker.close()
"""

#: Waits of the frameworks' brokers.
FRAMEWORKS = """
import asyncio, contextlib, faulthandler, logging, sys
import shmq
from shmq.extras import faststream, taskiq
{freeze}
faulthandler.dump_traceback_later(30, exit=True)
logging.disable()

async def request():
    broker = faststream.ShmqBroker(sys.argv[1])

    @broker.subscriber("slow")
    async def handle(number: int) -> None:
        await asyncio.Event().wait()

    async with faststream.TestShmqBroker(broker, connect_only=False):
        await broker.request(1, "slow", timeout=0.05)

with contextlib.suppress(TimeoutError):
    asyncio.run(request())

async def listen():
    broker = taskiq.ShmqBroker(sys.argv[1], queue="tasks")
    messages = broker.listen()
    first = asyncio.create_task(anext(messages))
    admin = shmq.connect(sys.argv[1])
    while "tasks" not in admin.queue_names():
        await asyncio.sleep(0)
    admin.delete_queue("tasks")
    while "tasks" not in admin.queue_names():
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    await broker.shutdown()

asyncio.run(listen())
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace that a server may still know at the end."""
    with own_namespace(inhabited=True) as name:
        yield name


@pytest.mark.parametrize(
    ("freezer", "transport"),
    [
        ("freezegun", "tcp"),
        ("time-machine", "local"),
        pytest.param("freezegun", "local", marks=pytest.mark.prove),
        pytest.param("time-machine", "tcp", marks=pytest.mark.prove),
    ],
)
def test_a_wait_with_a_timeout_ends_while_the_clock_is_frozen(
    namespace: str, broker: shmq.Broker, freezer: str, transport: str
) -> None:
    for name in ("q", "asked"):
        broker.create_queue(name, dead_letter=None)
    broker.create_queue("full", capacity=1, dead_letter=None).put(b"")
    broker.create_stream("s", 1)
    broker.create_exchange("e").bind("full", "full")
    code = WAITS.format(freeze=FREEZERS[freezer])
    with contextlib.ExitStack() as stack:
        tcp = transport == "tcp"
        target = stack.enter_context(TCP_SERVERS.serve(namespace)) if tcp else namespace
        run_script(code, target)
        broker.delete_exchange("e")
        broker.delete_table("t")


@pytest.mark.prove
@pytest.mark.parametrize("freezer", FREEZERS)
def test_a_wait_of_a_framework_ends_while_the_clock_is_frozen(namespace: str, freezer: str) -> None:
    run_script(FRAMEWORKS.format(freeze=FREEZERS[freezer]), namespace)


@pytest.mark.parametrize("freezer", FREEZERS)
def test_the_loop_of_clusters_has_the_clock_of_the_kernel(freezer: str) -> None:
    code = """
import asyncio
from shmq.extras.nats.client.loop_thread import LoopThread
{freeze}
asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), LoopThread.get().loop).result(30)
"""
    run_script(code.format(freeze=FREEZERS[freezer]))
