"""A stream in an event loop: its waits take no thread, and what ends them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.client.local.stream import LocalStream
from shmq.client.local.waiting.loop_waits import LoopWaits
from shmq.client.local.waiting.wait_set import sets
from shmq.native import _stream
from tests.support.loops import Loop, until
from tests.support.processes import Child, Start, files_of
from tests.support.stopped import lock_of_partition
from tests.support.waiting import PATIENCE, eventually

#: The event loops that a stream wakes at once.
PARTIES = 64


@pytest.fixture
def local(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


@pytest.fixture
def stream(local: LocalBroker) -> LocalStream:
    return local.create_stream("s", 2)


@pytest.fixture
def start() -> Iterator[Start]:
    with contextlib.closing(Start()) as started:
        yield started


def count_waiters() -> int:
    """How many tasks of this process wait for records, in all loops."""
    sources: list[Any] = [
        source
        for waits in list(sets.values())
        if isinstance(waits, LoopWaits)
        for source in list(waits._sources.values())
    ]
    return sum(len(source._waiters) for source in sources)


def threads() -> list[str]:
    """The names of this process's threads but that of the guardian."""
    return [one.name for one in threading.enumerate() if not one.name.startswith("shmq guardian")]


def wakeups(broker: LocalBroker) -> list[str]:
    return [name for name in files_of(broker.namespace) if name.startswith("bell.")]


async def first(stream: shmq.Stream) -> bytes:
    """The value of the first record of partition 0 to come."""
    records = await stream.aread(0, stream.latest(0))
    return bytes(records[0].value)


def test_waits_for_queues_and_streams_share_a_descriptor_and_need_no_thread(
    local: LocalBroker, stream: LocalStream, run: Loop
) -> None:
    queue = local.create_queue("q")
    other = local.create_stream("t", 1)
    before = threads()

    async def work() -> None:
        async def subscribed() -> bytes:
            async for record in stream.asubscribe("#"):
                return bytes(record.value)
            raise AssertionError

        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(queue.aget())]
        tasks += [asyncio.create_task(first(one)) for one in (stream, stream, other)]
        await until(lambda: count_waiters() == 3)
        assert threads() == before
        assert len(wakeups(local)) == 1
        queue.put(b"m")
        stream.append(b"1", partition=0)
        other.append(b"2", partition=0)
        message, *values = await asyncio.gather(*tasks)
        assert (message.body, values) == (b"m", [b"1", b"1", b"2"])

        subscription = asyncio.create_task(subscribed())
        await until(lambda: count_waiters() == 1)
        assert threads() == before
        stream.append(b"3")
        assert await subscription == b"3"

    run(work())


def test_only_tasks_whose_partition_has_a_record_are_woken(stream: LocalStream, run: Loop) -> None:
    async def work() -> None:
        zero = asyncio.create_task(stream.aread(0, 0))
        one = asyncio.create_task(stream.aread(1, 0))
        await until(lambda: count_waiters() == 2)
        for number in range(3):
            stream.append(b"%d" % number, partition=1)
            assert (await stream.aread(1, number))[0].value == b"%d" % number
        assert len(await one) >= 1
        assert count_waiters() == 1
        stream.append(b"x", partition=0)
        assert (await zero)[0].value == b"x"

    run(work())
    assert count_waiters() == 0


