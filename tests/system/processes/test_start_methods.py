"""Handles and brokers that cross to another process: pickled, under every start method."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.processes import HOUR, Start, attached, drain, is_empty
from tests.support.waiting import PATIENCE

METHODS = ["fork", "forkserver", "spawn"]


def answer(pipe: Connection, queue: Queue) -> tuple[int, bytes]:
    """Get one message and put another."""
    with queue.get(timeout=PATIENCE) as message:
        queue.put(b"answer")
        return os.getpid(), message.body


def hold_one(pipe: Connection, queue: Queue) -> None:
    """Lease a message, and keep it until told."""
    message = queue.get(timeout=PATIENCE)
    pipe.send(message.receipt)
    pipe.recv()


def make_another(pipe: Connection, broker: Broker) -> str:
    """Use a broker in every way."""
    with broker.create_queue("another", dead_letter=None) as queue:
        queue.put(b"1")
    broker.close()
    return broker.namespace


def acknowledge(queue: Queue, receipt: int) -> list[int]:
    return queue.ack_many([receipt])


@pytest.mark.parametrize("method", METHODS)
def test_a_handle_given_to_a_process_works_there(queue: Queue, start: Start, method: str) -> None:
    queue.put(b"question")

    child = start(answer, queue, method=method)

    assert child.ends() == (child.pid, b"question")
    assert drain(queue) == [b"answer"]
    assert attached(queue) == [os.getpid()]


@pytest.mark.parametrize("method", METHODS)
def test_a_broker_given_to_a_process_works_there(broker: Broker, start: Start, method: str) -> None:
    child = start(make_another, broker, method=method)

    assert child.ends() == broker.namespace
    assert drain(broker.queue("another")) == [b"1"]


@pytest.mark.parametrize("method", METHODS)
def test_the_leases_of_a_started_process_are_its_own(
    queue: Queue, start: Start, method: str
) -> None:
    queue.put(b"1")
    child = start(hold_one, queue, method=method)
    child.hear()
    queue.put(b"2")
    mine = queue.get_nowait()

    child.kill()

    theirs = queue.get_nowait()
    assert (theirs.body, theirs.delivery_count) == (b"1", 2)
    assert queue.ack_many([mine, theirs]) == []
    is_empty(queue)


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
def test_a_pool_shares_a_queue_by_its_handle(queue: Queue, method: str) -> None:
    queue.put_many([bytes([number]) for number in range(10)])
    receipts = [message.receipt for message in queue.get_many(10)]
    context: Any = multiprocessing.get_context(method)

    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        refused = list(pool.map(acknowledge, [queue] * 10, receipts))

    assert refused == [[]] * 10
    is_empty(queue)


def test_an_unpickled_handle_is_attached_apart(queue: Queue) -> None:
    queue.put(b"1")
    queue.put(b"2")
    copy = pickle.loads(pickle.dumps(queue))
    mine, theirs = queue.get(), copy.get()

    copy.close()

    assert (mine.sequence, theirs.sequence) == (1, 2)
    assert queue.get_nowait().sequence == 2
    mine.ack()
    assert attached(queue) == [os.getpid()]


def test_a_handle_of_a_deleted_queue_cannot_be_unpickled(broker: Broker, queue: Queue) -> None:
    pickled = pickle.dumps(queue)
    broker.delete_queue("q")

    with pytest.raises(shmq.NoSuchQueue, match="'q'"):
        pickle.loads(pickled)


def test_a_handle_of_a_queue_that_was_made_anew_is_unpickled_as_the_new_one(
    broker: Broker, queue: Queue
) -> None:
    pickled = pickle.dumps(queue)
    broker.delete_queue("q")
    new = broker.create_queue("q", visibility_timeout=HOUR)
    new.put(b"new")

    assert drain(pickle.loads(pickled)) == [b"new"]


def test_options_and_statistics_can_be_pickled(queue: Queue) -> None:
    for thing in (queue.options, queue.stats(), queue.attachments(), queue.put(b"1").sequence):
        assert pickle.loads(pickle.dumps(thing)) == thing


PRIVATE: dict[str, Callable[[Queue], object]] = {
    "message": lambda queue: queue.get(),
    "view": lambda queue: queue.get().view,
    "loan": lambda queue: queue.loan(10),
    "consumer": lambda queue: queue.consume(),
}


@pytest.mark.parametrize("what", PRIVATE)
def test_what_belongs_to_one_process_is_not_pickled(queue: Queue, what: str) -> None:
    queue.put(b"1")
    thing = PRIVATE[what](queue)

    with pytest.raises(TypeError):
        pickle.dumps(thing)


@pytest.mark.parametrize(
    "error",
    [
        shmq.Full("queue 'q' is full"),
        shmq.NoSpace("/dev/shm is full"),
        shmq.LeaseExpired("the receipt has expired"),
        shmq.NoSuchQueue("queue 'q' does not exist"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_processes_with_their_message(error: shmq.ShmqError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
