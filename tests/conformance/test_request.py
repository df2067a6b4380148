"""Requests and their replies.

Other levels: c/test_request.c, system/client/test_reply_queues.py, system/cli/test_request.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq import Broker, Message, Queue
from shmq.api.names import is_reply_name
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import LATER, SOON, drain, in_thread, next_message, outcome


@contextlib.contextmanager
def serving(
    broker: Broker, queue: str, handler: Callable[[Message], Any], **how: Any
) -> Iterator[None]:
    """A thread that serves the queue for the length of the block."""
    stop = threading.Event()
    server = in_thread(broker.serve, queue, handler, stop=stop, **how)
    try:
        yield
    finally:
        stop.set()
        outcome(server)


def twice(message: Message) -> Any:
    return message.body * 2


def reply_queues(broker: Broker) -> list[str]:
    return [each.name for each in broker.list_queues() if is_reply_name(each.name)]


def test_a_request_returns_what_the_handler_returned(connect: Connect, queue: Queue) -> None:
    client = connect()
    with serving(connect(), "q", twice):
        reply = client.request("q", [1, "two"], PATIENCE)

        assert reply.body == [1, "two", 1, "two"]
        assert reply.settled
        assert client.request(client.queue("q"), b"ab", PATIENCE).body == b"abab"
    assert queue.qsize() == 0 and queue.stats().in_flight == 0


def test_the_handler_sees_the_properties_of_the_request(connect: Connect, queue: Queue) -> None:
    with serving(connect(), "q", lambda message: dict(message.headers)):
        assert connect().request("q", b"", PATIENCE, headers={"a": 1}).body == {"a": 1}


def test_none_is_a_reply(connect: Connect, queue: Queue) -> None:
    with serving(connect(), "q", lambda _: None):
        assert connect().request("q", b"", PATIENCE).body is None


def test_a_large_reply_comes_whole(connect: Connect, queue: Queue) -> None:
    with serving(connect(), "q", lambda _: bytes(3 << 20)):
        assert connect().request("q", b"", PATIENCE).body == bytes(3 << 20)


def test_an_error_in_the_handler_reaches_the_requester(connect: Connect, queue: Queue) -> None:
    def fail(_: Message) -> None:
        raise ValueError("no such \udcffthing")

    with serving(connect(), "q", fail), pytest.raises(shmq.RequestFailed) as found:
        connect().request("q", b"", PATIENCE)

    assert found.value.kind == "ValueError"
    assert found.value.text == "no such \\udcffthing"
    assert found.value.trace is None
    assert "'q'" in str(found.value) and "ValueError" in str(found.value)
    again = pickle.loads(pickle.dumps(found.value))
    assert (str(again), again.kind, again.text) == (str(found.value), "ValueError", again.text)
    assert queue.qsize() == 0


class Silent(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def test_an_error_that_cannot_be_told_is_told_by_its_kind(connect: Connect, queue: Queue) -> None:
    def fail(message: Message) -> Any:
        if message.body == b"bad":
            raise Silent
        return b"fine"

    with serving(connect(), "q", fail, tracebacks=True):
        client = connect()
        with pytest.raises(shmq.RequestFailed, match="ZeroDivisionError") as caught:
            client.request("q", b"bad", PATIENCE)
        assert caught.value.kind.endswith("Silent")
        assert client.request("q", b"", PATIENCE).body == b"fine"


def test_a_traceback_comes_where_the_server_gives_it(connect: Connect, queue: Queue) -> None:
    def fail(_: Message) -> None:
        raise LookupError("gone")

    with serving(connect(), "q", fail, tracebacks=True), pytest.raises(shmq.RequestFailed) as found:
        connect().request("q", b"", PATIENCE)

    assert found.value.trace is not None
    assert "in fail" in found.value.trace


def test_a_reply_that_no_message_can_hold_is_an_error(connect: Connect, queue: Queue) -> None:
    with serving(connect(), "q", lambda _: object()), pytest.raises(shmq.RequestFailed) as found:
        connect().request("q", b"", PATIENCE)

    assert found.value.kind == "TypeError"


def test_without_a_server_there_is_no_reply(connect: Connect, queue: Queue) -> None:
    client = connect()

    with pytest.raises(shmq.NoReply, match="'q'") as found:
        client.request("q", b"asked", SOON)

    assert isinstance(found.value, TimeoutError)
    assert drain(queue) == [b"asked"]


def test_a_request_to_no_queue_is_refused(broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue, match="nowhere"):
        broker.request("nowhere", b"", PATIENCE)


def test_a_request_to_a_full_queue_waits_for_room_within_its_time(broker: Broker) -> None:
    broker.create_queue("small", capacity=1).put(b"x")

    with pytest.raises(shmq.Full):
        broker.request("small", b"", SOON)


def test_a_late_reply_is_dropped_and_counted(connect: Connect, queue: Queue) -> None:
    client = connect()
    with pytest.raises(shmq.NoReply):
        client.request("q", b"late", SOON)
    assert client.late_replies == 0

    with serving(connect(), "q", twice):
        assert client.request("q", b"in time", PATIENCE).body == b"in timein time"

    assert client.late_replies == 1


def test_many_threads_ask_at_once_and_each_gets_its_own(connect: Connect, queue: Queue) -> None:
    client = connect()

    def ask(first: int) -> list[int]:
        return [client.request("q", n, PATIENCE).body for n in range(first, first + 20)]

    with serving(connect(), "q", twice, prefetch=16), serving(connect(), "q", twice):
        asked = [in_thread(ask, first) for first in range(0, 120, 20)]

        assert [n for each in asked for n in outcome(each)] == [2 * n for n in range(120)]
    assert len(reply_queues(client)) == 1
    assert client.late_replies == 0


def test_a_thread_whose_time_is_over_leaves_the_others_waiting(
    connect: Connect, queue: Queue
) -> None:
    client = connect()
    patient = [in_thread(client.request, "q", n, PATIENCE) for n in range(3)]
    eventually(lambda: queue.qsize() == 3, "three requests are there")
    with pytest.raises(shmq.NoReply):
        client.request("q", 9, SOON)

    with serving(connect(), "q", twice):
        assert [outcome(each).body for each in patient] == [0, 2, 4]


def test_tasks_ask_at_once_and_each_gets_its_own(connect: Connect, queue: Queue) -> None:
    client = connect()

    async def ask() -> list[Any]:
        asked = [client.arequest("q", n, PATIENCE) for n in range(60)]
        return [reply.body for reply in await asyncio.gather(*asked)]

    with serving(connect(), "q", twice, prefetch=16):
        assert asyncio.run(ask()) == [2 * n for n in range(60)]


def test_a_task_is_told_of_an_error_and_of_the_time(connect: Connect, queue: Queue) -> None:
    client = connect()

    async def ask() -> None:
        with pytest.raises(shmq.NoReply):
            await client.arequest("q", 1, SOON)
        with (
            serving(connect(), "q", lambda _: 1 // 0),
            pytest.raises(shmq.RequestFailed, match="ZeroDivisionError"),
        ):
            await client.arequest("q", 1, PATIENCE)

    asyncio.run(ask())


def test_a_task_that_is_cancelled_while_it_reads_leaves_the_others_waiting(
    connect: Connect, queue: Queue
) -> None:
    client = connect()

    async def ask() -> list[Any]:
        tasks = [asyncio.create_task(client.arequest("q", n, PATIENCE)) for n in range(4)]
        await asyncio.sleep(0)  # each has put its request, and the first one reads
        tasks[0].cancel()
        with serving(connect(), "q", twice):
            replies = await asyncio.gather(*tasks[1:])
        assert tasks[0].cancelled()
        return [reply.body for reply in replies]

    assert asyncio.run(ask()) == [2, 4, 6]


def test_what_the_server_leaves_unanswered_is_handled_by_another(
    connect: Connect, queue: Queue
) -> None:
    client, dies = connect(), connect()
    asked = in_thread(client.request, "q", b"x", PATIENCE)
    next_message(dies.queue("q"))
    dies.close()  # with the request in hand

    with serving(connect(), "q", twice):
        assert outcome(asked).body == b"xx"


def test_a_handler_may_have_a_request_handled_again(connect: Connect, queue: Queue) -> None:
    def second_time(message: Message) -> int:
        if message.delivery_count == 1:
            raise shmq.Retry(0)
        return message.delivery_count

    with serving(connect(), "q", second_time):
        assert connect().request("q", b"", PATIENCE).body == 2


def test_a_rejected_request_is_told_and_a_dead_letter(connect: Connect, queue: Queue) -> None:
    def reject(_: Message) -> None:
        raise shmq.Reject("not like this")

    client = connect()
    with (
        serving(connect(), "q", reject),
        pytest.raises(shmq.RequestFailed, match="not like this") as found,
    ):
        client.request("q", b"bad", PATIENCE)

    assert found.value.kind == "shmq.Reject"
    assert next_message(client.queue("q.dlq")).body == b"bad"


def test_a_message_that_wants_no_reply_is_handled_too(connect: Connect, queue: Queue) -> None:
    seen: list[Any] = []
    with serving(connect(), "q", lambda message: seen.append(message.body)):
        queue.put(b"just so")
        eventually(lambda: bool(seen), "it is handled")
    assert seen == [b"just so"]
    assert queue.stats().in_flight == 0


def test_the_queue_may_be_made_anew_between_requests(connect: Connect, queue: Queue) -> None:
    client = connect()
    for _ in range(2):
        with serving(connect(), "q", twice):
            assert client.request("q", 1, PATIENCE).body == 2
        client.delete_queue("q")
        client.create_queue("q")


def test_serving_ends_with_the_queue_and_with_the_broker(connect: Connect, queue: Queue) -> None:
    first, second = connect(), connect()
    ends = in_thread(first.serve, "q", twice)
    assert second.request("q", 1, PATIENCE).body == 2
    first.close()
    assert outcome(ends) == 1

    ends = in_thread(second.serve, "q", twice)
    assert connect().request("q", 1, PATIENCE).body == 2
    second.delete_queue("q")
    with pytest.raises(shmq.QueueDeleted):
        outcome(ends)


def test_a_broker_is_closed_before_its_queues(
    connect: Connect, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    own = client.queue("q")
    close = type(own).close
    closed = []

    def noting(handle: Queue) -> None:
        close(handle)
        with pytest.raises(shmq.ShmqError, match="closed"):
            client.queue("q")
        closed.append(handle)

    monkeypatch.setattr(type(own), "close", noting)
    client.close()
    monkeypatch.undo()
    assert own in closed


def test_a_waiting_request_is_told_when_the_broker_closes(connect: Connect, queue: Queue) -> None:
    client = connect()
    asked = in_thread(client.request, "q", b"", LATER)
    eventually(lambda: queue.qsize() == 1, "the request is there")
    client.close()

    with pytest.raises(shmq.ShmqError, match="closed"):
        outcome(asked)


def test_a_waiting_request_is_told_when_its_reply_queue_is_deleted(
    connect: Connect, queue: Queue
) -> None:
    client = connect()
    asked = in_thread(client.request, "q", b"", LATER)
    eventually(lambda: queue.qsize() == 1, "the request is there")
    (own,) = reply_queues(client)
    connect().delete_queue(own)

    with pytest.raises(shmq.ConnectionLost, match="unknown"):
        outcome(asked)
    with serving(connect(), "q", twice):
        assert client.request("q", 1, PATIENCE).body == 2  # by another reply queue


def test_a_reply_queue_goes_with_its_broker(connect: Connect, queue: Queue) -> None:
    client, other = connect(), connect()
    with serving(other, "q", twice):
        client.request("q", 1, PATIENCE)
        assert len(reply_queues(other)) == 1
        client.close()
        assert reply_queues(other) == []


def test_a_request_has_no_other_reply_queue(broker: Broker, queue: Queue) -> None:
    with pytest.raises(TypeError, match="reply_to"):
        broker.request("q", b"", PATIENCE, reply_to="elsewhere")
    with pytest.raises(TypeError, match="correlation"):
        broker.request("q", b"", PATIENCE, correlation="1")


def test_a_reply_that_its_queue_does_not_take_is_dropped(
    broker: Broker, connect: Connect, queue: Queue
) -> None:
    broker.create_queue("tiny", max_message_bytes=8)
    with serving(connect(), "q", lambda _: "x" * 100):
        queue.put(b"", reply_to="tiny")

        assert connect().request("q", b"", PATIENCE).body == "x" * 100
    assert queue.stats().acked == 2
    assert broker.queue("tiny").empty()
