"""The owner of a reply queue, and when the queue is deleted."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading

import pytest

import shmq
from shmq.api.names import is_reply_name, reply_name
from shmq.client.local.broker import LocalBroker
from tests.conformance.tools import in_thread, outcome
from tests.support.waiting import PATIENCE, eventually

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def served(broker: shmq.Broker) -> shmq.Queue:
    """A queue that a thread serves until it is deleted with the namespace."""
    queue = broker.create_queue("q")
    threading.Thread(target=broker.serve, args=("q", lambda m: m.body), daemon=True).start()
    return queue


def reply_queues(broker: shmq.Broker) -> list[str]:
    return [each.name for each in broker.list_queues() if is_reply_name(each.name)]


def ask(namespace: str, *, end: bool) -> None:
    broker = shmq.connect(namespace)
    assert broker.request("q", 1, PATIENCE).body == 1
    if not end:
        os.kill(os.getpid(), signal.SIGKILL)


def run(namespace: str, *, end: bool) -> int | None:
    child = SPAWN.Process(target=ask, args=(namespace,), kwargs={"end": end})
    child.start()
    child.join()
    return child.exitcode


@pytest.mark.prove
def test_a_process_that_ends_without_closing_leaves_no_reply_queue(
    namespace: str, broker: shmq.Broker, served: shmq.Queue
) -> None:
    assert run(namespace, end=True) == 0
    assert reply_queues(broker) == []


def test_what_a_killed_process_left_goes_as_soon_as_another_one_looks(
    namespace: str, broker: shmq.Broker, served: shmq.Queue
) -> None:
    assert run(namespace, end=False) == -signal.SIGKILL

    assert reply_queues(broker) == []


def test_reply_queues_of_one_process_do_not_take_each_other_for_dead(
    namespace: str, broker: shmq.Broker, served: shmq.Queue
) -> None:
    with shmq.connect(namespace) as other:
        assert broker.request("q", 1, PATIENCE).body == 1
        assert other.request("q", 2, PATIENCE).body == 2
        assert broker.request("q", 3, PATIENCE).body == 3
        assert len(reply_queues(broker)) == 2


def test_the_child_of_a_fork_has_its_own(broker: shmq.Broker, served: shmq.Queue) -> None:
    broker.request("q", 1, PATIENCE)
    before = reply_queues(broker)
    child = os.fork()
    if not child:
        try:
            found = broker.request("q", [2], PATIENCE).body == [2]
            found = found and len(reply_queues(broker)) == 2
            broker.close()
            os._exit(0 if found else 1)
        finally:
            os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reply_queues(broker) == before
    assert broker.request("q", 3, PATIENCE).body == 3


def test_a_loop_that_is_gone_leaves_no_reply_queue(broker: shmq.Broker, served: shmq.Queue) -> None:
    async def one() -> None:
        await broker.arequest("q", 1, PATIENCE)

    asyncio.run(one())
    gc.collect()

    assert reply_queues(broker) == []


def test_an_own_queue_has_a_reply_queues_name_and_is_new(broker: LocalBroker) -> None:
    with pytest.raises(shmq.InvalidName, match="16"):
        broker.create_own_queue("mine")
    name = reply_name()
    broker.create_own_queue(name)
    with pytest.raises(shmq.QueueExists, match=name):
        broker.create_own_queue(name)


def test_the_lease_is_prolonged_while_the_handler_runs(broker: shmq.Broker) -> None:
    broker.create_queue("slow", visibility_timeout=2.0)
    counts: list[int] = []

    def handle(message: shmq.Message) -> int:
        counts.append(message.delivery_count)
        queue = broker.queue("slow")
        # More than the time of a lease passes, by the clock of the queue itself.
        queue.put(b"later", delay=2.5)
        eventually(lambda: queue.qsize() == 1, "the time has passed")
        return message.delivery_count

    stop = threading.Event()
    server = in_thread(broker.serve, "slow", handle, stop=stop)
    try:
        asked = in_thread(broker.request, "slow", b"", PATIENCE)
        eventually(lambda: bool(counts), "it is handled")
        stop.set()
        assert outcome(asked).body == 1
    finally:
        stop.set()
        outcome(server)
    assert counts == [1]
