"""What a thread has begun in the loop: order, errors, and the end."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from shmq.errors import ShmqError
from shmq.extras.nats.client.flight import Flight
from shmq.extras.nats.client.loop_thread import Begun, LoopThread
from tests.support.waiting import PATIENCE


async def nothing() -> None:
    await asyncio.sleep(0)


async def broken(text: str) -> None:
    raise ShmqError(text)


def test_operations_begin_in_order_and_errors_are_known_by_number() -> None:
    begun: list[int] = []

    def begin(number: int, operation: Begun[Any]) -> None:
        begun.append(number)
        if number % 3 == 0:
            operation.end(None)
        elif number % 3 == 1:
            operation.go_on(nothing())
        elif number == 5:
            raise ValueError("five")
        else:
            operation.go_on(broken(str(number)))

    flight = Flight()
    assert [flight.begin(partial(begin, number)) for number in range(9)] == list(range(9))
    flight.wait()
    assert begun == list(range(9))
    assert (flight.open, flight.ended) == (0, 9)
    found = flight.take_errors()
    assert list(found) == [2, 5, 8]
    assert [str(error) for error in found.values()] == ["2", "five", "8"]
    assert flight.take_errors() == {}


def test_a_wait_ends_with_as_many_as_may_be_left() -> None:
    held: list[Begun[Any]] = []
    flight = Flight()
    for _ in range(4):
        flight.begin(held.append)
    ended = threading.Event()

    def wait() -> None:
        flight.wait(2)
        ended.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    loop = LoopThread.get().loop
    loop.call_soon_threadsafe(lambda: held[0].end(None))  # they are there by then
    assert not ended.wait(0.05)
    loop.call_soon_threadsafe(lambda: held[1].end(None))
    assert ended.wait(PATIENCE)
    thread.join(PATIENCE)
    assert flight.open == 2
    for one in held:
        loop.call_soon_threadsafe(one.end, None)
    LoopThread.get().run(flight.drain())
    assert flight.open == 0


def test_many_rounds_lose_no_wakeup() -> None:
    flight = Flight()
    for number in range(3000):
        flight.begin(lambda operation: operation.end(None))
        flight.wait(number % 2)
    flight.wait()
    assert (flight.open, flight.ended) == (0, 3000)


def test_what_has_ended_ends_once() -> None:
    def begin(call: Begun[str]) -> None:
        call.end("first")
        call.end("second")
        call.fail(ShmqError("third"))
        call.go_on(late())

    async def late() -> str:
        raise AssertionError

    assert LoopThread.get().begin(begin) == "first"


def test_a_call_that_is_given_up_ends_also_without_a_task() -> None:
    def begin(call: Begun[str]) -> None:
        asyncio.get_running_loop().call_soon(call.cancel)

    with pytest.raises(ShmqError, match="closed while a call waited"):
        LoopThread.get().begin(begin)


def test_a_step_that_raises_ends_the_call_with_that() -> None:
    def begin(call: Begun[str]) -> None:
        asyncio.get_running_loop().call_soon(call.then, step)

    def step() -> None:
        raise ValueError("of the step")

    with pytest.raises(ValueError, match="of the step"):
        LoopThread.get().begin(begin)
