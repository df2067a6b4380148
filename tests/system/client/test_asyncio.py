"""A queue in an event loop: waiting, its end, and what a cancelled task leaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import threading
import time
from collections.abc import Iterator

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from tests.support.loops import Loop, until
from tests.support.waiting import PATIENCE

#: What is never waited for in vain, in seconds.
HOUR = 3600.0


@pytest.fixture
def local(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


def waiting(queue: shmq.Queue) -> tuple[int, int]:
    stats = queue.stats()
    return stats.waiting_get, stats.waiting_put


def block(seconds: float) -> None:
    """Keep the loop from running anything."""
    time.sleep(seconds)


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Nor does garbage of earlier tests give one back."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    gc.collect()
    gc.disable()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.enable()
        for descriptor in taken:
            os.close(descriptor)


def wait_threads(broker: LocalBroker) -> list[threading.Thread]:
    """Those of its namespace."""
    name = f"shmq waits {broker.namespace}"
    return [thread for thread in threading.enumerate() if thread.name == name]


def list_wakeups(broker: LocalBroker) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if f"bell.shmq@{broker.namespace}@" in name]


# ---- aget ----


def test_what_is_there_is_had_at_once_and_without_a_thread(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")
    queue.put({"a": 1}, headers={"b": 2})

    async def work() -> None:
        with await queue.aget() as message:
            assert message.body == {"a": 1} and message.headers == {"b": 2}
        with pytest.raises(shmq.Empty, match="within 0 s"):
            await queue.aget(timeout=0)
        assert (await queue.aput(b"x")).sequence == 2

    run(work())
    assert wait_threads(local) == []
    assert queue.stats().acked == 1


def test_a_task_waits_for_a_message_while_others_run(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> bytes:
        task = asyncio.create_task(queue.aget())
        await until(lambda: waiting(queue) == (1, 0))
        queue.put(b"come")
        with await task as message:
            body: bytes = message.body
            return body

    assert run(work()) == b"come"
    assert waiting(queue) == (0, 0)


def test_no_wait_ends_before_its_time(local: LocalBroker, run: Loop) -> None:
    """Wherever within a ms it begins: a loop may count whole ones."""
    queue = local.create_queue("q")

    async def work() -> None:
        for step in range(100):
            until = time.monotonic() + step / 100_000
            while time.monotonic() < until:
                pass
            start = time.monotonic()
            with pytest.raises(shmq.Empty):
                await queue.aget(timeout=0.003)
            assert time.monotonic() - start >= 0.003

    run(work())


def test_a_wait_ends_with_its_time(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> None:
        start = time.monotonic()
        with pytest.raises(shmq.Empty, match=r"no message came to queue 'q' within 0\.02 s"):
            await queue.aget(timeout=0.02)
        assert time.monotonic() - start >= 0.02
        assert waiting(queue) == (0, 0)

    run(work())


@pytest.mark.parametrize("timeout", [-1, "1", True])
def test_a_timeout_that_is_none_is_refused(local: LocalBroker, run: Loop, timeout: object) -> None:
    queue = local.create_queue("q")
    queue.put(b"x")

    async def work() -> None:
        with pytest.raises((TypeError, shmq.InvalidOption), match="timeout="):
            await queue.aget(timeout)  # type: ignore[arg-type]
        with pytest.raises((TypeError, shmq.InvalidOption), match="timeout="):
            await queue.aput(b"x", timeout)  # type: ignore[arg-type]

    run(work())
    assert queue.qsize() == 1


def test_a_delayed_message_wakes_when_it_is_due(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> None:
        task = asyncio.create_task(queue.aget())
        await until(lambda: waiting(queue) == (1, 0))
        start = time.monotonic()
        queue.put(b"later", delay=0.15)
        (await task).ack()
        assert time.monotonic() - start >= 0.15

    run(work())


def test_a_lease_that_ends_wakes(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")
    queue.put(b"x")

    async def work() -> int:
        held = await queue.aget()
        held.extend(0.15)
        message = await queue.aget()
        assert message.sequence == held.sequence
        message.ack()
        return message.delivery_count

    assert run(work()) == 2


def test_a_message_that_is_returned_wakes(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")
    queue.put(b"x", group="g")
    queue.put(b"y", group="g")

    async def work() -> None:
        held = await queue.aget()
        task = asyncio.create_task(queue.aget())
        await until(lambda: waiting(queue) == (1, 0))
        held.nack(delay=0)
        assert (await task).sequence == held.sequence

    run(work())


# ---- aput ----


def test_a_put_waits_for_room_where_the_queue_blocks(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q", capacity=1, overflow="block")

    async def work() -> None:
        await queue.aput(b"first")
        task = asyncio.create_task(queue.aput(b"second", priority=shmq.HIGH))
        await until(lambda: waiting(queue) == (0, 1))
        queue.get().ack()
        assert (await task).sequence == 2
        with queue.get() as message:
            assert (message.body, message.priority) == (b"second", shmq.HIGH)

    run(work())
    assert waiting(queue) == (0, 0)


def test_a_put_that_may_not_wait_is_refused(local: LocalBroker, run: Loop) -> None:
    rejects = local.create_queue("r", capacity=1)
    blocks = local.create_queue("b", capacity=1, overflow="block")

    async def work() -> None:
        for queue in (rejects, blocks):
            await queue.aput(b"x")
            with pytest.raises(shmq.Full, match="1 of 1 messages"):
                await queue.aput(b"x", timeout=0)
            with pytest.raises(shmq.Full):
                await queue.aput(b"x", block=False)
            with pytest.raises(shmq.Full):
                await queue.aput(b"x", timeout=0.01)
        with pytest.raises(shmq.Full):
            await rejects.aput(b"x")
        task = asyncio.create_task(rejects.aput(b"y", block=True))
        await until(lambda: waiting(rejects) == (0, 1))
        rejects.purge()
        await task

    run(work())
    assert waiting(blocks) == (0, 0)


def test_a_large_body_waits_for_its_bytes(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q", arena_bytes=100_000, max_message_bytes=80_000, overflow="block")

    async def work() -> None:
        await queue.aput(b"a" * 60_000)
        task = asyncio.create_task(queue.aput(b"b" * 60_000))
        await until(lambda: waiting(queue) == (0, 1))
        with await queue.aget() as message:
            assert message.body == b"a" * 60_000
        await task
        with await queue.aget() as message:
            assert message.body == b"b" * 60_000

    run(work())
    queue.check()


def test_what_can_never_be_put_is_refused_at_once(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q", arena_bytes=100_000, overflow="block")

    async def work() -> None:
        with pytest.raises(shmq.MessageTooLarge):
            await queue.aput(b"a" * 200_000)
        with pytest.raises(shmq.InvalidOption):
            await queue.aput(b"a", priority=99)

    run(work())


def test_room_for_many_wakes_all_waiting_puts_in_their_order(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q", capacity=5, overflow="block")
    queue.put_many([b"old"] * 5)

    async def work() -> list[bytes]:
        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(queue.aput(b"%d" % number)))
            await asyncio.sleep(0)
        queue.purge()
        await asyncio.gather(*tasks)
        return [message.body for message in queue.get_many(5)]

    assert run(work()) == [b"0", b"1", b"2", b"3", b"4"]


# ---- aconsume ----


def test_an_asynchronous_consumer_hands_out_all_and_waits_for_more(
    local: LocalBroker, run: Loop
) -> None:
    queue = local.create_queue("q")
    queue.put_many([b"%d" % n for n in range(100)])

    async def work() -> list[bytes]:
        bodies = []
        async with queue.aconsume(prefetch=7) as messages:
            async for message in messages:
                bodies.append(message.body)
                message.ack()
                if len(bodies) == 100:
                    asyncio.get_running_loop().call_later(0.02, queue.put, b"last")
                if len(bodies) == 101:
                    break
        return bodies

    assert run(work()) == [*(b"%d" % n for n in range(100)), b"last"]
    assert queue.stats().acked == 101
    assert waiting(queue) == (0, 0)


def test_an_asynchronous_consumer_ends_when_none_came_in_time(
    local: LocalBroker, run: Loop
) -> None:
    queue = local.create_queue("q")
    queue.put(b"x")

    async def work() -> None:
        messages = queue.aconsume(timeout=0.02)
        assert [message.body async for message in messages] == [b"x"]
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        assert [message async for message in queue.aconsume(timeout=0)] == []

    run(work())


def test_closing_an_asynchronous_consumer_returns_what_it_leased_ahead(
    local: LocalBroker, run: Loop
) -> None:
    queue = local.create_queue("q")
    queue.put_many([b"a", b"b", b"c"])

    async def work() -> None:
        messages = queue.aconsume(prefetch=3)
        (await anext(messages)).ack()
        messages.flush()
        assert queue.stats().in_flight == 2
        await messages.aclose()
        await messages.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)

    run(work())
    assert [(m.body, m.delivery_count) for m in queue.get_many(5)] == [(b"b", 1), (b"c", 1)]


def test_an_asynchronous_consumer_gives_way_to_other_tasks(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")
    queue.put_many([b"x"] * 100)

    async def work() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        async for message in queue.aconsume(prefetch=10, timeout=0):
            message.ack()
        task.cancel()
        return turns

    assert run(work()) >= 9


def test_a_consumer_that_is_cancelled_while_it_waits_holds_nothing(
    local: LocalBroker, run: Loop
) -> None:
    queue = local.create_queue("q")

    async def consume() -> None:
        async for message in queue.aconsume():
            message.ack()

    async def work() -> None:
        task = asyncio.create_task(consume())
        await until(lambda: waiting(queue) == (1, 0))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task

    run(work())
    gc.collect()
    queue.put(b"x")
    assert queue.get_nowait().delivery_count == 1
    assert waiting(queue) == (0, 0)


# ---- cancellation ----


def test_a_task_that_is_cancelled_while_it_waits_is_gone(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q", capacity=1, overflow="block")

    async def work() -> None:
        get = asyncio.create_task(queue.aget())
        await until(lambda: waiting(queue) == (1, 0))
        get.cancel()
        await asyncio.gather(get, return_exceptions=True)
        assert waiting(queue) == (0, 0)
        queue.put(b"x")
        put = asyncio.create_task(queue.aput(b"y"))
        await until(lambda: waiting(queue) == (0, 1))
        put.cancel()
        await asyncio.gather(put, return_exceptions=True)

    run(work())
    assert waiting(queue) == (0, 0)
    assert queue.get().delivery_count == 1
    assert queue.qsize() == 0


def test_a_call_that_meets_a_cancelled_task_is_passed_on(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> None:
        for round_ in range(20):
            tasks = [asyncio.create_task(queue.aget()) for _ in range(3)]
            await until(lambda: waiting(queue) == (1, 0))
            queue.put(b"x")
            # The first is called while this blocks the loop, and cancelled before it runs.
            block(0.005 * (round_ % 3))
            tasks[0].cancel()
            message = await tasks[1]
            assert tasks[0].cancelled() or (await tasks[0]).sequence != message.sequence
            assert message.delivery_count == 1
            message.ack()
            tasks[2].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(work())
    assert (queue.qsize(), queue.stats().in_flight) == (0, 0)
    assert waiting(queue) == (0, 0)


def test_a_call_that_meets_the_last_task_cancelled_goes_to_another_process(
    local: LocalBroker, run: Loop
) -> None:
    queue = local.create_queue("q")
    other = local.queue("q")  # another handle is another party, as another process's is

    async def work() -> None:
        for _ in range(10):
            mine = asyncio.create_task(queue.aget())
            theirs = asyncio.create_task(other.aget())
            await until(lambda: waiting(queue) == (2, 0))
            queue.put(b"x")
            block(0.005)
            mine.cancel()
            done = await asyncio.gather(mine, return_exceptions=True)
            if isinstance(done[0], shmq.Message):
                done[0].ack()
                queue.put(b"y")
            (await theirs).ack()

    run(work())
    assert (queue.qsize(), queue.stats().in_flight) == (0, 0)


def test_a_timeout_of_asyncio_loses_nothing(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> set[int]:
        seen: set[int] = set()
        for n in range(60):
            asyncio.get_running_loop().call_later(0.002, queue.put, b"%d" % n)
            while True:
                try:
                    message = await asyncio.wait_for(queue.aget(), 0.002)
                except asyncio.TimeoutError:  # noqa: UP041 - another class before 3.11
                    continue
                break
            assert message.delivery_count == 1
            seen.add(message.sequence)
            message.ack()
        return seen

    assert run(work()) == set(range(1, 61))
    assert queue.stats().put == queue.stats().acked == 60


def test_a_coroutine_that_is_dropped_leaves_its_place(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> None:
        dropped = queue.aget()
        while dropped.send(None) is None:  # it lets other tasks run before it sleeps
            pass
        dropped.close()
        assert waiting(queue) == (0, 0)
        task = asyncio.create_task(queue.aget())
        await until(lambda: waiting(queue) == (1, 0))
        queue.put(b"x")
        (await task).ack()

    run(work())


def test_a_loop_that_was_closed_with_tasks_in_it_keeps_nothing_from_others(
    local: LocalBroker, run: Loop
) -> None:
    queue = local.create_queue("q")
    loop = run.new()
    lost = loop.create_task(queue.aget())
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()

    async def work() -> None:
        task = asyncio.create_task(queue.aget())
        await asyncio.sleep(0.01)
        queue.put(b"x")
        (await task).ack()

    run(work())
    lost._log_destroy_pending = False  # type: ignore[attr-defined]
    del lost
    gc.collect()


# ---- many ----


def test_tasks_are_served_in_the_order_in_which_they_came(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> list[int]:
        served: list[int] = []

        async def take(number: int) -> None:
            (await queue.aget()).ack()
            served.append(number)

        tasks = []
        for number in range(50):
            tasks.append(asyncio.create_task(take(number)))
            await asyncio.sleep(0)
        for _ in range(25):
            queue.put(b"x")
        await until(lambda: len(served) == 25)
        queue.put_many([b"x"] * 25)
        await asyncio.gather(*tasks)
        return served

    assert run(work()) == list(range(50))


async def used_within(seconds: float) -> float:
    """The processor time that this process uses meanwhile."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.prove
