"""fork after attach: both sides go on, and neither disturbs the other."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

import shmq
from shmq import Broker, Message, Queue
from tests.support.processes import LARGE, Start, asleep, attached, drain, is_empty, is_sound
from tests.support.waiting import PATIENCE, eventually

#: What each message is settled by, in the process that did not lease it.
SETTLE: dict[str, Callable[[Queue, Message], object]] = {
    "ack": lambda queue, message: message.ack(),
    "nack": lambda queue, message: message.nack(delay=0),
    "reject": lambda queue, message: message.reject(),
    "ack_many": lambda queue, message: queue.ack_many([message]),
    "receipt": lambda queue, message: queue.ack_many([message.receipt]),
}

#: A fork of a process with threads is what these tests are about.
with_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def overwrite(queue: Queue, size: int = LARGE) -> None:
    """Use every byte of the queue's arena that is free."""
    while queue.put_many([b"\xff" * size], block=False):
        pass
    drain(queue)


@pytest.fixture
def small(broker: Broker) -> Queue:
    """A queue whose arena is soon used up."""
    return broker.create_queue("small", arena_bytes=256 * 1024, max_message_bytes=128 * 1024)


def test_a_child_puts_and_gets_with_the_handle_that_it_inherited(
    queue: Queue, start: Start
) -> None:
    def work(pipe: Connection) -> bytes:
        with queue.get(timeout=PATIENCE) as message:
            queue.put(b"from the child")
            return bytes(message.body)

    child = start(work)
    queue.put(b"from the parent")

    assert child.ends() == b"from the parent"
    assert drain(queue) == [b"from the child"]


