"""Puts that return once they are on disk: the same over each transport.

Other levels: c/test_durable_reply.c, unit/persistence/test_unconfirmed.py,
system/wire/test_durable.py, system/persistence/test_writer.py, prove/powerloss.
"""

from __future__ import annotations

import asyncio
import errno
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from shmq.api.options import Confirm, Durability
from tests.support.waiting import eventually
from tests.support.writer_process import WriterProcess, running_writer

#: A time within which a test's disk may be waited for in vain, in seconds.
SHORT = 0.15


@pytest.fixture
def writer_process(namespace: str) -> Iterator[WriterProcess]:
    """A persistence writer of the test's namespace."""
    with running_writer(namespace) as writer_process:
        yield writer_process


@pytest.fixture
def journal(broker: Broker, writer_process: WriterProcess) -> Queue:
    """A queue that keeps a journal, which is written."""
    queue = broker.create_queue("j", durability="journal")
    writer_process.follows(queue)
    return queue


@pytest.fixture
def unwritten(broker: Broker) -> Queue:
    """A queue with a journal, without a writer."""
    return broker.create_queue("u", durability="journal")


def is_on_disk(queue: Queue) -> None:
    stats = queue.stats()
    assert stats.journal_synced == stats.put
    assert stats.journal_lag == 0


def aput(queue: Queue, body: Any, timeout: float | None = None, **properties: Any) -> shmq.Put:
    return asyncio.run(queue.aput(body, timeout, **properties))


def with_loan(queue: Queue, body: bytes, timeout: float | None = None, **properties: Any) -> None:
    with queue.loan(len(body), timeout=timeout, **properties) as view:
        view[:] = body


def put_many(queue: Queue, body: Any, timeout: float | None = None, **properties: Any) -> None:
    assert queue.put_many([body, body], timeout=timeout, **properties) == 2


WAYS: dict[str, Callable[..., Any]] = {
    "put": lambda queue, body, timeout=None, **rest: queue.put(body, None, timeout, **rest),
    "put_nowait": lambda queue, body, timeout=None, **rest: queue.put_nowait(
        body, timeout=timeout, **rest
    ),
    "put_many": put_many,
    "put_packed": lambda queue, body, timeout=None, **rest: queue.put_packed(
        body, len(body), None, timeout, **rest
    ),
    "loan": with_loan,
    "aput": aput,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]


@pytest.mark.parametrize("size", [1, 3_000, 100_000])
def test_a_confirmed_put_is_on_disk_when_it_returns(
    journal: Queue, way: Callable[..., Any], size: int
) -> None:
    for _ in range(3):
        way(journal, b"x" * size, confirm="disk")
        is_on_disk(journal)


def test_a_plain_put_returns_at_once_without_a_writer(
    unwritten: Queue, way: Callable[..., Any]
) -> None:
    way(unwritten, b"x")
    way(unwritten, b"x", confirm="memory")
    assert unwritten.stats().journal_lag == unwritten.qsize() >= 2


def test_without_a_writer_it_is_not_confirmed_within_its_timeout_and_in_the_queue(
    unwritten: Queue, way: Callable[..., Any]
) -> None:
    with pytest.raises(shmq.NotConfirmed, match=r"not known to be on disk.*persist"):
        way(unwritten, b"x", SHORT, confirm="disk")
    eventually(lambda: unwritten.qsize() >= 1, "it is in the queue")


def test_the_option_of_the_queue_is_for_every_put_that_does_not_say_otherwise(
    broker: Broker, way: Callable[..., Any], writer_process: WriterProcess
) -> None:
    queue = broker.create_queue("c", durability="journal", confirm="disk")
    assert queue.options.confirm == "disk"
    way(queue, b"x")
    is_on_disk(queue)
    writer_process.stop()
    with pytest.raises(shmq.NotConfirmed):
        way(queue, b"x", SHORT)


def test_a_writer_that_comes_later_confirms(unwritten: Queue, namespace: str) -> None:
    puts: list[shmq.Put] = []
    thread = threading.Thread(target=lambda: puts.append(unwritten.put(b"x", confirm="disk")))
    thread.start()
    eventually(lambda: unwritten.qsize() == 1, "it is in the queue")
    with running_writer(namespace):
        thread.join()
    assert [put.sequence for put in puts] == [1]