def test_a_thousand_waiting_tasks_cost_nothing(local: LocalBroker, run: Loop) -> None:
    queues = [local.create_queue(f"q{n}", capacity=20) for n in range(100)]

    async def work() -> None:
        tasks = [asyncio.create_task(queue.aget()) for queue in queues for _ in range(10)]
        await until(lambda: all(waiting(queue) == (1, 0) for queue in queues))
        # A look through each queue's lock in each slice would be several times this, each time.
        deadline = time.monotonic() + PATIENCE
        while await used_within(1.0) >= 0.15:
            assert time.monotonic() < deadline
        for queue in queues:
            queue.put_many([b"x"] * 10)
        for task in tasks:
            (await task).ack()

    run(work())
    assert all(queue.stats().acked == 10 for queue in queues)


def test_loops_in_several_threads_share_a_handle(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q", capacity=50, overflow="block")
    count, seen = 400, list[int]()

    async def consume() -> None:
        async for message in queue.aconsume(prefetch=4, timeout=HOUR):
            message.ack()
            if message.body == b"end":
                return
            seen.append(message.sequence)

    async def produce() -> None:
        for _ in range(count):
            await queue.aput(b"x")

    async def both() -> None:
        await asyncio.gather(consume(), produce())

    threads = [threading.Thread(target=lambda: run(both())) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(seen) < 3 * count:
        time.sleep(0.005)
    queue.put_many([b"end"] * 3, priority=0)
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 3 * count + 1))
    assert wait_threads(local) == []
    assert waiting(queue) == (0, 0)


