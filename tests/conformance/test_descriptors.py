"""The descriptor of a queue: readable while a message may be visible, as a socket's is.

Other levels: system/client/remote/test_descriptors.py, system/processes/test_descriptors.py,
tree/test_descriptors.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import selectors
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import gevent.socket
import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE

from .conftest import Connect
from .tools import LATER, SOON, drain, in_thread, lease_all, next_message, outcome


def is_readable(event: Queue | shmq.ReadyEvent, wait: float = 0.0) -> bool:
    """Whether it is readable now, or becomes so within ``wait`` seconds."""
    poller = select.poll()
    poller.register(event.fileno(), select.POLLIN)
    return bool(poller.poll(wait * 1000))


def becomes_readable(event: Queue | shmq.ReadyEvent) -> bool:
    return is_readable(event, PATIENCE)


def kernel_name(event: Queue | shmq.ReadyEvent) -> str:
    """What the kernel calls it, which no other descriptor is called."""
    lines = Path(f"/proc/self/fdinfo/{event.fileno()}").read_text().splitlines()
    return next(line for line in lines if line.startswith("eventfd-id:"))


def is_open(name: str) -> bool:
    """Whether this process has a descriptor that the kernel calls so."""
    for path in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if name in path.read_text().splitlines():
                return True
    return False


def is_quiet(queue: Queue) -> bool:
    """Whether it is not readable, after a get that finds nothing."""
    with contextlib.suppress(shmq.Empty):
        queue.get_nowait().ack()
        return False
    return not is_readable(queue, SOON)


EMPTY: dict[str, Callable[[Queue], Any]] = {
    "get": lambda queue: queue.get(timeout=0.001),
    "get_nowait": lambda queue: queue.get_nowait(),
    "get_many": lambda queue: queue.get_many(5, block=False),
    "get_many that waits": lambda queue: queue.get_many(5, 0.001),
    "get_batch": lambda queue: queue.get_batch(5, block=False),
    "get_packed": lambda queue: queue.get_packed(5, block=False),
    "consume": lambda queue: list(queue.consume(block=False)),
    "consume that waits": lambda queue: list(queue.consume(timeout=0.001)),
    "bodies": lambda queue: list(queue.bodies(block=False)),
    "aget": lambda queue: asyncio.run(queue.aget(0)),
    "aconsume": lambda queue: asyncio.run(anext(queue.aconsume(timeout=0.001))),
    "lease_run": lambda queue: queue.bulk().lease_run(5),
    "where": lambda queue: queue.get_nowait(where="priority > 1"),
    "get_many where": lambda queue: queue.get_many(5, block=False, where="priority > 1"),
    "consume where": lambda queue: list(queue.consume(block=False, where="priority > 1")),
}


@pytest.mark.parametrize("how", EMPTY)
def test_a_get_that_finds_nothing_ends_it_and_the_next_message_begins_it(
    queue: Queue, other: Queue, how: str
) -> None:
    queue.fileno()
    other.put(b"1")
    assert becomes_readable(queue)
    other.get(timeout=PATIENCE).ack()

    with contextlib.suppress(shmq.Empty, StopAsyncIteration):
        EMPTY[how](queue)

    assert not is_readable(queue, SOON)
    other.put(b"2")
    assert becomes_readable(queue)
    assert queue.get_nowait().body == b"2"


def test_it_stays_readable_while_messages_are_left(queue: Queue, other: Queue) -> None:
    queue.fileno()
    other.put_many([b"1", b"2", b"3"])

    taken = []
    while becomes_readable(queue):
        try:
            message = queue.get_nowait()
        except shmq.Empty:
            break
        taken.append(message.body)
        message.ack()

    assert taken == [b"1", b"2", b"3"]
    assert not is_readable(queue, SOON)


def test_it_is_readable_from_the_first_call_on_if_there_is_a_message(queue: Queue) -> None:
    queue.put(b"1")

    assert becomes_readable(queue)
    assert queue.fileno() == queue.fileno()


def test_a_message_that_another_consumer_holds_back_is_none(broker: Broker) -> None:
    queue = broker.create_queue("groups", visibility_timeout=LATER)
    queue.put(b"1", group="g")
    queue.put(b"2", group="g")
    first = next_message(queue)

    assert is_quiet(queue)

    first.ack()
    assert becomes_readable(queue)
    assert next_message(queue).body == b"2"


def test_a_message_that_becomes_due_makes_it_readable(queue: Queue, other: Queue) -> None:
    assert is_quiet(queue)
    other.put(b"1", delay=SOON)

    assert becomes_readable(queue)
    assert next_message(queue).body == b"1"


def test_a_lease_that_ends_makes_it_readable(broker: Broker, connect: Connect) -> None:
    queue = broker.create_queue("q", visibility_timeout=LATER, retry_delay=0)
    queue.put(b"1")
    held = next_message(connect().queue("q"))
    assert is_quiet(queue)

    held.extend(SOON)

    assert becomes_readable(queue)
    assert next_message(queue).sequence == held.sequence


def test_a_message_that_is_returned_makes_it_readable(broker: Broker, connect: Connect) -> None:
    queue = broker.create_queue("q", visibility_timeout=LATER, retry_delay=0)
    queue.put(b"1")
    held = next_message(connect().queue("q"))
    assert is_quiet(queue)

    held.nack()

    assert becomes_readable(queue)
    assert next_message(queue).body == b"1"


def test_a_holder_that_leaves_makes_it_readable(broker: Broker, connect: Connect) -> None:
    queue = broker.create_queue("q", visibility_timeout=LATER, retry_delay=0)
    queue.put(b"1")
    holder = connect().queue("q")
    held = next_message(holder)
    assert is_quiet(queue)

    holder.close()

    assert becomes_readable(queue)
    assert next_message(queue).sequence == held.sequence


@pytest.mark.parametrize("ends", [{"exclusive": True}, {"auto_delete": True}])
def test_a_queue_that_ends_by_itself_has_one_too(
    broker: Broker, connect: Connect, ends: dict[str, bool]
) -> None:
    with broker.create_queue("inbox", **ends) as queue:  # type: ignore[arg-type]
        queue.fileno()
        drain(queue)
        assert not is_readable(queue, SOON), "it tells of a message that is not there"

        connect().put_target("inbox").put(b"1")

        assert becomes_readable(queue)
        assert next_message(queue).body == b"1"


def test_all_descriptors_of_a_queue_tell_of_one_message(queue: Queue, other: Queue) -> None:
    assert is_quiet(queue)
    assert is_quiet(other)

    queue.put(b"1")

    assert becomes_readable(queue)
    assert becomes_readable(other)


def test_a_deleted_queue_makes_it_readable_and_the_next_get_says_so(
    queue: Queue, connect: Connect
) -> None:
    assert is_quiet(queue)
    connect().delete_queue(queue.name)

    assert becomes_readable(queue)
    with pytest.raises(shmq.QueueDeleted):
        queue.get_nowait()
    assert is_readable(queue)


def test_close_closes_it(queue: Queue) -> None:
    name = kernel_name(queue)
    assert is_open(name)
    queue.close()

    assert not is_open(name)
    with pytest.raises(shmq.ShmqError, match="closed"):
        queue.fileno()


def test_a_selector_takes_the_queue_itself(queue: Queue, other: Queue) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(queue, selectors.EVENT_READ, "it")
        other.put(b"1")

        (key, _), *_ = selector.select(PATIENCE)

        assert key.data == "it"
        selector.unregister(queue)


def test_a_loop_watches_it_with_add_reader(queue: Queue, other: Queue) -> None:
    async def watch() -> list[Any]:
        loop = asyncio.get_running_loop()
        taken: list[Any] = []
        done = loop.create_future()

        def read() -> None:
            for message in queue.get_many(10, block=False):
                taken.append(message.body)
                message.ack()
            if len(taken) == 5 and not done.done():
                done.set_result(None)

        loop.add_reader(queue.fileno(), read)
        for number in range(5):
            await asyncio.to_thread(other.put, number)
        await asyncio.wait_for(done, PATIENCE)
        loop.remove_reader(queue.fileno())
        return taken

    assert asyncio.run(watch()) == [0, 1, 2, 3, 4]


# ---- several queues ----


@pytest.fixture
def queues(broker: Broker) -> list[Queue]:
    return [broker.create_queue(name) for name in "abc"]


def test_an_event_is_readable_until_no_queue_has_a_message(queues: list[Queue]) -> None:
    a, b, c = queues
    with shmq.ReadyEvent(queues) as event:
        assert event.ready() == []
        assert not is_readable(event, SOON)

        c.put(b"1")
        a.put(b"2")
        assert becomes_readable(event)
        assert event.ready() == [a, c]
        event.clear()
        assert becomes_readable(event)

        assert drain(a) + drain(c) == [b"2", b"1"]
        event.clear()
        assert not is_readable(event, SOON)

        b.put(b"3")
        assert becomes_readable(event)
        assert event.ready() == [b]


def test_a_get_does_not_clear_the_event_of_several(queues: list[Queue]) -> None:
    with shmq.ReadyEvent(queues) as event:
        queues[0].put(b"1")
        assert becomes_readable(event)

        assert lease_all(queues[0])

        assert is_readable(event)


def test_an_event_names_a_deleted_queue_whose_get_says_so(
    queues: list[Queue], connect: Connect
) -> None:
    with shmq.ReadyEvent(queues) as event:
        event.clear()
        connect().delete_queue("b")

        assert becomes_readable(event)
        assert event.ready() == [queues[1]]
        with pytest.raises(shmq.QueueDeleted):
            queues[1].get_nowait()


def test_an_event_that_is_closed_says_so_and_closes_its_descriptor(queues: list[Queue]) -> None:
    event = shmq.ReadyEvent(queues)
    name = kernel_name(event)
    event.close()
    event.close()

    assert event.closed
    event.clear()
    assert not is_open(name)
    with pytest.raises(shmq.ShmqError, match="closed"):
        event.fileno()
    assert queues[0].put(b"1").sequence == 1


def test_what_is_no_queue_has_no_event(queue: Queue) -> None:
    with pytest.raises(shmq.InvalidOption, match="no queue"):
        shmq.ReadyEvent([])
    with pytest.raises(TypeError, match="put it in a list"):
        shmq.ReadyEvent(queue)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a queue"):
        shmq.ReadyEvent(["q"])  # type: ignore[list-item]


# ---- shmq.wait ----


def test_wait_returns_the_queues_that_have_a_message_in_their_order(queues: list[Queue]) -> None:
    a, b, c = queues
    assert shmq.wait(queues, 0) == []
    assert shmq.wait(queues, 0.01) == []
    c.put(b"1")
    a.put(b"2")

    assert shmq.wait(queues, 0) == [a, c]
    assert shmq.wait([c, b, a, c], PATIENCE) == [c, a]
    assert (a.qsize(), c.qsize()) == (1, 1)


def test_a_message_that_comes_ends_a_wait(queues: list[Queue], connect: Connect) -> None:
    waits = in_thread(shmq.wait, queues, PATIENCE)
    connect().queue("b").put(b"1")

    assert outcome(waits) == [queues[1]]


def test_a_deleted_queue_ends_a_wait(queues: list[Queue], connect: Connect) -> None:
    waits = in_thread(shmq.wait, queues, PATIENCE)
    connect().delete_queue("b")

    with pytest.raises(shmq.QueueDeleted, match="'b'"):
        outcome(waits)


def test_a_greenlet_waits_for_it_and_others_run_meanwhile(queue: Queue) -> None:
    taken: list[Any] = []

    def consume() -> None:
        while len(taken) < 3:
            gevent.socket.wait_read(queue.fileno(), timeout=PATIENCE)
            taken.extend(drain(queue))

    consumer = gevent.spawn(consume)
    gevent.joinall([consumer, *(gevent.spawn(queue.put, n) for n in range(3))], timeout=PATIENCE)

    assert consumer.successful()
    assert sorted(taken) == [0, 1, 2]
