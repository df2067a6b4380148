"""Connections that are cut: what is repeated, what is not, and what is said of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from shmq.client.handles import lock as lock_module
from shmq.client.remote import connection
from shmq.client.remote.connection import LoopDriver
from shmq.client.remote.group import RemoteMemberState
from shmq.protocol.opcodes import Type
from tests.conformance.tools import LATER, drain, in_thread, outcome
from tests.support.proxy import Proxy, Which, of_type
from tests.support.server import fixed_port, serve
from tests.support.waiting import PATIENCE, eventually


def test_a_connection_that_was_cut_is_made_anew(proxy: Proxy, afar: Broker, queue: Queue) -> None:
    remote = afar.queue("q")
    remote.put(b"1")
    proxy.cut()
    eventually(lambda: not remote.connection.wire.is_usable, "the end is seen")  # type: ignore[attr-defined]

    remote.put(b"2")
    assert remote.qsize() == 2
    assert afar.list_queues()[0].depth == 2


def test_a_put_that_the_server_cannot_have_seen_is_sent_again(
    proxy: Proxy, afar: Broker, queue: Queue
) -> None:
    remote = afar.queue("q")
    connections = proxy.connections
    proxy.cut()
    eventually(lambda: not remote.connection.wire.is_usable, "the end is seen")  # type: ignore[attr-defined]

    remote.put(b"once")

    assert proxy.connections == connections + 1
    assert drain(queue) == [b"once"]


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_whether_a_put_without_a_window_was_taken_is_said_to_be_unknown(
    proxy: Proxy, afar: Broker, queue: Queue, where: str
) -> None:
    remote = afar.queue("q")
    getattr(proxy, where)(of_type(Type.PRODUCE))

    with pytest.raises(shmq.ConnectionLost, match=r"unknown.*dedupe_window"):
        remote.put(b"perhaps")

    assert drain(queue) == ([b"perhaps"] if where == "cut_after" else [])
    remote.put(b"afterwards")
    assert drain(queue) == [b"afterwards"]


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_a_put_with_a_window_is_sent_again_and_not_doubled(
    proxy: Proxy, afar: Broker, broker: Broker, where: str
) -> None:
    near = broker.create_queue("jobs", dedupe_window=LATER)
    remote = afar.queue("jobs")
    getattr(proxy, where)(of_type(Type.PRODUCE))

    put = remote.put(b"once", headers={"k": 1})

    assert not put.duplicate
    message = near.get(block=False)
    assert (message.body, message.sequence, message.headers) == (b"once", put.sequence, {"k": 1})
    assert near.qsize() == 0


@pytest.mark.parametrize("count", [1, 16, 17, 30])
def test_a_put_that_was_cut_in_the_middle_leaves_nothing_and_is_repeated(
    proxy: Proxy, afar: Broker, broker: Broker, count: int
) -> None:
    near = broker.create_queue("jobs", dedupe_window=LATER)
    remote = afar.queue("jobs")
    proxy.cut_within(of_type(Type.PRODUCE), count)

    remote.put(b"once")

    assert drain(near) == [b"once"]


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_a_batch_with_a_window_is_sent_again_and_not_doubled(
    proxy: Proxy, afar: Broker, broker: Broker, where: str
) -> None:
    near = broker.create_queue("jobs", dedupe_window=LATER)
    remote = afar.queue("jobs")
    getattr(proxy, where)(of_type(Type.PRODUCE_BATCH))

    assert remote.put_many(range(100)) == 100

    assert drain(near) == list(range(100))


def test_a_batch_without_a_window_says_what_is_known(
    proxy: Proxy, afar: Broker, queue: Queue
) -> None:
    proxy.cut_after(of_type(Type.PRODUCE_BATCH))

    with pytest.raises(shmq.ConnectionLost, match="unknown; 0 of 3 were put"):
        afar.queue("q").put_many([1, 2, 3])


def test_the_id_of_the_application_is_kept_when_a_put_is_repeated(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    near = broker.create_queue("jobs", dedupe_window=LATER)
    remote = afar.queue("jobs")
    proxy.cut_after(of_type(Type.PRODUCE))

    put = remote.put(b"once", dedupe_id="mine")

    assert put.duplicate
    assert near.put(b"again", dedupe_id="mine").sequence == put.sequence
    assert drain(near) == [b"once"]


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_a_get_is_repeated_and_what_was_lost_on_the_way_comes_back(
    proxy: Proxy, afar: Broker, queue: Queue, where: str
) -> None:
    queue.put(b"x")
    remote = afar.queue("q")
    getattr(proxy, where)(of_type(Type.CONSUME))

    assert remote.get(timeout=PATIENCE).body == b"x"


def test_a_lease_ends_with_its_connection(proxy: Proxy, afar: Broker, queue: Queue) -> None:
    queue.put(b"x")
    remote = afar.queue("q")
    message = remote.get()

    proxy.cut()

    eventually(lambda: queue.qsize() == 1, "it is back in the queue")
    eventually(lambda: not remote.connection.wire.is_usable, "the end is seen")  # type: ignore[attr-defined]
    with pytest.raises(shmq.LeaseExpired):
        message.ack()
    assert remote.get().delivery_count == 2


def test_a_settlement_whose_answer_was_lost_is_said_to_be_unknown(
    proxy: Proxy, afar: Broker, queue: Queue
) -> None:
    queue.put(b"x")
    message = afar.queue("q").get()
    proxy.cut_after(of_type(Type.ACK))

    with pytest.raises(shmq.ConnectionLost, match="unknown"):
        message.ack()

    assert queue.stats().acked == 1


def test_a_wait_for_a_message_outlives_its_connection(
    proxy: Proxy, afar: Broker, queue: Queue
) -> None:
    waiter = in_thread(afar.queue("q").get)
    eventually(lambda: Type.SUBSCRIBE in proxy.requests, "it waits")

    proxy.cut()
    queue.put(b"x")

    assert outcome(waiter).body == b"x"


def test_a_consumer_outlives_its_connection(proxy: Proxy, afar: Broker, queue: Queue) -> None:
    queue.put_many(range(100))
    got: list[object] = []
    with afar.queue("q").consume(prefetch=10) as messages:
        while set(got) != set(range(100)):
            message = next(messages)
            got.append(message.body)
            message.ack()
            if len(got) == 35:
                proxy.cut()

    eventually(lambda: queue.qsize() == 0, "nothing is left")


def test_a_server_that_does_not_answer_is_given_up(proxy: Proxy, queue: Queue) -> None:
    with shmq.connect(proxy.url, request_timeout=1.0) as broker:
        remote = broker.queue("q")
        proxy.swallow(of_type(Type.PRODUCE))

        with pytest.raises(shmq.ConnectionLost, match=r"no answer within 1.0 s.*unknown"):
            remote.put(b"x")

        assert remote.qsize() == 0


def test_a_server_that_stays_away_is_given_up(proxy: Proxy, queue: Queue) -> None:
    with shmq.connect(proxy.url, request_timeout=1.0) as broker:
        remote = broker.queue("q")
        proxy.close()

        with pytest.raises(shmq.ConnectionLost, match=proxy.url.removeprefix("shmq://")):
            remote.put(b"x")
        with pytest.raises(shmq.ConnectionLost):
            remote.get()


_TIMED: dict[str, Callable[[Queue], object]] = {
    "get, at once": lambda queue: queue.get(block=False),
    "get": lambda queue: queue.get(timeout=0.2),
    "get where": lambda queue: queue.get(timeout=0.2, where="sequence > 1"),
    "get_many": lambda queue: queue.get_many(2, timeout=0.2),
    "aget": lambda queue: asyncio.run(queue.aget(0.2)),
    "consume, at once": lambda queue: list(queue.consume(block=False)),
    "consume": lambda queue: list(queue.consume(timeout=0.2)),
    "bodies": lambda queue: list(queue.bodies(timeout=0.2)),
    "put": lambda queue: queue.put(b"x", timeout=0.2),
    "aput": lambda queue: asyncio.run(queue.aput(b"x", timeout=0.2)),
    "put_many": lambda queue: queue.put_many([b"x"], timeout=0.2),
}


@pytest.mark.parametrize("operation", _TIMED.values(), ids=_TIMED)
def test_an_operation_with_a_timeout_reconnects_no_longer_than_that(
    proxy: Proxy, queue: Queue, operation: Callable[[Queue], object]
) -> None:
    with shmq.connect(proxy.url, request_timeout=LATER) as broker:
        remote = broker.queue("q")
        proxy.close()
        eventually(lambda: not remote.connection.wire.is_usable, "the end is seen")  # type: ignore[attr-defined]

        with pytest.raises(shmq.ConnectionLost):
            outcome(in_thread(operation, remote))


_TIMED_BY_BROKER: dict[str, Callable[[Broker, shmq.Lock], object]] = {
    "request": lambda broker, _: broker.request("q", b"x", timeout=0.2),
    "arequest": lambda broker, _: asyncio.run(broker.arequest("q", b"x", timeout=0.2)),
    "acquire": lambda _, lock: lock.acquire(timeout=0.2),
    "aacquire": lambda _, lock: asyncio.run(lock.aacquire(timeout=0.2)),
    "acquire at once": lambda _, lock: lock.acquire(block=False),
}


@pytest.mark.parametrize("first", [False, True], ids=["known", "new"])
@pytest.mark.parametrize("operation", _TIMED_BY_BROKER.values(), ids=_TIMED_BY_BROKER)
def test_an_operation_of_several_requests_reconnects_no_longer_than_its_timeout(
    proxy: Proxy, queue: Queue, operation: Callable[[Broker, shmq.Lock], object], first: bool
) -> None:
    with shmq.connect(proxy.url, request_timeout=LATER) as broker:
        lock = broker.lock("l")
        if not first:
            with pytest.raises(shmq.NoReply):
                broker.request("q", b"x", timeout=0)
            assert lock.acquire()
        proxy.close()

        with pytest.raises(shmq.ConnectionLost):
            outcome(in_thread(operation, broker, lock))


async def _take(queue: Any, how: str) -> object:
    if how == "aget":
        return (await queue.aget()).body
    async with queue.aconsume() as messages:
        return (await anext(messages)).body


@pytest.mark.parametrize("how", ["aget", "aconsume"])
def test_a_task_goes_on_when_a_send_is_the_first_to_meet_the_end_of_the_connection(
    proxy: Proxy, afar: Broker, queue: Queue, how: str
) -> None:
    remote: Any = afar.queue("q")

    async def run() -> object:
        waiting = asyncio.create_task(_take(remote, how))
        await asyncio.to_thread(eventually, lambda: queue.stats().waiting_get > 0, "it waits")
        wire = remote.connection.wire
        proxy.cut()

        def is_met() -> bool:  # while the loop reads nothing
            wire.forget(wire.request(Type.STATS, True, b""))
            wire.send()
            return bool(wire.is_broken)

        eventually(is_met, "a send meets the end")
        queue.put(b"x")
        return await asyncio.wait_for(waiting, PATIENCE)

    assert asyncio.run(run()) == b"x"


@pytest.mark.parametrize("cuts", [1, 5])
def test_an_acquire_goes_on_over_another_connection(
    proxy: Proxy, afar: Broker, broker: Broker, cuts: int
) -> None:
    held, lock = broker.lock("l"), afar.lock("l")
    held.acquire()
    waiting = in_thread(lock.acquire)
    for _ in range(cuts):
        eventually(lambda: len(held.waiters()) == 1, "it waits")
        connections = proxy.connections
        proxy.cut()
        eventually(lambda: proxy.connections > connections, "it connects again")  # noqa: B023
    eventually(lambda: len(held.waiters()) == 1, "it waits again")
    held.release()

    assert outcome(waiting)
    assert not held.acquire(block=False)
    lock.release()
    assert held.acquire(timeout=LATER)


@pytest.mark.parametrize("cut", ["cut_before", "cut_after", "cut_within"])
@pytest.mark.parametrize("request_type", [Type.PRODUCE, Type.CONSUME, Type.LEASES])
@pytest.mark.parametrize("others", [0, 1])  # the first one waits for the permit, others in an inbox
def test_an_acquire_repeats_each_of_its_requests(
    proxy: Proxy, afar: Broker, broker: Broker, cut: str, request_type: Type, others: int
) -> None:
    held, lock = broker.lock("l"), afar.lock("l")
    held.acquire()
    other = broker.lock("l")
    first = in_thread(lambda: others and other.acquire() and other.release())
    eventually(lambda: len(held.waiters()) == others, "others wait")
    given = (of_type(request_type), *([7] if cut == "cut_within" else []))
    getattr(proxy, cut)(*given)
    waiting = in_thread(lock.acquire)
    eventually(lambda: not proxy.is_armed, "the connection is cut")
    eventually(lambda: len(held.waiters()) == others + 1, "it waits")
    held.release()

    assert outcome(waiting)
    outcome(first)
    lock.release()


def test_an_acquire_that_loses_its_permit_goes_on(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    held, lock = broker.lock("l"), afar.lock("l")
    held.acquire()
    waiting = in_thread(lock.acquire)
    eventually(lambda: len(held.waiters()) == 1, "it waits")

    def cut_all(kind: int, _: bytes) -> bool:
        if kind == Type.ACK:  # of its ticket: it has the permit
            proxy.cut()
        return kind == Type.ACK

    proxy.cut_before(cut_all)
    held.release()

    assert outcome(waiting)
    assert not held.acquire(block=False)
    lock.release()


def test_an_acquire_raises_when_the_server_is_gone(
    proxy: Proxy, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "LONGEST", 0.1)
    with shmq.connect(proxy.url, request_timeout=5) as broker:
        locks = [broker.lock("l") for _ in range(5)]
        locks[0].acquire()
        acquires = [in_thread(locks[1].acquire)]
        eventually(lambda: len(locks[0].waiters()) == 1, "it waits")
        proxy.close()
        acquires += [
            in_thread(locks[2].acquire),
            in_thread(locks[3].acquire, timeout=0.2),
            in_thread(locks[4].acquire, block=False),
        ]
        for acquire in acquires:
            with pytest.raises(shmq.ConnectionLost):
                outcome(acquire)


def test_an_operation_without_time_is_not_delayed_by_one_that_reconnects(
    proxy: Proxy, queue: Queue
) -> None:
    with shmq.connect(proxy.url, request_timeout=LATER) as broker:
        remote = broker.queue("q")
        waiter = in_thread(remote.get)
        eventually(lambda: Type.SUBSCRIBE in proxy.requests, "it waits")
        proxy.close()
        eventually(lambda: not remote.connection.wire.is_usable, "the end is seen")  # type: ignore[attr-defined]

        for _ in range(3):
            with pytest.raises(shmq.ConnectionLost):
                outcome(in_thread(remote.get, False))

        assert not waiter.done()
        remote.close()
        with pytest.raises(shmq.ShmqError, match="closed"):
            outcome(waiter)


def test_a_get_that_does_not_wait_reconnects_once(proxy: Proxy, afar: Broker, queue: Queue) -> None:
    queue.put(b"x")
    remote = afar.queue("q")
    proxy.cut()

    assert remote.get(block=False).body == b"x"


def test_serving_until_a_stop_outlives_an_outage(
    url: str, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    port, stop = fixed_port(), threading.Event()
    with contextlib.closing(Proxy(url, port)) as proxy, shmq.connect(proxy.url) as broker:
        serving = in_thread(broker.serve, "q", lambda _: None, stop=stop)
        eventually(lambda: Type.SUBSCRIBE in proxy.requests, "it serves")
        proxy.close()
        eventually(
            lambda: "waiting for the server" in caplog.text or serving.done(), "it has noticed"
        )
        queue.put(b"x")
        with contextlib.closing(Proxy(url, port)):
            eventually(lambda: queue.stats().acked == 1 or serving.done(), "it goes on")
            stop.set()
            assert outcome(serving) == 1
    assert caplog.text.count("waiting for the server") == 1


@pytest.mark.parametrize("kind", [Type.HELLO, Type.PRODUCE], ids=["open", "put"])
def test_a_reply_is_put_again_after_a_lost_connection(
    proxy: Proxy, afar: Broker, broker: Broker, queue: Queue, kind: Type
) -> None:
    def handle(_: shmq.Message) -> str:
        proxy.cut_before(of_type(kind))
        return "done"

    stop = threading.Event()
    serving = in_thread(afar.serve, "q", handle, stop=stop)

    assert broker.request("q", b"x", PATIENCE).body == "done"
    stop.set()
    assert outcome(serving) == 1
    assert not proxy.is_armed
    assert queue.stats().acked == 1


def test_a_request_whose_reply_cannot_be_put_is_handled_again(
    proxy: Proxy, afar: Broker, broker: Broker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()

    def fail_to_reply(_: shmq.Message) -> str:
        proxy.cut_before(of_type(Type.HELLO))
        stop.set()  # so that it is not tried again
        return "lost"

    asked = in_thread(broker.request, "q", b"x", PATIENCE)
    assert afar.serve("q", fail_to_reply, stop=stop) == 0
    assert "goes back to the queue" in caplog.text
    assert queue.stats().acked == 0

    stop.clear()
    serving = in_thread(afar.serve, "q", lambda message: message.delivery_count, stop=stop)
    assert outcome(asked).body == 1
    stop.set()
    assert outcome(serving) == 1


@pytest.mark.prove
def test_an_idle_connection_that_the_server_has_closed_is_noticed_before_a_put(
    namespace: str,
) -> None:
    with serve(namespace, limits={"idle": 1.0}) as server, shmq.connect(server.url) as broker:
        queue = broker.create_queue("q")
        wire = queue.connection.wire  # type: ignore[attr-defined]
        eventually(lambda: not wire.is_usable, "the server has closed it")

        queue.put(b"x")

        assert queue.qsize() == 1


def test_a_worker_that_dies_costs_its_connections_and_no_message(namespace: str) -> None:
    with serve(namespace, workers=1) as server, shmq.connect(server.url) as broker:
        queue = broker.create_queue("q", dedupe_window=LATER)
        for number in range(50):
            if number == 20:
                os.kill(server.workers()[0], signal.SIGKILL)
            queue.put(number)

        assert drain(queue) == list(range(50))
        with shmq.connect(namespace) as local:
            local.delete_queue("q")


def _broken(remote: Any) -> Any:
    wire = remote.connection.wire
    wire.close()
    return wire


def test_a_request_of_a_wire_that_broke_just_before_is_lost_at_once(
    afar: Broker, queue: Queue
) -> None:
    wire = _broken(afar.queue("q"))

    answer = wire.request(Type.STATS, True, b"")

    assert wire.wait(answer, 60)
    assert answer.lost
    assert not wire.may_have_arrived(answer)


async def _ask(wire: Any) -> Any:
    answer = wire.request(Type.STATS, True, b"")
    assert await LoopDriver(asyncio.get_running_loop(), wire).wait(answer, 60)
    return answer


def test_a_task_is_not_kept_by_such_a_wire_either(afar: Broker, queue: Queue) -> None:
    assert asyncio.run(_ask(_broken(afar.queue("q")))).lost


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_producers_batch_is_sent_again_and_is_there_once(
    proxy: Proxy, afar: Broker, broker: Broker, where: str, compression: Any
) -> None:
    stream = broker.create_stream("s", 1)
    with afar.stream("s").producer(compression=compression) as producer:
        getattr(proxy, where)(of_type(Type.APPEND))
        producer.send(bytes(200))
        producer.send(b"two")
    assert stream.read(0, 0).values() == [bytes(200), b"two"]
    assert producer.appended == 2


def test_whether_the_batch_of_a_producer_without_numbers_was_taken_is_unknown(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    stream = broker.create_stream("s", 1)
    producer = afar.stream("s").producer(idempotent=False)
    proxy.cut_after(of_type(Type.APPEND))
    producer.send(b"one")  # has taken the record, which may be there
    assert (producer.pending, stream.latest(0)) == (1, 1)
    producer.flush()  # appends it again, as a new record
    assert (producer.pending, stream.latest(0)) == (0, 2)


def test_a_member_whose_connection_was_cut_is_told_so(proxy: Proxy, afar: Broker) -> None:
    stream = afar.create_stream("s", 1)
    stream.append_many([b"1", b"2"], partition=0)
    member, share = stream.group("g").join(), stream.share("lent")
    record, rest = share.get(), share.get()
    proxy.cut()
    with pytest.raises(shmq.MemberFenced, match=r"connection.*was lost"):
        member.heartbeat()
    with pytest.raises(shmq.LeaseExpired):
        record.ack()
    assert share.ack_many([rest.receipt]) == [rest.receipt]
    assert share.get().delivery_count == 2
    member.poll()
    member.heartbeat()
    share.close()
    member.close()


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_whether_a_commit_was_carried_out_is_said_to_be_unknown(
    proxy: Proxy, afar: Broker, broker: Broker, where: str
) -> None:
    stream = broker.create_stream("s", 1)
    stream.append_many([b"1", b"2"], partition=0)
    member = afar.stream("s").group("g").join()
    eventually(lambda: bool(member.poll()), "it has the records")
    getattr(proxy, where)(of_type(Type.COMMIT))

    with pytest.raises(shmq.ConnectionLost, match="unknown"):
        member.commit()

    assert stream.group("g").committed() == {0: 2 if where == "cut_after" else None}
    with pytest.raises(shmq.MemberFenced, match=r"partition 0: the connection.*was lost"):
        member.commit({0: 1})
    member.close()


def test_a_commit_that_the_server_cannot_have_seen_is_not_carried_out(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    stream = broker.create_stream("s", 1)
    stream.append(b"1", partition=0)
    remote: Any = afar.stream("s")
    member = remote.group("g").join()
    eventually(lambda: bool(member.poll()), "it has the record")
    proxy.cut()
    eventually(lambda: not remote.connection.wire.is_usable, "the end is seen")

    with pytest.raises(shmq.MemberFenced, match=r"partition 0: the connection.*was lost"):
        member.commit()

    assert stream.group("g").committed() == {0: None}
    eventually(lambda: bool(member.poll()), "it is a member again")
    member.commit()
    assert stream.group("g").committed() == {0: 1}
    member.close()


def test_a_member_whose_connection_was_cut_as_it_gave_up_a_partition_joins_again(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    revoked: list[frozenset[int]] = []

    def cut(partitions: frozenset[int]) -> None:
        if not revoked:
            proxy.cut_before(of_type(Type.SEATS))
        revoked.append(partitions)

    broker.create_stream("s", 2)
    member = afar.stream("s").group("g").join(on_revoked=cut)
    first = member.id
    assert member.assignment == {0, 1}
    other = broker.stream("s").group("g").join()

    def is_shared() -> bool:
        assert not member.poll() and not other.poll()
        return len(member.assignment) == len(other.assignment) == 1 and member.id != first

    eventually(is_shared, "it is a member again")
    assert not proxy.is_armed
    assert len(revoked) > 1
    member.close()
    other.close()


def test_a_member_whose_connection_was_cut_as_it_took_a_partition_joins_again(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    broker.create_stream("s", 2)
    changes: list[tuple[str, frozenset[int]]] = []
    proxy.cut_before(nth(Type.SEATS, 2))
    member = (
        afar.stream("s")
        .group("g")
        .join(
            on_assigned=lambda partitions: changes.append(("assigned", partitions)),
            on_revoked=lambda partitions: changes.append(("revoked", partitions)),
        )
    )
    assert not proxy.is_armed
    assert changes == [("assigned", frozenset({0}))]

    eventually(lambda: not member.poll() and member.assignment == {0, 1}, "it is a member again")
    assert changes[1] == ("revoked", frozenset({0}))
    member.close()


@pytest.mark.parametrize("number", [1, 2])
def test_the_partitions_that_a_member_took_before_an_error_are_reported(
    afar: Broker, broker: Broker, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    claim, calls = RemoteMemberState.claim, itertools.count(1)

    def fail(state: RemoteMemberState, partition: int, member: int) -> bool:
        if next(calls) == number:
            raise shmq.ConnectionLost("as it claims")
        return claim(state, partition, member)

    broker.create_stream("s", 4)
    other = broker.stream("s").group("g").join()
    assigned: list[frozenset[int]] = []
    member = afar.stream("s").group("g").join(on_assigned=assigned.append)
    assert not member.assignment
    assert not other.poll()
    monkeypatch.setattr(RemoteMemberState, "claim", fail)

    with pytest.raises(shmq.ConnectionLost, match="as it claims"):
        member.poll()
    assert [len(partitions) for partitions in assigned] == [1] * (number - 1)

    assert not member.poll()
    assert len(member.assignment) == 2
    assert frozenset().union(*assigned) == member.assignment
    member.close()
    other.close()


@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
def test_whether_a_lent_record_was_settled_is_said_to_be_unknown(
    proxy: Proxy, afar: Broker, broker: Broker, settle: str
) -> None:
    stream = broker.create_stream("s", 1)
    stream.append(b"1", partition=0)
    share = afar.stream("s").share("lent")
    record = share.get()
    proxy.cut_after(of_type(Type.SHARE_SETTLE))

    with pytest.raises(shmq.ConnectionLost, match="unknown"):
        getattr(record, settle)()

    share.close()


def nth(kind: Type, number: int) -> Which:
    """The request of that number among those of its type."""
    seen = itertools.count(1)
    return lambda found, _: found == kind and next(seen) == number


def test_a_share_joins_again_as_often_as_its_connection_is_lost(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    stream = broker.create_stream("s", 1)
    share = afar.stream("s").share("lent")
    stream.append(b"1", partition=0)
    proxy.cut_after(nth(Type.SHARE_TAKE, 1))
    proxy.cut_before(of_type(Type.JOIN))
    proxy.cut_within(nth(Type.SHARE_TAKE, 3), 0)

    record = share.get(timeout=PATIENCE)

    assert not proxy.is_armed
    assert record.value == b"1"
    record.ack()
    share.close()


def test_a_record_whose_lease_was_lost_as_it_was_read_is_not_handed_over(
    proxy: Proxy, afar: Broker, broker: Broker
) -> None:
    stream = broker.create_stream("s", 1)
    stream.append(b"1", partition=0)
    share = afar.stream("s").share("lent")
    proxy.cut_after(of_type(Type.FETCH))

    record = share.get(timeout=PATIENCE)

    record.ack()  # LeaseExpired if it were the lost lease's
    assert record.value == b"1"
    share.close()


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
@pytest.mark.parametrize("dedupe_id", [None, "mine"])
def test_a_publish_is_never_repeated(
    proxy: Proxy, afar: Broker, broker: Broker, where: str, dedupe_id: str | None
) -> None:
    exchange = broker.create_exchange("x", "fanout")
    queues = broker.create_queue("with", dedupe_window=LATER), broker.create_queue("without")
    stream = broker.create_stream("s", 1)
    exchange.bind("with")
    exchange.bind("without")
    exchange.bind("s", kind="stream")
    remote = afar.exchange("x")
    getattr(proxy, where)(of_type(Type.ROUTE))

    with pytest.raises(shmq.ConnectionLost, match="unknown"):
        remote.publish(b"once", dedupe_id=dedupe_id)

    taken = int(where == "cut_after")
    assert [queue.qsize() for queue in queues] == [taken, taken]
    assert stream.latest(0) == taken


@pytest.mark.parametrize("where", ["cut_after", "cut_unnoticed"])
def test_a_reply_queue_that_a_lost_connection_has_made_is_a_lost_connection(
    proxy: Proxy, afar: Broker, queue: Queue, where: str
) -> None:
    getattr(proxy, where)(of_type(Type.STATS))  # right behind its CREATE

    with pytest.raises(shmq.ConnectionLost, match="repeat the call"):
        afar.request("q", b"1", timeout=PATIENCE)

    assert queue.qsize() == 0
    with pytest.raises(shmq.NoReply):
        afar.request("q", b"2", timeout=0)
    assert drain(queue) == [b"2"]


@pytest.mark.parametrize("how", ["request", "arequest"])
def test_a_reply_that_a_lost_connection_would_get_is_not_awaited(
    proxy: Proxy, afar: Broker, queue: Queue, how: str
) -> None:
    def ask(body: bytes, timeout: float) -> object:
        if how == "request":
            return afar.request("q", body, timeout=timeout)
        return runner.run(afar.arequest("q", body, timeout=timeout))

    with asyncio.Runner() as runner:
        with pytest.raises(shmq.NoReply):
            ask(b"1", 0.01)
        proxy.cut_unnoticed(lambda kind, _: kind in {Type.CONSUME, Type.SUBSCRIBE})

        with pytest.raises(shmq.ConnectionLost, match=r"the reply queue .* is gone"):
            ask(b"2", PATIENCE)

        with pytest.raises(shmq.NoReply):
            ask(b"3", 0.01)
    assert drain(queue) == [b"1", b"2", b"3"]


class _CountedLock:
    """A lock that counts the threads that have asked for it."""

    def __init__(self) -> None:
        self.entered = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.entered += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_threads_that_wait_for_one_attempt_to_connect_have_its_outcome(
    afar: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote: Any = afar.queue("q")
    _broken(remote)
    lock = _CountedLock()
    attempts: list[int] = []

    def fail(*_: Any) -> Any:
        attempts.append(lock.entered)
        eventually(lambda: lock.entered >= 4, "all threads wait")
        raise shmq.ConnectionLost("nobody is there")

    monkeypatch.setattr(remote.connection, "_lock", lock)
    monkeypatch.setattr(connection, "dial", fail)
    for thread in [in_thread(remote.get, block=False) for _ in range(4)]:
        with pytest.raises(shmq.ConnectionLost, match="nobody is there"):
            outcome(thread)
    assert len(attempts) == 1