def test_two_handles_in_a_loop_are_woken_by_themselves(
    local: LocalBroker, stream: LocalStream, run: Loop
) -> None:
    handles = stream, local.stream("s")

    async def work() -> None:
        for number in range(4):
            tasks = [asyncio.create_task(one.aread(number % 2, number // 2)) for one in handles]
            await until(lambda: count_waiters() == 2)
            for waits in list(sets.values()):  # nothing but a wakeup makes the loop check
                for source in waits._sources.values() if isinstance(waits, LoopWaits) else ():
                    source._check_at = time.monotonic() + PATIENCE  # type: ignore[attr-defined]
            stream.append(b"%d" % number, partition=number % 2)
            done = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE / 2)
            assert [bytes(records[0].value) for records in done] == [b"%d" % number] * 2

    run(work())
    assert count_waiters() == 0


def test_two_loops_of_a_process_wait_at_once(stream: LocalStream, run: Loop) -> None:
    found: list[bytes] = []
    loops = [threading.Thread(target=lambda: found.append(run(first(stream)))) for _ in range(2)]
    for loop in loops:
        loop.start()
    eventually(lambda: count_waiters() == 2, "both wait")
    stream.append(b"x", partition=0)
    for loop in loops:
        loop.join(PATIENCE)
    assert found == [b"x", b"x"]


# ---- the end of a wait ----


def test_a_deleted_stream_ends_its_waits(
    local: LocalBroker, stream: LocalStream, run: Loop
) -> None:
    async def work() -> None:
        tasks = [asyncio.create_task(stream.aread(0, 0)) for _ in range(2)]
        await until(lambda: count_waiters() == 2)
        local.delete_stream("s")
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(found, shmq.StreamDeleted)

    run(work())


def test_a_closed_handle_ends_its_waits(stream: LocalStream, run: Loop) -> None:
    async def work() -> None:
        task = asyncio.create_task(stream.aread(0, 0))
        await until(lambda: count_waiters() == 1)
        stream.close()
        with pytest.raises(shmq.ShmqError, match="handle of stream 's' is closed"):
            await task

    run(work())


def test_a_reader_gets_the_records_of_new_partitions(stream: LocalStream, run: Loop) -> None:
    async def work() -> None:
        reader = stream.areader()
        reading = asyncio.create_task(anext(reader))
        await until(lambda: count_waiters() == 1)
        stream.repartition(3)
        stream.append(b"x")
        record = await reading
        assert (record.partition >= 2, record.value) == (True, b"x")

    run(work())


def test_a_wait_ends_with_its_time_and_leaves_no_party(stream: LocalStream, run: Loop) -> None:
    async def work() -> None:
        for _ in range(3):
            assert len(await stream.aread(0, 0, timeout=0.01)) == 0
        assert count_waiters() == 0

    run(work())


def test_a_cancelled_wait_consumes_no_record(stream: LocalStream, run: Loop) -> None:
    count, cancelled = 2000, 0

    async def append() -> None:
        for number in range(count):
            stream.append(b"%d" % number, partition=0)
            await asyncio.sleep(0 if number % 3 else 0.0005)

    async def work() -> list[int]:
        nonlocal cancelled
        chance = random.Random(3)
        subscription = stream.asubscribe("#", history=None)
        appending = asyncio.create_task(append())
        found: list[int] = []
        while len(found) < count:
            reading = asyncio.create_task(anext(subscription))
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            reading.cancel()
            try:
                found.append(int((await reading).value))
            except asyncio.CancelledError:
                cancelled += 1
                # Now and then a whole turn, in which the record comes.
                if cancelled % 3 == 0:
                    found.append(int((await anext(subscription)).value))
        await appending
        return found

    assert run(work()) == list(range(count))
    assert cancelled > count / 10
    assert count_waiters() == 0


def test_loops_that_are_closed_while_they_wait_leave_room_for_others(
    stream: LocalStream, run: Loop
) -> None:
    for _ in range(PARTIES + 6):
        loop = run.new()
        task = loop.create_task(stream.aread(0, 0))
        loop.run_until_complete(asyncio.sleep(0))
        assert not task.done()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        del task, loop
    gc.collect()

    assert run(read_by_wakeup(stream)) == b"x"


async def read_by_wakeup(stream: LocalStream) -> bytes:
    """Read a record that is appended while the loop has a party in the stream."""
    reading = asyncio.create_task(first(stream))
    await until(lambda: count_waiters() == 1)
    assert watch_of(stream).is_armed
    stream.append(b"x", partition=0)
    return await reading


def watch_of(stream: LocalStream) -> _stream.LoopWatch:
    """The watch of the running loop."""
    waits = LoopWaits.of(stream.namespace, asyncio.get_running_loop())
    (source,) = waits._sources.values()
    watch: _stream.LoopWatch = source._watch  # type: ignore[attr-defined]
    return watch


def test_a_loop_without_a_party_gets_its_records(stream: LocalStream, run: Loop) -> None:
    process = stream.namespace.processes.own_number()
    others = [_stream.LoopWatch(stream.control, process, 1000 + n) for n in range(PARTIES)]
    for other in others:
        other.arm()
        assert other.is_armed

    async def work() -> bytes:
        reading = asyncio.create_task(first(stream))
        await until(lambda: count_waiters() == 1)
        assert not watch_of(stream).is_armed
        stream.append(b"x", partition=0)
        return await reading

    assert run(work()) == b"x"
    assert not any(other.is_armed for other in others)
    others[0].leave()
    others[1].arm()
    assert others[1].is_armed
    others[0].arm()
    assert others[0].is_armed


# ---- forks and deaths ----


def test_a_fork_beneath_a_wait_concerns_neither_process(
    namespace: str, stream: LocalStream, run: Loop
) -> None:
    async def in_child() -> bytes:
        reading = asyncio.create_task(stream.aread(1, 0))
        await until(lambda: count_waiters() == 1)
        stream.append(b"of the child", partition=1)
        return bytes((await reading)[0].value)

    def child() -> int:
        gc.collect()
        return 0 if Loop(run.new)(in_child()) == b"of the child" else 1

    async def work() -> None:
        reading = asyncio.create_task(first(stream))
        await until(lambda: count_waiters() == 1)
        armed = watch_of(stream)
        pid = os.fork()
        if pid == 0:
            status = 2
            try:
                asyncio.events._set_running_loop(None)
                status = child()
            finally:
                os._exit(status)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await until(lambda: armed.is_armed)
        assert not reading.done()
        stream.append(b"y", partition=0)
        assert await reading == b"y"

    run(work())


def wait_for_ever(pipe: Connection, namespace: str) -> None:
    stream = shmq.connect(namespace).stream("s")

    async def work() -> None:
        reading = asyncio.create_task(stream.aread(0, 0))
        await until(lambda: count_waiters() == 1)
        pipe.send("waits")
        await reading

    asyncio.run(work())


@pytest.mark.prove
def test_the_parties_of_killed_processes_are_used_again(
    namespace: str, stream: LocalStream, start: Start, run: Loop
) -> None:
    for _ in range(5):
        children: list[Child] = [start(wait_for_ever, namespace) for _ in range(16)]
        for child in children:
            assert child.hear() == "waits"
        for child in children:
            child.kill()

    assert run(read_by_wakeup(stream)) == b"x"


def test_a_stopped_appender_blocks_no_reader(
    namespace: str, stream: LocalStream, run: Loop
) -> None:
    stream.append(b"x", partition=0)

    async def work() -> None:
        assert (await stream.aread(0, 0))[0].value == b"x"
        reading = asyncio.create_task(stream.aread(0, 1))
        await until(lambda: count_waiters() == 1)
        with lock_of_partition(namespace, "s").held_by_stopped() as stopped:
            assert len(await stream.aread(0, 1, timeout=0.01)) == 0
            assert not reading.done()
            stopped.send_signal(signal.SIGCONT)
            assert stopped.wait(PATIENCE) == 0
        stream.append(b"y", partition=0)
        assert (await reading)[0].value == b"y"

    run(work())
