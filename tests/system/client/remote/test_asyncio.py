"""The asynchronous side, on each kind of loop."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

import shmq
from shmq import Broker, Queue
from shmq.client.remote.connection import LoopDriver
from shmq.native import _core
from shmq.protocol.opcodes import Type
from tests.conformance.tools import LATER, drain, next_message
from tests.support.loops import Loop, until
from tests.support.peer import frame
from tests.support.proxy import Proxy
from tests.support.waiting import PATIENCE


def test_put_get_and_ack(run: Loop, queue: Queue) -> None:
    async def work() -> None:
        put = await queue.aput({"n": 1}, headers={"k": "v"})
        message = await queue.aget()
        assert (message.sequence, message.body) == (put.sequence, {"n": 1})
        message.ack()

    run(work())

    assert queue.stats().acked == 1


def test_many_puts_share_a_connection(run: Loop, queue: Queue) -> None:
    async def work() -> None:
        puts = await asyncio.gather(*(queue.aput(number) for number in range(500)))
        assert len({put.sequence for put in puts}) == 500

    run(work())

    assert sorted(drain(queue)) == list(range(500))


def test_a_get_waits_and_others_run_meanwhile(run: Loop, queue: Queue) -> None:
    async def work() -> None:
        getter = asyncio.create_task(queue.aget())
        await asyncio.sleep(0.05)
        assert not getter.done()
        await queue.aput(b"x")
        assert (await getter).body == b"x"

    run(work())


def test_a_timeout_is_an_empty(run: Loop, queue: Queue) -> None:
    async def work() -> None:
        with pytest.raises(shmq.Empty, match=r"0\.05"):
            await queue.aget(0.05)
        with pytest.raises(shmq.Empty):
            await queue.aget(0)

    run(work())


def test_a_get_that_is_cancelled_has_taken_nothing(run: Loop, broker: Broker, queue: Queue) -> None:
    other = broker.queue("q")

    async def work() -> None:
        for number in range(20):
            getter = asyncio.create_task(queue.aget())
            await asyncio.sleep(0 if number % 2 else 0.005)
            getter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await getter
            other.put(number)
            message = await asyncio.to_thread(next_message, other)
            assert (message.body, message.delivery_count) == (number, 1)
            message.ack()

    run(work())


def test_a_cancellation_and_a_message_at_once_lose_nothing(run: Loop, queue: Queue) -> None:
    async def work() -> int:
        got = 0
        for _ in range(50):
            getter = asyncio.create_task(queue.aget())
            await asyncio.sleep(0.001)
            queue.put(b"x")
            getter.cancel()
            try:
                (await getter).ack()
                got += 1
            except asyncio.CancelledError:
                pass
        return got

    got = run(work())
    while got < 50:
        next_message(queue).ack()
        got += 1

    stats = queue.stats()
    assert (stats.acked, stats.depth, stats.in_flight) == (50, 0, 0)


def test_a_consumer(run: Loop, queue: Queue) -> None:
    queue.put_many(range(200))

    async def work() -> list[int]:
        got = []
        async with queue.aconsume(prefetch=16) as messages:
            async for message in messages:
                got.append(message.body)
                message.ack()
                if len(got) == 200:
                    break
        return got

    assert run(work()) == list(range(200))
    assert queue.stats().acked == 200


def test_a_consumer_that_is_left_returns_what_it_had_ahead(run: Loop, queue: Queue) -> None:
    queue.put_many(range(10))

    async def work() -> None:
        async with queue.aconsume(prefetch=10) as messages:
            async for message in messages:
                message.ack()
                break

    run(work())

    stats = queue.stats()
    assert (stats.acked, stats.depth, stats.in_flight) == (1, 9, 0)


def test_a_consumer_that_is_cancelled_while_it_waits_goes_on(run: Loop, queue: Queue) -> None:
    async def work() -> None:
        async with queue.aconsume() as messages:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(messages), 0.05)
            queue.put(b"x")
            message = await anext(messages)
            assert message.body == b"x"
            message.ack()

    run(work())


def test_a_full_queue_is_waited_for(run: Loop, broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1, overflow="block")
    queue.put(1)

    async def work() -> None:
        putter = asyncio.create_task(queue.aput(2))
        await asyncio.sleep(0.02)
        assert not putter.done()
        (await queue.aget()).ack()
        await putter
        with pytest.raises(shmq.Full):
            await queue.aput(3, 0.01)
        with pytest.raises(shmq.Full):
            await queue.aput(3, block=False)

    run(work())


def test_a_connection_that_is_cut_is_made_anew(
    run: Loop, proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    near = broker.create_queue("jobs", dedupe_window=LATER)
    queue = afar.queue("jobs")

    async def work() -> None:
        await queue.aput(1)
        proxy.cut_after(lambda kind, _: kind == Type.PRODUCE)
        await queue.aput(2)
        getter = asyncio.create_task(queue.aget())
        assert (await getter).body == 1
        proxy.cut()
        got: set[object] = set()
        async with queue.aconsume() as messages:
            while got != {1, 2}:
                message = await anext(messages)
                got.add(message.body)
                message.ack()

    run(work())
    assert near.qsize() == 0


def test_a_reset_right_behind_an_answer_is_noticed(run: Loop) -> None:
    ours, theirs = socket.socketpair()  # closed with unread input, the other end is reset
    wire = _core.Wire(ours, b"q", None)
    answered, lost = (wire.request(Type.PING, False, b"") for _ in range(2))
    wire.send()
    theirs.sendall(frame(Type.REPLY, b"", answered.id))
    theirs.close()

    async def work() -> None:
        driver = LoopDriver(asyncio.get_running_loop(), wire)
        assert await driver.wait(answered, PATIENCE)
        assert not answered.lost
        assert await driver.wait(lost, PATIENCE)
        assert lost.lost

    run(work())
    wire.close()


def test_loops_and_threads_share_a_handle(run: Loop, queue: Queue) -> None:
    async def pairs(first: int) -> list[int]:
        got = []
        for number in range(first, first + 50):
            await queue.aput(number)
            message = await queue.aget(PATIENCE)
            got.append(message.body)
            message.ack()
        return got

    results: list[int] = []

    def in_a_loop(first: int) -> None:
        results.extend(run(pairs(first)))

    def in_a_thread(first: int) -> None:
        for number in range(first, first + 50):
            queue.put(number)
            with queue.get(timeout=PATIENCE) as message:
                results.append(message.body)

    threads = [
        threading.Thread(target=work, args=(50 * n,))
        for n, work in enumerate([in_a_loop, in_a_thread] * 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == list(range(200))


def test_a_handle_outlives_its_loops(run: Loop, queue: Queue) -> None:
    async def work(number: int) -> None:
        await queue.aput(number)
        (await until_got(queue)).ack()

    async def until_got(queue: Queue) -> shmq.Message:
        return await queue.aget(PATIENCE)

    for number in range(5):
        run(work(number))
        queue.put(number)
        queue.get().ack()

    assert queue.stats().acked == 10


def test_closing_a_handle_ends_the_waits_of_its_tasks(run: Loop, queue: Queue) -> None:
    async def work() -> None:
        getter = asyncio.create_task(queue.aget())
        await until(lambda: queue.stats().waiting_get > 0)
        queue.close()
        with pytest.raises(shmq.ShmqError, match="closed"):
            await getter

    run(work())
