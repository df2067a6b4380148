"""shmq.wait: one thread for many queues."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.client.local.waiting import guardian
from shmq.client.local.waiting.loop_waits import LoopWaits
from tests.support.processes import HOUR
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def local(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


@pytest.fixture
def queues(local: LocalBroker) -> list[shmq.Queue]:
    return [local.create_queue(name) for name in ("a", "b", "c")]


def armed(queue: shmq.Queue) -> int:
    return queue.stats().waiting_get


def soon(work: object, *arguments: object) -> threading.Timer:
    timer = threading.Timer(0.05, work, arguments)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_those_that_have_a_message_are_returned_in_the_order_given(
    queues: list[shmq.Queue],
) -> None:
    a, b, c = queues
    a.put(b"x")
    c.put(b"x")

    assert shmq.wait(queues) == [a, c]
    assert shmq.wait([c, b, a, c], timeout=0) == [c, a]
    assert (a.qsize(), c.qsize()) == (1, 1)
    assert [armed(queue) for queue in queues] == [0, 0, 0]


def test_a_message_that_comes_ends_the_wait(queues: list[shmq.Queue]) -> None:
    a, b, _ = queues
    for queue in (b, a):
        timer = soon(queue.put, b"x")
        assert shmq.wait(queues) == [queue]
        timer.join()
        queue.get().ack()
    assert [armed(queue) for queue in queues] == [0, 0, 0]


def test_the_wait_ends_with_its_time(queues: list[shmq.Queue]) -> None:
    start = time.monotonic()
    assert shmq.wait(queues, timeout=0) == []
    assert shmq.wait(queues, timeout=0.12) == []
    assert time.monotonic() - start >= 0.12
    assert [armed(queue) for queue in queues] == [0, 0, 0]


def test_what_becomes_due_ends_the_wait(local: LocalBroker) -> None:
    delayed, leased = local.create_queue("d"), local.create_queue("l", visibility_timeout=HOUR)
    leased.put(b"x")
    held = leased.get()
    delayed.put(b"x", delay=0.1)

    assert shmq.wait([leased, delayed]) == [delayed]
    delayed.get().ack()
    held.extend(0.1)
    assert shmq.wait([leased, delayed]) == [leased]
    assert leased.get().sequence == held.sequence


def test_messages_that_others_take_are_waited_past(queues: list[shmq.Queue]) -> None:
    a, b, _ = queues
    stop = threading.Event()

    def tease() -> None:
        for _ in range(50):
            a.put(b"x")
            with a.get() as message:
                assert message.body == b"x"
        stop.wait()
        b.put(b"x")

    thread = threading.Thread(target=tease)
    thread.start()
    while a in shmq.wait(queues, timeout=0.02):
        pass
    stop.set()
    while b not in shmq.wait(queues):
        pass
    thread.join()


def test_the_end_of_a_queue_ends_the_wait(local: LocalBroker, queues: list[shmq.Queue]) -> None:
    timer = soon(local.delete_queue, "b")
    with pytest.raises(shmq.QueueDeleted, match="'b'"):
        shmq.wait(queues)
    timer.join()
    with pytest.raises(shmq.QueueDeleted, match="'b'"):
        shmq.wait(queues)
    timer = soon(queues[0].close)
    with pytest.raises(shmq.ShmqError, match="'a' is closed"):
        shmq.wait([queues[0], queues[2]])
    timer.join()
    assert armed(queues[2]) == 0


def test_what_cannot_be_waited_for_is_refused(queues: list[shmq.Queue]) -> None:
    with pytest.raises(TypeError, match="is one queue, not many: put it in a list"):
        shmq.wait(queues[0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a queue that can be waited for"):
        shmq.wait([queues[0], "b"])  # type: ignore[list-item]
    with pytest.raises(shmq.InvalidOption, match="no queue to wait for"):
        shmq.wait([])
    with pytest.raises(shmq.InvalidOption, match="timeout=-1"):
        shmq.wait(queues, timeout=-1)


def test_an_interrupt_ends_the_wait_and_leaves_nothing(queues: list[shmq.Queue]) -> None:
    def interrupt() -> None:  # not before the wait: who runs the tests would be interrupted
        eventually(lambda: armed(queues[0]) > 0, "it waits")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        shmq.wait(queues)
    thread.join()
    assert [armed(queue) for queue in queues] == [0, 0, 0]


def test_queues_of_another_namespace_are_waited_for_too(
    namespace: str, queues: list[shmq.Queue]
) -> None:
    with LocalBroker(f"{namespace}-other") as other:
        far = other.create_queue("far", dead_letter=None)
        timer = soon(far.put, b"x")
        assert shmq.wait([queues[0], far]) == [far]
        timer.join()
        other.delete_queue("far")


def test_more_threads_than_a_queue_has_entries_all_see_the_message(local: LocalBroker) -> None:
    queue = local.create_queue("q")
    found: list[list[shmq.Queue]] = []
    threads = [threading.Thread(target=lambda: found.append(shmq.wait([queue]))) for _ in range(70)]
    for thread in threads:
        thread.start()
    while armed(queue) < 64:
        time.sleep(0.005)
    queue.put(b"x")
    for thread in threads:
        thread.join()
    assert found == [[queue]] * 70
    assert armed(queue) == 0


def test_wakeups_are_used_again(local: LocalBroker, namespace: str) -> None:
    queue = local.create_queue("q", dead_letter=None)
    for _ in range(5):
        assert shmq.wait([queue], timeout=0.001) == []
    found = [name for name in os.listdir("/dev/shm") if f"bell.shmq@{namespace}@" in name]
    assert len(found) == 1
    assert os.stat(f"/dev/shm/{found[0]}").st_mode & 0o777 == 0o600
    local.delete_queue("q")
    assert not [name for name in os.listdir("/dev/shm") if f"bell.shmq@{namespace}@" in name]


def test_a_fork_beside_a_thread_that_begins_to_wait_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guardians: dict[str, Ending] = {}

    class Ending:
        def end(self) -> bool:
            guardians.setdefault("another", Ending())  # as a thread does meanwhile
            return False

    guardians["one"] = Ending()
    monkeypatch.setattr(guardian, "_guardians", guardians)
    guardian._before_fork()
    assert guardian._ended == []


def test_a_wait_goes_on_after_a_lack_of_descriptors(
    queues: list[shmq.Queue], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    poll, missing = LoopWaits.poll, [OSError(errno.EMFILE, "Too many open files")]

    def fail_once(waits: LoopWaits) -> None:
        if missing:
            raise missing.pop()
        poll(waits)

    monkeypatch.setattr(LoopWaits, "poll", fail_once)

    async def wait() -> bytes:
        taken = asyncio.create_task(queues[0].aget(timeout=PATIENCE))
        await asyncio.to_thread(eventually, lambda: bool(caplog.records), "the error is logged")
        queues[0].put(b"x")
        return bytes((await taken).body)

    assert asyncio.run(wait()) == b"x"
    (record,) = caplog.records
    assert "checked again: [Errno 24] Too many open files" in record.getMessage()
    assert record.exc_info is None