# ---- the end ----


@pytest.mark.parametrize("waits", ["aget", "aconsume", "aput"])
@pytest.mark.parametrize("end", ["close", "delete"])
def test_the_end_of_a_queue_ends_every_wait_with_its_error(
    local: LocalBroker, run: Loop, waits: str, end: str
) -> None:
    queue = local.create_queue("q", capacity=1, overflow="block")
    if waits == "aput":
        queue.put(b"x")

    async def wait() -> object:
        if waits == "aconsume":
            return [message async for message in queue.aconsume()]
        return await (queue.aput(b"y") if waits == "aput" else queue.aget())

    async def work() -> list[object]:
        tasks = [asyncio.create_task(wait()) for _ in range(5)]
        await until(lambda: sum(waiting(queue)) == 1)
        if end == "close":
            queue.close()
        else:
            local.delete_queue("q")
        return await asyncio.gather(*tasks, return_exceptions=True)

    for error in run(work()):
        if end == "close":
            assert isinstance(error, shmq.ShmqError) and "is closed" in str(error)
        else:
            assert isinstance(error, shmq.QueueDeleted)


def test_a_loop_gives_its_wakeup_back(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q", dead_letter=None)

    async def work() -> None:
        for _ in range(2):
            task = asyncio.create_task(queue.aget())
            await until(lambda: waiting(queue) == (1, 0))
            queue.put(b"x", delay=0.01)
            (await task).ack()

    for _ in range(3):
        run(work())
    assert len(list_wakeups(local)) == 1  # each loop has that of the one before
    local.delete_queue("q")
    assert list_wakeups(local) == []


def test_a_namespace_that_ends_takes_the_wakeups_of_running_loops(
    local: LocalBroker, run: Loop
) -> None:
    async def work() -> None:
        for _ in range(2):
            queue = local.create_queue("q", dead_letter=None)
            with pytest.raises(shmq.Empty):
                await queue.aget(timeout=0.001)
            assert len(list_wakeups(local)) == 1
            local.delete_queue("q")
            assert list_wakeups(local) == []

    run(work())


def test_a_loop_that_was_closed_leaves_no_descriptor(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> None:
        with pytest.raises(shmq.Empty):
            await queue.aget(timeout=0.001)

    run(work())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        run(work())
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_wait_without_a_descriptor_names_the_limit(local: LocalBroker, run: Loop) -> None:
    queue = local.create_queue("q")

    async def work() -> None:
        with no_descriptors_left(), pytest.raises(OSError, match="no file descriptor left"):
            await queue.aget(timeout=PATIENCE)
        task = asyncio.create_task(queue.aget())
        await until(lambda: waiting(queue) == (1, 0))
        queue.put(b"x")
        (await task).ack()

    run(work())
    assert waiting(queue) == (0, 0)
