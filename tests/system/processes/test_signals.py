"""Signals during waits: Ctrl-C ends them with nothing lost, other handlers only run."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker, Message, Queue
from tests.support.processes import HOUR, LARGE, Start, asleep, drain, is_empty, is_sound
from tests.support.waiting import PATIENCE, until_interrupted

#: Waits for a message, and for space, without limit.
GETS: dict[str, Callable[[Queue], Any]] = {
    "get": lambda queue: queue.get(),
    "get with a timeout": lambda queue: queue.get(timeout=HOUR),
    "get_many": lambda queue: queue.get_many(10),
    "consume": lambda queue: next(queue.consume()),
    "for": lambda queue: list(queue.consume(timeout=HOUR)),
    "bodies": lambda queue: list(queue.bodies(timeout=HOUR)),
}
PUTS: dict[str, Callable[[Queue], Any]] = {
    "put": lambda queue: queue.put(b"2", block=True),
    "put with a timeout": lambda queue: queue.put(b"2", timeout=HOUR),
    "put of a large body": lambda queue: queue.put(bytes(LARGE), block=True),
    "put_many": lambda queue: queue.put_many([b"2", b"3"], block=True),
    "loan": lambda queue: queue.loan(LARGE, block=True),
}


class Oops(Exception):
    """What a handler of a test raises."""


def is_interrupted(
    pipe: Connection, queue: Queue, wait: Callable[[Queue], Any], error: type[BaseException]
) -> str:
    """Wait until ``error`` comes, then wait for the word to use the queue again."""
    with pytest.raises(error):
        wait(queue)
    pipe.send(error.__name__)
    pipe.recv()
    queue.qsize()
    is_sound(queue)
    return "goes on"


def tight(broker: Broker) -> Queue:
    """A full queue with room for a single message."""
    queue = broker.create_queue("full", capacity=1, visibility_timeout=HOUR)
    queue.put(b"1")
    return queue


@pytest.mark.parametrize("how", GETS)
def test_ctrl_c_ends_a_wait_for_a_message_at_once(queue: Queue, start: Start, how: str) -> None:
    child = start(is_interrupted, queue, GETS[how], KeyboardInterrupt)
    asleep(queue, getters=1)

    child.signal(signal.SIGINT)

    assert child.hear() == "KeyboardInterrupt"
    asleep(queue)
    queue.put(b"1")
    assert drain(queue) == [b"1"]
    child.tell()
    assert child.ends() == "goes on"


@pytest.mark.parametrize("how", PUTS)
def test_ctrl_c_ends_a_wait_for_space_at_once(broker: Broker, start: Start, how: str) -> None:
    queue = tight(broker)
    child = start(is_interrupted, queue, PUTS[how], KeyboardInterrupt)
    asleep(queue, putters=1)

    child.signal(signal.SIGINT)

    assert child.hear() == "KeyboardInterrupt"
    asleep(queue)
    assert drain(queue) == [b"1"]
    is_empty(queue)
    child.tell()
    assert child.ends() == "goes on"


@pytest.mark.parametrize("how", ["get", "put"])
def test_what_a_handler_raises_ends_the_wait(broker: Broker, start: Start, how: str) -> None:
    queue = tight(broker) if how == "put" else broker.create_queue("q")

    def raise_it(number: int, frame: object) -> None:
        raise Oops

    def work(pipe: Connection) -> str:
        signal.signal(signal.SIGUSR1, raise_it)
        return is_interrupted(pipe, queue, GETS["get"] if how == "get" else PUTS["put"], Oops)

    child = start(work)
    asleep(queue, getters=int(how == "get"), putters=int(how == "put"))
    child.signal(signal.SIGUSR1)

    assert child.hear() == "Oops"
    asleep(queue)
    child.tell()
    child.ends()


@pytest.mark.parametrize("how", ["get", "get_many", "consume", "put"])
def test_a_handler_that_returns_runs_and_the_wait_goes_on(
    broker: Broker, start: Start, how: str
) -> None:
    queue = tight(broker) if how == "put" else broker.create_queue("q")

    def work(pipe: Connection) -> str:
        signal.signal(signal.SIGUSR1, lambda number, frame: pipe.send("ran"))
        (PUTS if how == "put" else GETS)[how](queue)
        return "done"

    child = start(work)
    sleeping = {"putters": 1} if how == "put" else {"getters": 1}
    asleep(queue, **sleeping)
    for _ in range(5):
        child.signal(signal.SIGUSR1)
        assert child.hear() == "ran"
        asleep(queue, **sleeping)
    if how == "put":
        drain(queue)
    else:
        queue.put(b"1")

    assert child.ends() == "done"
    asleep(queue)


def test_a_handler_may_use_the_queue_that_is_waited_on(queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> bytes:
        signal.signal(signal.SIGUSR1, lambda number, frame: queue.put(b"from the handler"))
        with queue.get() as message:
            return bytes(message.body)

    child = start(work)
    asleep(queue, getters=1)
    child.signal(signal.SIGUSR1)

    assert child.ends() == b"from the handler"
    is_empty(queue)


def test_a_signal_that_another_thread_took_ends_the_wait_of_the_main_one(
    queue: Queue, start: Start
) -> None:
    def work(pipe: Connection) -> str:
        def take() -> None:
            asleep(queue, getters=1)
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        threading.Thread(target=take, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            queue.get()
        return "interrupted"

    assert start(work).ends() == "interrupted"
    asleep(queue)


def test_signals_all_the_time_make_a_wait_neither_shorter_nor_lose_its_message(
    queue: Queue, start: Start
) -> None:
    def work(pipe: Connection) -> tuple[float, bytes]:
        signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        begun = time.monotonic()
        with pytest.raises(shmq.Empty):
            queue.get(timeout=0.3)
        waited = time.monotonic() - begun
        pipe.send("ready")
        with queue.get(timeout=PATIENCE) as message:
            return waited, bytes(message.body)

    child = start(work)
    child.hear()
    asleep(queue, getters=1)
    queue.put(b"1")

    waited, body = child.ends()
    assert waited >= 0.3
    assert body == b"1"
    asleep(queue)
    is_empty(queue)


class CtrlC:
    """A handler that raises KeyboardInterrupt, once after each time it is armed."""

    def __init__(self) -> None:
        self.armed = False
        signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: object) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


@pytest.mark.prove
def test_a_message_that_comes_together_with_ctrl_c_is_not_lost(queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> list[bytes]:
        got: list[Message] = []
        ctrl_c = CtrlC()
        with contextlib.suppress(KeyboardInterrupt):
            ctrl_c.armed = True
            got.append(queue.get())
            ctrl_c.armed = False
        assert queue.ack_many(got) == []
        return [message.body for message in got]

    for number in range(30):
        child = start(work)
        asleep(queue, getters=1)
        queue.put(bytes([number]))
        child.signal(signal.SIGINT)

        assert child.ends() + drain(queue) == [bytes([number])]
        is_empty(queue)


@pytest.mark.parametrize("handed", [0, 1, 3])
def test_ctrl_c_in_a_loop_over_a_consumer_returns_what_was_not_handed_out(
    queue: Queue, start: Start, handed: int
) -> None:
    def work(pipe: Connection) -> str:
        with pytest.raises(KeyboardInterrupt), queue.consume(prefetch=10) as consumer:
            for message in itertools.islice(consumer, handed):
                message.ack()
            pipe.send("in the loop")
            until_interrupted()
        pipe.send("closed")
        pipe.recv()
        return "done"

    queue.put_many([bytes([number]) for number in range(10)])
    child = start(work)
    child.hear()
    child.signal(signal.SIGINT)
    assert child.hear() == "closed"

    again = queue.get_many(20, block=False)
    assert [message.body for message in again] == [bytes([n]) for n in range(handed, 10)]
    assert {message.delivery_count for message in again} == {1}
    child.tell()
    child.ends()


def test_ctrl_c_in_a_with_block_returns_the_message(queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> str:
        with pytest.raises(KeyboardInterrupt), queue.get():
            pipe.send("in the block")
            until_interrupted()
        return "returned"

    queue.put(b"1")
    child = start(work)
    child.hear()
    child.signal(signal.SIGINT)

    assert child.ends() == "returned"
    stats = queue.stats()
    assert (stats.nacked, stats.in_flight, stats.delayed + stats.depth) == (1, 0, 1)


def test_ctrl_c_in_a_loan_drops_it(broker: Broker, start: Start) -> None:
    queue = broker.create_queue("q", capacity=1)

    def work(pipe: Connection) -> str:
        with pytest.raises(KeyboardInterrupt), queue.loan(LARGE):
            pipe.send("in the block")
            until_interrupted()
        pipe.send("dropped")
        pipe.recv()
        return "done"

    child = start(work)
    child.hear()
    child.signal(signal.SIGINT)
    assert child.hear() == "dropped"

    queue.put_nowait(b"1")
    assert drain(queue) == [b"1"]
    child.tell()
    child.ends()
    is_empty(queue)


@pytest.mark.prove
def test_ctrl_c_at_any_moment_loses_nothing(queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> tuple[int, int, int]:
        put = acked = rounds = 0
        ctrl_c = CtrlC()
        queue.qsize()
        pipe.send("ready")
        while rounds < 200 or acked < 200:
            rounds += 1
            with contextlib.suppress(KeyboardInterrupt):
                for number in itertools.count():
                    # Armed in the first turn always, a machine on which signals outrun
                    # the child would interrupt nothing but the first put.
                    if number == rounds % 3:
                        ctrl_c.armed = True
                    put = queue.put(bytes(LARGE if number % 10 == 0 else 10)).sequence
                    for message in queue.get_many(2, block=False):
                        message.ack()
                        acked += 1
        return put, acked, rounds

    child = start(work)
    child.hear()
    while not child.has_spoken():
        child.signal(signal.SIGINT)
    put, acked, rounds = child.ends()

    left = len(drain(queue))
    stats = queue.stats()
    assert put <= stats.put == stats.acked <= put + rounds
    assert acked + left <= stats.acked <= acked + left + rounds
    is_empty(queue)


def wait_for_ever(pipe: Connection, queue: Queue) -> None:
    queue.get()


def test_sigterm_ends_a_process_that_waits(queue: Queue, start: Start) -> None:
    child = start(wait_for_ever, queue)
    asleep(queue, getters=1)

    child.signal(signal.SIGTERM)
    assert child.reap() == -signal.SIGTERM

    asleep(queue)
    is_empty(queue)