def test_a_pipeline_of_confirmed_puts_is_on_disk_at_its_end(journal: Queue) -> None:
    with journal.pipeline(16, confirm="disk") as pipe:
        for number in range(100):
            assert pipe.put(b"x" * number) == number
    assert pipe.taken == 100
    is_on_disk(journal)


def test_each_put_of_a_pipeline_may_have_its_own(journal: Queue) -> None:
    with journal.pipeline() as pipe:
        pipe.put(b"x")
        pipe.put(b"y", confirm="disk")
    assert journal.stats().journal_synced >= 2


def test_a_disk_that_fails_is_an_error_and_is_made_up_for(
    journal: Queue, writer_process: WriterProcess
) -> None:
    journal.put(b"one", confirm="disk")
    writer_process.fail(errno.ENOSPC)
    with pytest.raises(shmq.NotConfirmed, match=r"No space left on device") as error:
        journal.put(b"two", confirm="disk")
    assert pickle.loads(pickle.dumps(error.value)).sequence == error.value.sequence
    assert journal.stats().journal_error == "No space left on device"
    assert journal.qsize() == 2
    writer_process.mend()
    eventually(lambda: journal.stats().journal_error is None, "it has been made up for")
    journal.put(b"three", confirm="disk")
    is_on_disk(journal)
    assert journal.qsize() == 3


def test_what_a_pipeline_has_not_on_disk_is_told(
    journal: Queue, writer_process: WriterProcess
) -> None:
    journal.put(b"before", confirm="disk")  # so the disk is found to fail by what comes next
    writer_process.fail(errno.EIO)
    with pytest.raises(shmq.PutsRefused) as error, journal.pipeline(confirm="disk") as pipe:
        pipe.put(b"x")
        pipe.put(b"y")
    assert error.value.unconfirmed == [0, 1]
    assert error.value.refused == {}
    assert isinstance(error.value.__cause__, shmq.NotConfirmed)
    assert journal.qsize() == 3


def test_a_queue_that_is_deleted_is_waited_for_no_longer(broker: Broker, unwritten: Queue) -> None:
    raised: list[BaseException] = []

    def put() -> None:
        try:
            unwritten.put(b"x", confirm="disk")
        except shmq.ShmqError as error:
            raised.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    eventually(lambda: broker.queue("u").qsize() == 1, "it is in the queue")
    broker.delete_queue("u")
    thread.join()
    assert [type(error) for error in raised] == [shmq.QueueDeleted]


@pytest.mark.parametrize("durability", ["memory", "snapshot"])
def test_without_a_journal_nothing_is_confirmed_and_nothing_put(
    broker: Broker, way: Callable[..., Any], durability: Durability
) -> None:
    queue = broker.create_queue("m", durability=durability)
    with pytest.raises(shmq.InvalidOption, match=f"keeps no journal .durability='{durability}'"):
        way(queue, b"x", confirm="disk")
    with pytest.raises(shmq.InvalidOption, match="keeps no journal"):
        queue.pipeline(confirm="disk")
    assert queue.qsize() == 0
    way(queue, b"x", confirm="memory")


def test_a_confirm_that_there_is_not_is_refused(queue: Queue, way: Callable[..., Any]) -> None:
    with pytest.raises(shmq.InvalidOption, match="confirm='paper' must be one of"):
        way(queue, b"x", confirm="paper")
    with pytest.raises(TypeError, match="confirm=True must be one of"):
        way(queue, b"x", confirm=True)
    assert queue.qsize() == 0


def test_a_duplicate_is_confirmed_with_the_first_one(
    broker: Broker, writer_process: WriterProcess
) -> None:
    queue = broker.create_queue("d", durability="journal", dedupe_window=60.0)
    first = queue.put(b"x", dedupe_id="a")
    again = queue.put(b"x", dedupe_id="a", confirm="disk")
    assert again.duplicate
    assert again.sequence == first.sequence
    is_on_disk(queue)


