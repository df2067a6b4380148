"""Processes that wait for streams and groups: they do not wake in vain, and still notice deaths."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker, Stream
from shmq.client.handles import member
from shmq.client.local.stream import LocalStream
from tests.support.processes import HOUR, Start, sleep_undisturbed
from tests.support.waiting import eventually

#: Seconds for which wake-ups are counted, and the most that may be there for each process; one that
#: looks every 50 ms has more than ten times as many.
COUNTED = 1.5
MOST = 4


def read_all(stream: Stream) -> list[shmq.Records]:
    with stream.reader(limit=1) as reader:
        return reader.poll(None)


def join(stream: Stream) -> list[shmq.Records]:
    with stream.group("g").join() as joined:
        return joined.poll(timeout=None)


async def read_two(stream: Stream) -> None:
    await asyncio.gather(stream.aread(0, 0), stream.aread(1, 0))


WAITS: dict[str, Callable[[Stream, Stream], Any]] = {
    "read": lambda stream, full: stream.read(0, 0, block=True),
    "reader": lambda stream, full: read_all(stream),
    "aread": lambda stream, full: asyncio.run(read_two(stream)),
    "member": lambda stream, full: join(stream),
    "append": lambda stream, full: full.append(bytes(8000), partition=0, block=True),
}


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of two partitions."""
    return broker.create_stream("s", 2)


@pytest.fixture
def full(broker: Broker) -> Stream:
    """A stream whose ring is full of records that nobody has read."""
    full = broker.create_stream("full", 1, ring_bytes=1 << 16, overflow="block")
    full.group("slow").join().close()
    with pytest.raises(shmq.Full):
        while True:
            full.append(bytes(8000), partition=0, block=False)
    return full


def test_nobody_wakes_while_nothing_happens(
    namespace: str, stream: Stream, full: Stream, start: Start
) -> None:
    def work(pipe: Connection, how: str) -> None:
        broker = shmq.connect(namespace)
        pipe.send("begins")
        WAITS[how](broker.stream("s"), broker.stream("full"))

    children = [start(work, how) for how in WAITS for _ in range(2)]
    for child in children:
        child.hear()

    sleep_undisturbed([child.pid for child in children], COUNTED, MOST)


def test_a_record_reaches_those_that_sleep_long(
    namespace: str, stream: Stream, start: Start
) -> None:
    def work(pipe: Connection, how: str) -> int:
        stream = shmq.connect(namespace).stream("s")
        pipe.send("begins")
        return len(WAITS[how](stream, stream))

    children = [start(work, how) for how in ("read", "reader", "member")]
    for child in children:
        child.hear()
    time.sleep(1.0)

    stream.append(b"1", partition=0)

    assert [child.ends() for child in children] == [1, 1, 1]


def test_an_append_that_sleeps_notices_the_death_of_the_process_that_held_the_records(
    namespace: str, broker: Broker, start: Start
) -> None:
    stream = broker.create_stream("s", 1, ring_bytes=1 << 16, overflow="block")

    def keep(pipe: Connection) -> None:
        subscription = shmq.connect(namespace).stream("s").subscribe(policy="block")
        pipe.send("subscribed")
        signal.pause()
        subscription.close()

    def append(pipe: Connection) -> None:
        stream = shmq.connect(namespace).stream("s")
        for _ in range(100):
            stream.append(bytes(8000), partition=0, block=True)

    keeper = start(keep)
    keeper.hear()
    appender = start(append)
    eventually(lambda: stream.latest(0) >= 7, "the ring is full")
    time.sleep(0.5)  # it sleeps long
    assert stream.latest(0) < 10

    keeper.kill()

    assert appender.ends() is None


def test_a_member_takes_the_partitions_of_one_that_dies(
    namespace: str, stream: Stream, start: Start
) -> None:
    def work(pipe: Connection) -> None:
        with shmq.connect(namespace).stream("s").group("g").join() as joined:
            while True:
                joined.poll(timeout=1.0)
                pipe.send(sorted(joined.assignment))

    first = start(work)
    while first.hear() != [0, 1]:
        pass
    second = start(work)
    while len(second.hear()) != 1:
        pass
    eventually(lambda: len(first.hear()) == 1, "the first one gives up a partition")

    first.kill()

    eventually(lambda: second.hear() == [0, 1], "the second one has both")


@pytest.fixture
def without_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of this process that wait for a stream sleep until they are woken."""
    monkeypatch.setattr(LocalStream, "longest_sleep", HOUR)
    monkeypatch.setattr(member, "_LONGEST", HOUR)


@pytest.mark.usefixtures("without_slices")
def test_a_change_of_the_group_wakes_its_members(stream: Stream) -> None:
    with stream.group("g").join() as first:
        first.poll(timeout=0)
        polled = threading.Event()

        def poll() -> None:
            first.poll(timeout=HOUR)
            polled.set()

        thread = threading.Thread(target=poll)
        thread.start()
        time.sleep(0.3)
        with stream.group("g").join() as second:
            while len(second.assignment) != 1:
                second.poll(timeout=0.01)
            stream.append_many([b"1"], partition=0)
            stream.append_many([b"1"], partition=1)
            thread.join(60)
            assert polled.is_set()


@pytest.mark.usefixtures("without_slices")
def test_new_partitions_wake_a_reader_of_all(stream: Stream) -> None:
    woken = threading.Event()
    assert isinstance(stream, LocalStream)
    local = stream

    def wait() -> None:
        local.wait_for_any({0: 0, 1: 0})
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)

    stream.repartition(4)

    assert woken.wait(60)
    thread.join()
