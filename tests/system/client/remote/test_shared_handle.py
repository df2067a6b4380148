"""One handle for many threads, processes and signals."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.conformance.tools import drain, getter_asleep, in_thread, next_message, outcome
from tests.support.waiting import PATIENCE, eventually


def test_a_get_that_waits_holds_no_other_thread_up(broker: Broker, queue: Queue) -> None:
    waiter = in_thread(queue.get)
    getter_asleep(broker.queue("q"))

    for number in range(10):
        assert broker.queue("q").qsize() == 0
        assert queue.stats().put == 0, number
    queue.put(b"x")

    assert outcome(waiter).body == b"x"


def test_gets_that_wait_in_many_threads_have_a_message_each(queue: Queue) -> None:
    waiters = [in_thread(queue.get, timeout=PATIENCE) for _ in range(8)]
    getter_asleep(queue)

    for number in range(8):
        queue.put(number)

    assert sorted(outcome(waiter).body for waiter in waiters) == list(range(8))


def test_many_threads_put_get_and_ack_on_one_handle(queue: Queue) -> None:
    got: list[int] = []

    def work(first: int) -> None:
        for number in range(first, first + 100):
            queue.put(number)
            with queue.get(timeout=PATIENCE) as message:
                got.append(message.body)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(got) == list(range(600))
    assert queue.stats().acked == 600


def test_closing_a_handle_ends_the_waits_on_it(broker: Broker, queue: Queue) -> None:
    waiter = in_thread(queue.get)
    getter_asleep(broker.queue("q"))

    queue.close()

    with pytest.raises(shmq.ShmqError, match="closed"):
        outcome(waiter)


def test_closing_a_handle_returns_its_leases_before_it_returns(
    broker: Broker, queue: Queue
) -> None:
    queue.put_many(range(10))
    leased = queue.get_many(5)
    assert len(leased) == 5

    queue.close()

    assert broker.queue("q").qsize() == 10


def _interrupt_soon(queue: Queue) -> None:
    """Send this process a Ctrl-C once it waits for a message."""

    def send() -> None:
        getter_asleep(queue)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.parametrize("after", [0.0, 0.3])
def test_ctrl_c_ends_a_wait_and_takes_nothing(broker: Broker, queue: Queue, after: float) -> None:
    other = broker.queue("q")

    def send() -> None:
        getter_asleep(other)
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        queue.get()

    other.put(b"x")
    assert next_message(other).delivery_count == 1
    assert queue.put(b"y").sequence == 2
    assert queue.get().body == b"y"


def test_ctrl_c_in_a_consumer_leaves_what_it_has_not_handed_out(
    broker: Broker, queue: Queue
) -> None:
    other = broker.queue("q")
    queue.put_many([1, 2])
    with pytest.raises(KeyboardInterrupt), queue.consume(prefetch=5) as messages:
        next(messages).ack()
        next(messages)
        _interrupt_soon(other)
        next(messages)

    assert other.stats().in_flight == 1
    assert other.stats().acked == 1


def test_a_consumer_that_was_forgotten_returns_what_it_had(broker: Broker, queue: Queue) -> None:
    queue.put_many(range(5))
    next(queue.consume(prefetch=5)).ack()

    eventually(lambda: broker.queue("q").stats().in_flight == 0, "it is collected")

    stats = queue.stats()
    assert (stats.depth, stats.acked) == (4, 1)


def _in_child(queue: Queue, answers: Any) -> None:
    answers.put(queue.get(timeout=PATIENCE).body)
    queue.put("from the child")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_handle_works_in_a_child(queue: Queue, method: str) -> None:
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    queue.put("for the child")
    held = queue.get()
    queue.put("for the child, too")

    child = context.Process(target=_in_child, args=(queue, answers))  # type: ignore[attr-defined]
    child.start()
    assert answers.get(timeout=PATIENCE) == "for the child, too"
    child.join()

    held.ack()
    eventually(lambda: queue.qsize() == 2, "the child's lease is back")
    assert sorted(drain(queue)) == ["for the child, too", "from the child"]
    answers.close()
    answers.join_thread()


def test_a_child_that_closes_its_copy_ends_nothing_of_the_parents(queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()
    child = os.fork()
    if not child:
        queue.close()
        os._exit(0)
    os.waitpid(child, 0)

    message.ack()

    assert queue.stats().acked == 1


def test_a_fork_does_not_keep_the_parents_connection_open(broker: Broker, url: str) -> None:
    queue = broker.create_queue("jobs")
    queue.put(b"x")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # a process that takes a message, forks, and dies
        mine = shmq.connect(url).queue("jobs")
        mine.get()
        if not os.fork():
            os.close(writer)
            os.read(reader, 1)  # outlives it
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(reader)
    os.waitpid(child, 0)

    assert next_message(queue).delivery_count == 2
    os.close(writer)


def test_a_pickled_handle_and_broker_connect_anew(broker: Broker, queue: Queue) -> None:
    queue.put(b"x")

    with pickle.loads(pickle.dumps(queue)) as copy:
        assert copy.get().body == b"x"
    with pickle.loads(pickle.dumps(broker)) as other:
        assert other.namespace == broker.namespace


def test_a_pickle_never_has_the_token(url: str, broker: Broker) -> None:
    with shmq.connect(url, token="the token of this test, in clear") as other:
        other.create_queue("jobs")
        pickled = pickle.dumps([other, other.queue("jobs")])

        assert b"the token" not in pickled


def test_a_message_cannot_be_pickled_but_its_receipt_settles(broker: Broker, queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()
    with pytest.raises(TypeError, match="receipt"):
        pickle.dumps(message)

    broker.queue("q").ack(message.receipt)

    with pytest.raises(shmq.LeaseExpired):
        message.ack()
