"""Descriptors of queues between processes: nothing is lost, a fork shares none, a death is told."""

from __future__ import annotations

import contextlib
import select
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.namespaces import own_namespace
from tests.support.processes import Start, hold
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE

#: How many messages each of the processes puts that a descriptor tells of.
MANY = 3000


@pytest.fixture
def namespace() -> Iterator[str]:
    """One whose own file may be left: the process of the servers may live on in it."""
    with own_namespace(inhabited=True) as name:
        yield name


@pytest.fixture(params=["local", "tcp"])
def place(request: pytest.FixtureRequest, namespace: str) -> Iterator[str]:
    """Where clients connect: the namespace, or its server."""
    if request.param == "local":
        yield namespace
        return
    with TCP_SERVERS.serve(namespace) as url:
        yield url


@pytest.fixture
def watched(queue: Queue, place: str) -> Iterator[Queue]:
    """The queue ``q``, as a client there has it."""
    with shmq.connect(place) as client:
        yield client.queue("q")


def is_readable(fd: int, wait: float = PATIENCE) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(wait * 1000))


def find_empty(queue: Queue) -> None:
    with pytest.raises(shmq.Empty):
        queue.get_nowait()


def put_one_by_one(pipe: Connection, namespace: str, count: int, name: str) -> None:
    queue = shmq.connect(namespace).queue(name)
    for number in range(count):
        queue.put(number)


@pytest.mark.parametrize("producers", [1, 2])
def test_who_acts_only_on_the_descriptor_misses_no_message(
    namespace: str, watched: Queue, start: Start, producers: int
) -> None:
    fd = watched.fileno()
    for _ in range(producers):
        start(put_one_by_one, namespace, MANY, "q")
    got = 0

    while got < producers * MANY:
        assert is_readable(fd), f"nothing is told after {got} messages"
        with contextlib.suppress(shmq.Empty):
            while True:
                watched.get_nowait().ack()
                got += 1

    find_empty(watched)
    assert not is_readable(fd, 0.05)


def test_who_clears_an_event_of_several_queues_misses_no_message(
    namespace: str, broker: Broker, queue: Queue, place: str, start: Start
) -> None:
    broker.create_queue("other")
    with shmq.connect(place) as client:
        queues = [client.queue("q"), client.queue("other")]
        with shmq.ReadyEvent(queues) as event:
            for each in queues:
                start(put_one_by_one, namespace, MANY, each.name)
            got = 0

            while got < 2 * MANY:
                assert is_readable(event.fileno()), f"nothing is told after {got} messages"
                event.clear()
                for each in queues:
                    while messages := each.get_many(16, block=False):
                        got += len(messages)
                        each.ack_many(messages)


def test_a_holder_that_is_killed_makes_it_readable(
    namespace: str, queue: Queue, watched: Queue, start: Start
) -> None:
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()
    find_empty(watched)
    assert not is_readable(watched.fileno(), 0)

    holder.kill()

    assert is_readable(watched.fileno())
    assert watched.get_nowait().body == b"1"


def test_a_child_has_a_descriptor_of_its_own_and_leaves_the_parents_alone(
    queue: Queue, watched: Queue, start: Start
) -> None:
    fd = watched.fileno()
    find_empty(watched)

    def work(pipe: Connection) -> None:
        find_empty(watched)
        pipe.send("found nothing")
        pipe.recv()
        own = watched.fileno()
        assert is_readable(own)
        watched.get_nowait().ack()
        find_empty(watched)
        assert not is_readable(own, 0)
        pipe.send("cleared its own")
        pipe.recv()
        watched.close()

    child = start(work)
    assert child.hear() == "found nothing"
    queue.put(b"1")
    assert is_readable(fd)
    child.tell()
    assert child.hear() == "cleared its own"
    assert is_readable(fd, 0)

    find_empty(watched)
    assert not is_readable(fd, 0)
    queue.put(b"2")
    assert is_readable(fd)
    child.tell()
    child.ends()
    assert is_readable(fd, 0)


def test_a_signal_handler_may_get_while_the_descriptor_is_cleared(queue: Queue) -> None:
    fd = queue.fileno()
    ended = False

    def again() -> None:
        if not ended:
            signal.setitimer(signal.ITIMER_REAL, 0.0002)

    def handle(*_: object) -> None:
        with contextlib.suppress(shmq.Empty):
            queue.get_nowait()
        again()

    before = signal.signal(signal.SIGALRM, handle)
    again()
    try:
        for number in range(2000):
            queue.put(number)
            for _ in range(2):
                with contextlib.suppress(shmq.Empty):
                    queue.get_nowait()
    finally:
        ended = True  # a signal that is on its way sets off no other, and still has a handler
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    find_empty(queue)
    assert not is_readable(fd, 0.05)
    queue.put(b"last")
    assert is_readable(fd)