def test_what_was_settled_before_it_was_written_is_confirmed(
    unwritten: Queue, namespace: str
) -> None:
    unwritten.put(b"x")
    unwritten.get().ack()
    with running_writer(namespace):
        unwritten.put(b"y", confirm="disk")
    assert unwritten.stats().journal_synced == 2


def test_tasks_wait_side_by_side_for_one_journal(journal: Queue) -> None:
    async def go() -> list[shmq.Put]:
        return await asyncio.gather(*(journal.aput(n, confirm="disk") for n in range(50)))

    puts = asyncio.run(go())
    assert sorted(put.sequence for put in puts) == list(range(1, 51))
    is_on_disk(journal)


def test_the_loop_goes_on_while_a_task_waits_for_the_disk(unwritten: Queue, namespace: str) -> None:
    async def go() -> None:
        task = asyncio.create_task(unwritten.aput(b"x", confirm="disk"))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not task.done()
        with running_writer(namespace):
            await task

    asyncio.run(go())
    assert unwritten.qsize() == 1


def test_a_task_that_is_cancelled_has_put_its_message(unwritten: Queue) -> None:
    async def go() -> None:
        task = asyncio.create_task(unwritten.aput(b"x", confirm="disk"))
        await asyncio.to_thread(
            eventually, lambda: unwritten.qsize() == 1, "the message is in the queue"
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert unwritten.qsize() == 1


def test_threads_wait_side_by_side(journal: Queue) -> None:
    def put() -> None:
        for _ in range(20):
            journal.put(b"x", confirm="disk")

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert journal.qsize() == 80
    is_on_disk(journal)


def test_a_queue_that_is_full_of_unwritten_messages_names_the_missing_writer(
    broker: Broker, writer_process: WriterProcess
) -> None:
    queue = broker.create_queue("j", durability="journal", capacity=4)
    writer_process.follows(queue)
    queue.put_many([b"x"] * 4, confirm="disk")
    with pytest.raises(shmq.Full, match=r"consume, wait \(block=True\), or make it larger"):
        queue.put_nowait(b"x")
    writer_process.kill()
    for message in queue.get_many(4):
        message.ack()

    told = r"full: .*; 4 of them are settled.* no persistence writer runs.*start `.*shmq persist`"
    for timeout in (0, SHORT):
        with pytest.raises(shmq.Full, match=told):
            queue.put(b"x", timeout=timeout)
        with pytest.raises(shmq.Full, match=told):
            asyncio.run(queue.aput(b"x", timeout))


def test_the_figures_say_how_far_the_journal_is(
    journal: Queue, writer_process: WriterProcess
) -> None:
    for _ in range(4):
        journal.put(b"x", confirm="disk")
    writer_process.stop()
    journal.put(b"y")
    for message in journal.get_many(2):
        message.ack()
    stats = journal.stats()
    assert (stats.durability, stats.journal_writer) == ("journal", False)
    assert (stats.journal_lag, stats.journal_waiting, stats.journal_synced) == (1, 2, 4)
    assert stats.journal_bytes > 0
    assert stats.journal_error is None


@pytest.mark.parametrize("by", ["the option", "the publish"])
def test_what_is_published_is_on_disk_when_it_returns(
    broker: Broker, writer_process: WriterProcess, by: str
) -> None:
    queue = broker.create_queue(
        "c", durability="journal", confirm="disk" if by == "the option" else "memory"
    )
    writer_process.follows(queue)
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind("c")
    confirm: Confirm | None = None if by == "the option" else "disk"

    for _ in range(3):
        assert exchange.publish_many([b"x", b"y"], confirm=confirm) == shmq.Published(2)
        is_on_disk(queue)


def test_what_is_published_and_not_on_disk_in_time_is_told(
    broker: Broker, unwritten: Queue
) -> None:
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind(unwritten.name)

    with pytest.raises(shmq.PublishRefused) as error:
        exchange.publish(b"x", timeout=SHORT, confirm="disk")

    assert error.value.delivered == 1
    assert isinstance(error.value.refused[unwritten.name], shmq.NotConfirmed)
    assert exchange.publish(b"x").delivered == 1
    assert exchange.publish(b"x", confirm="memory").delivered == 1
    assert unwritten.qsize() == 3
