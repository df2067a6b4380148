"""What becomes of a batch when its driver dies, hangs, or goes on beside a new one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

import shmq
from shmq.spark.queue.kind import QUEUE
from shmq.spark.queue.leases import LeasedMessages, Leases
from shmq.spark.queue.reader import QueueInputPartition, QueueSourceStreamingReader
from tests.support.processes import ROOT, environment
from tests.support.server import serve
from tests.support.waiting import PATIENCE

#: Leases the batch after the offset on its stdin, says the offset, and goes on when it is told to.
_DRIVER = """
import json, sys
from tests.prove.spark.test_stream_leases import driver, lease
reader = driver(sys.argv[1])
print(json.dumps(lease(reader, json.loads(sys.stdin.readline()) or reader.initialOffset())))
sys.stdout.flush()
offset = json.loads(sys.stdin.readline())
try:
    lease(reader, offset)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(params=["local", "tcp"])
def url(request: pytest.FixtureRequest, broker: shmq.Broker) -> Iterator[str]:
    if request.param == "local":
        yield broker.namespace
        return
    with serve(broker.namespace) as server:
        yield server.url


@pytest.fixture
def orders(broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("orders")


def driver(url: str, **more: Any) -> QueueSourceStreamingReader:
    given = {"url": url, "subscribe": "orders", **more}
    reader = QUEUE.stream_reader(given, StructType().add("value", "binary"))
    assert isinstance(reader, QueueSourceStreamingReader)
    return reader


def lease(reader: QueueSourceStreamingReader, start: Any, count: int = 100) -> Any:
    return reader.latestOffset(start, ReadMaxRows(count))


def rows(reader: QueueSourceStreamingReader, start: Any, end: Any) -> list[bytes]:
    found = []
    for part in reader.partitions(start, end):
        assert isinstance(part, QueueInputPartition)
        batches: list[Any] = list(reader.read(part))
        found += [value.as_py() for batch in batches for value in batch.column(0)]
    return sorted(found)


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"%06d" % n for n in range(first, first + count)]


def put(orders: shmq.Queue, count: int) -> None:
    for n in range(count):
        orders.put(b"%06d" % n, group="abc"[n % 3])


class Driver:
    """A driver in a process of its own, which has leased a batch."""

    def __init__(self, url: str, start: Any = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, url],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.say(start)
        assert self.process.stdout is not None
        self.offset = json.loads(self.process.stdout.readline())

    def say(self, offset: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(offset) + "\n")
        self.process.stdin.flush()

    def goes_on(self) -> str:
        """What it says when it is told that its batch is committed."""
        self.say(self.offset)
        said, _ = self.process.communicate(timeout=PATIENCE)
        return said


@pytest.mark.parametrize("how", ["killed", "stopped", "alive"])
def test_a_new_driver_takes_the_batch_over_and_fences_the_old_one(
    url: str, orders: shmq.Queue, how: str
) -> None:
    put(orders, 150)
    old = Driver(url)
    try:
        if how == "killed":
            old.process.kill()
            old.process.wait()
        if how == "stopped":
            old.process.send_signal(signal.SIGSTOP)  # over TCP, its connection hangs
        assert orders.get_many(100, block=False) == []  # the query has all groups
        new = driver(url)
        assert rows(new, new.initialOffset(), old.offset) == bodies(100)
        if how != "killed":
            old.process.send_signal(signal.SIGCONT)
            said = old.goes_on()
            assert said.startswith("LeaseExpired another process has taken over the leases")
        assert orders.stats().acked == 0
        end = lease(new, old.offset)
        assert orders.stats().acked == 100
        assert rows(new, old.offset, end) == bodies(50, 100)
        assert lease(new, end) == end
        assert orders.stats().acked == 150
        new.stop()
    finally:
        old.process.kill()
        old.process.communicate()


def test_a_batch_that_was_never_logged_is_leased_anew(url: str, orders: shmq.Queue) -> None:
    put(orders, 150)
    first = driver(url)
    start = lease(first, first.initialOffset(), 50)
    lease(first, start, 50)  # Spark does not log this one
    first.stop()
    second = driver(url)
    end = lease(second, start, 100)
    assert (end["epoch"], len(second.partitions(start, end)) > 0) == (2, True)
    assert rows(second, start, end) == bodies(100, 50)
    assert orders.stats().acked == 50
    second.stop()


def test_a_batch_that_was_committed_and_not_acknowledged_is_acknowledged_by_the_next_driver(
    url: str, orders: shmq.Queue
) -> None:
    put(orders, 150)
    first = driver(url)
    done = lease(first, first.initialOffset())
    first.stop()
    second = driver(url)
    second.prepareForTriggerAvailableNow()
    end = second.latestOffset(done, ReadAllAvailable())
    assert orders.stats().acked == 100
    assert rows(second, done, end) == bodies(50, 100)
    second.stop()


def test_a_queue_that_is_emptied_by_its_leases_is_seen_by_a_run_over_all_there_is(
    url: str, orders: shmq.Queue
) -> None:
    put(orders, 60)
    first = driver(url)
    start = lease(first, first.initialOffset(), 10)
    lease(first, start, 50)  # all the rest, and Spark does not log it
    first.stop()
    second = driver(url)
    second.prepareForTriggerAvailableNow()
    end = second.latestOffset(start, ReadAllAvailable())
    assert rows(second, start, end) == bodies(50, 10)
    second.stop()


def test_a_driver_that_stops_while_it_extends_its_leases_says_nothing_of_that(
    url: str, orders: shmq.Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extend = Leases._extend
    begun, stopped, ended = threading.Event(), threading.Event(), threading.Event()

    def late(leases: Leases, name: str, held: LeasedMessages) -> None:
        begun.set()
        assert stopped.wait(PATIENCE)
        try:
            extend(leases, name, held)
        finally:
            ended.set()

    monkeypatch.setattr(Leases, "_extend", late)
    put(orders, 10)
    reader = driver(url, leaseTimeout="1s")
    lease(reader, reader.initialOffset())
    assert begun.wait(PATIENCE)
    reader.stop()
    stopped.set()
    assert ended.wait(PATIENCE)
    extending = reader._handles._prolonging
    assert extending is not None
    extending.join(PATIENCE)
    assert "prolonged" not in caplog.text


def test_a_batch_goes_on_when_the_servers_workers_are_killed(
    broker: shmq.Broker, orders: shmq.Queue
) -> None:
    put(orders, 150)
    with serve(broker.namespace) as server:
        reader = driver(server.url)
        start = reader.initialOffset()
        end = lease(reader, start)
        for pid in server.workers():
            os.kill(pid, signal.SIGKILL)
        assert orders.stats().in_flight == 100
        assert rows(reader, start, end) == bodies(100)
        following = lease(reader, end)
        assert orders.stats().acked == 100
        assert rows(reader, end, following) == bodies(50, 100)
        reader.stop()