def test_a_child_is_attached_from_its_first_use_to_its_end(queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> None:
        pipe.recv()
        queue.qsize()
        pipe.send("attached")
        pipe.recv()

    child = start(work)
    assert attached(queue) == [os.getpid()]
    child.tell()
    child.hear()
    assert attached(queue) == sorted([os.getpid(), child.pid])
    child.tell()
    child.ends()
    assert attached(queue) == [os.getpid()]


@pytest.mark.parametrize("end", ["exit", "close", "close the broker", "drop"])
@pytest.mark.parametrize("used", [True, False])
def test_the_leases_of_the_parent_outlive_a_child(
    broker: Broker, queue: Queue, start: Start, end: str, used: bool
) -> None:
    queue.put(b"1")
    queue.put(bytes(LARGE))
    messages = queue.get_many(2)

    def work(pipe: Connection) -> None:
        if used:
            queue.qsize()
        if end == "close":
            queue.close()
        elif end == "close the broker":
            broker.close()
        elif end == "drop":
            messages.clear()
            gc.collect()

    start(work).ends()

    assert queue.stats().in_flight == 2
    assert queue.ack_many(messages) == []
    messages.clear()
    is_empty(queue)


def test_the_leases_of_a_child_outlive_the_close_of_the_parents_handle(
    broker: Broker, queue: Queue, start: Start
) -> None:
    queue.put(b"1")

    def work(pipe: Connection) -> None:
        message = queue.get()
        pipe.send("leased")
        pipe.recv()
        message.ack()

    child = start(work)
    child.hear()
    queue.close()
    child.tell()
    child.ends()

    is_empty(broker.queue("q"))


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize("how", SETTLE)
def test_what_the_parent_has_leased_a_child_can_settle(
    queue: Queue, start: Start, how: str, size: int
) -> None:
    queue.put(b"\x01" * size)
    message = queue.get()

    def work(pipe: Connection) -> bytes:
        body = message.body
        SETTLE[how](queue, message)
        return bytes(body)

    assert start(work).ends() == b"\x01" * size

    assert queue.stats().in_flight == 0
    with pytest.raises(shmq.LeaseExpired):
        message.ack()


@pytest.mark.parametrize("how", SETTLE)
def test_what_a_child_has_leased_the_parent_can_settle(
    queue: Queue, start: Start, how: str
) -> None:
    queue.put(b"1")

    def work(pipe: Connection) -> str:
        message = queue.get()
        pipe.send(message.receipt)
        pipe.recv()
        with pytest.raises(shmq.LeaseExpired):
            message.ack()
        return "refused"

    child = start(work)
    receipt = child.hear()
    by_receipt: dict[str, Callable[[], object]] = {
        "nack": lambda: queue.nack(receipt, delay=0),
        "reject": lambda: queue.reject(receipt),
    }
    by_receipt.get(how, lambda: queue.ack_many([receipt]))()
    child.tell()

    assert child.ends() == "refused"
    assert queue.stats().in_flight == 0


@pytest.mark.parametrize("used", [True, False])
def test_a_child_never_reads_other_bytes_than_the_messages(
    small: Queue, start: Start, used: bool
) -> None:
    small.put(b"\x01" * LARGE)
    message = small.get()

    def work(pipe: Connection) -> bytes | None:
        if used:
            small.qsize()
        pipe.recv()
        try:
            return bytes(message.body)
        except shmq.LeaseExpired:
            return None

    child = start(work)
    message.ack()
    overwrite(small)
    child.tell()

    assert child.ends() in {None, b"\x01" * LARGE}


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("size", [1, LARGE])
def test_a_view_that_a_child_takes_of_the_parents_message_leaves_nothing_behind(
    small: Queue, start: Start, size: int, used: bool
) -> None:
    small.put(b"\x01" * size)
    held = [small.get()]

    def work(pipe: Connection) -> bytes:
        if used:
            small.qsize()
        return bytes(held[0].view)

    assert start(work).ends() == b"\x01" * size

    held.pop().ack()
    is_empty(small)


@pytest.mark.parametrize("used", [True, False])
def test_a_view_stays_pinned_when_a_child_drops_its_copy(
    small: Queue, start: Start, used: bool
) -> None:
    small.put(b"\x01" * LARGE)
    message = small.get()
    views = [message.view]
    message.ack()

    def work(pipe: Connection) -> None:
        if used:
            small.qsize()
        views.clear()
        gc.collect()

    start(work).ends()
    overwrite(small)

    assert views[0] == b"\x01" * LARGE


def test_a_view_in_a_child_shows_what_its_parent_has_pinned(queue: Queue, start: Start) -> None:
    queue.put(b"\x01" * LARGE)
    view = queue.get().view

    assert start(lambda pipe: bytes(view)).ends() == b"\x01" * LARGE


@pytest.mark.parametrize("end", ["exit", "drop"])
def test_a_loan_of_the_parent_outlives_a_child(queue: Queue, start: Start, end: str) -> None:
    loans = [queue.loan(LARGE)]
    loans[0].view[:] = b"\x01" * LARGE

    def work(pipe: Connection) -> None:
        queue.qsize()
        if end == "drop":
            loans.clear()
            gc.collect()

    start(work).ends()
    loans[0].commit()

    assert drain(queue) == [b"\x01" * LARGE]


def test_a_consumer_of_the_parent_outlives_a_child(queue: Queue, start: Start) -> None:
    queue.put_many([bytes([number]) for number in range(20)])
    consumer = queue.consume(prefetch=10, block=False)
    first = next(consumer)

    def work(pipe: Connection) -> str:
        with pytest.raises(shmq.ShmqError, match="fork"):
            next(consumer)
        consumer.close()
        return "refused"

    assert start(work).ends() == "refused"

    bodies = [first.body]
    first.ack()
    for message in consumer:
        bodies.append(message.body)
        message.ack()
    assert bodies == [bytes([number]) for number in range(20)]
    is_empty(queue)


def test_a_loop_over_bodies_of_the_parent_outlives_a_child(queue: Queue, start: Start) -> None:
    queue.put_many([bytes([number]) for number in range(20)])
    bodies = queue.bodies(prefetch=10, block=False)
    got = [next(bodies)]

    def work(pipe: Connection) -> str:
        with pytest.raises(shmq.ShmqError, match=r"fork: call bodies\(\)"):
            next(bodies)
        with bodies:
            pass
        return "refused"

    assert start(work).ends() == "refused"
    assert queue.stats().acked == 0

    got += bodies
    assert got == [bytes([number]) for number in range(20)]
    is_empty(queue)


def test_a_child_settles_a_message_of_the_parents_consumer(queue: Queue, start: Start) -> None:
    queue.put(b"1")
    consumer = queue.consume(block=False)
    message = next(consumer)

    start(lambda pipe: message.ack()).ends()

    assert queue.stats().in_flight == 0
    consumer.close()
    is_empty(queue)


def test_every_generation_of_nested_forks_goes_on(queue: Queue, start: Start) -> None:
    def work(pipe: Connection, depth: int) -> None:
        queue.put(str(depth))
        if depth < 4:
            pid = os.fork()
            if pid == 0:
                work(pipe, depth + 1)
                os._exit(0)
            os.waitpid(pid, 0)
        queue.put(str(-depth))

    queue.put("0")
    message = queue.get()
    start(work, 1).ends()

    assert drain(queue) == ["1", "2", "3", "4", "-4", "-3", "-2", "-1"]
    assert attached(queue) == [os.getpid()]
    message.ack()


def test_a_child_outlives_its_parent(queue: Queue, start: Start) -> None:
    queue.put(b"1")
    queue.put(b"2")

    def work(pipe: Connection) -> None:
        mine = queue.get()
        if os.fork() == 0:
            theirs = queue.get()
            pipe.send((mine.sequence, theirs.sequence))
            pipe.recv()
            theirs.ack()
            pipe.send("acknowledged")
            os._exit(0)
        os._exit(0)

    child = start(work)
    first, second = child.hear()
    assert child.reap() == 0

    again = queue.get_nowait()
    assert (again.sequence, again.delivery_count) == (first, 2)
    with pytest.raises(shmq.Empty):
        queue.get_nowait()
    child.tell()
    assert child.hear() == "acknowledged"
    again.ack()
    assert (first, second) == (1, 2)
    eventually(lambda: attached(queue) == [os.getpid()], "the child's child ends")
    is_empty(queue)


def test_a_child_makes_and_deletes_queues_with_the_broker_that_it_inherited(
    broker: Broker, queue: Queue, start: Start
) -> None:
    def work(pipe: Connection) -> list[str]:
        broker.create_queue("made", dead_letter=None).put(b"1")
        broker.queue("q").put(b"2")
        names = [summary.name for summary in broker.list_queues()]
        broker.close()
        return names

    assert start(work).ends() == ["made", "q", "q.dlq"]
    assert drain(broker.queue("made")) == [b"1"]
    assert drain(queue) == [b"2"]


@pytest.mark.prove
@with_threads
def test_children_forked_between_threads_that_are_at_work_go_on(
    broker: Broker, queue: Queue, start: Start
) -> None:
    ended = threading.Event()
    errors: list[BaseException] = []

    def churn() -> None:
        try:
            while not ended.is_set():
                queue.put(b"1")
                queue.put(bytes(LARGE))
                for message in queue.get_many(2):
                    message.ack()
        except BaseException as error:
            errors.append(error)

    def work(pipe: Connection) -> None:
        queue.put(b"2")
        # No more than it puts: a thread that found nothing at the end would wait for ever.
        for message in queue.get_many(1):
            message.ack()
        is_sound(queue)

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            start(work).ends()
    finally:
        ended.set()
        for thread in threads:
            thread.join()

    assert errors == []
    drain(queue)
    is_empty(queue)


@pytest.mark.prove
@with_threads
def test_a_child_forked_while_a_thread_holds_the_registry_makes_queues(
    broker: Broker, start: Start
) -> None:
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            broker.create_queue("made", dead_letter=None).close()
            broker.delete_queue("made")

    def work(pipe: Connection, number: int) -> None:
        broker.create_queue(f"child-{number}", dead_letter=None).put(b"1")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(20):
            start(work, number).ends()
    finally:
        ended.set()
        thread.join()

    names = [summary.name for summary in broker.list_queues() if summary.depth == 1]
    assert names == sorted(f"child-{number}" for number in range(20))


@with_threads
def test_a_thread_that_forks_has_a_child_that_goes_on(queue: Queue, start: Start) -> None:
    children = []

    def fork() -> None:
        children.append(start(lambda pipe: queue.put(b"1").sequence))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()

    assert children[0].ends() == 1
    assert drain(queue) == [b"1"]


@with_threads
def test_a_child_forked_while_a_thread_sleeps_takes_no_message_of_the_sleepers(
    queue: Queue, start: Start
) -> None:
    got: list[bytes] = []

    def wait() -> None:
        got.append(queue.get(timeout=PATIENCE).body)

    thread = threading.Thread(target=wait)
    thread.start()
    asleep(queue, getters=1)
    start(lambda pipe: queue.put(b"1").sequence).ends()
    thread.join()

    assert got == [b"1"]
    asleep(queue)
