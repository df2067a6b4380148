"""A process that is stopped inside a critical section: no process waits for it without a bound."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import Broker, LockTimeout, Queue
from shmq.api.names import staging_name
from shmq.client.local import dead_letters, staged_publish
from shmq.model.codec.codecs import pack_properties
from shmq.native import _core
from tests.conformance.tools import in_thread, outcome
from tests.support.layout import place_of
from tests.support.processes import HOUR, Start, asleep, drain, is_sound
from tests.support.stopped import (
    IN_REGISTRY,
    Lock,
    lock_of_partition,
    locks_of_group,
    locks_of_queue,
    stopped_inside,
)
from tests.support.waiting import PATIENCE, eventually

SIDES = ("gets", "puts")

#: What is to be done at once, and takes the whole queue.
OPERATIONS: dict[str, Callable[[Queue], Any]] = {
    "get_nowait": lambda queue: queue.get_nowait(),
    "get": lambda queue: queue.get(timeout=0.2),
    "get_many": lambda queue: queue.get_many(3, timeout=0.2),
    "get by a filter": lambda queue: queue.get(timeout=0.2, where="size > 0"),
    "consume": lambda queue: next(queue.consume(timeout=0.2)),
    "put": lambda queue: queue.put(b"x", group="g"),
    "put of a large body": lambda queue: queue.put(b"x" * 100_000, timeout=0.2),
    "loan": lambda queue: queue.loan(10),
    "qsize": lambda queue: queue.qsize(),
    "stats": lambda queue: queue.stats(),
    "peek": lambda queue: list(queue.peek()),
    "purge": lambda queue: queue.purge(),
    "wait": lambda queue: shmq.wait([queue], timeout=0.2),
}


def refused(operation: Callable[[], Any], pid: int) -> LockTimeout:
    """The LockTimeout that names the process, which is stopped."""
    with pytest.raises(LockTimeout) as caught:
        operation()
    assert (caught.value.pid, caught.value.state) == (pid, "stopped")
    assert f"held by PID {pid} (stopped)" in str(caught.value)
    assert f"kill -CONT {pid}" in str(caught.value)
    return caught.value


@pytest.mark.prove
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_ends_and_names_the_process_that_holds_the_queue(
    broker: Broker, side: str, operation: str
) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    with locks_of_queue(broker.namespace, "q")[side].held_by_stopped() as holder:
        refused(lambda: OPERATIONS[operation](queue), holder.pid)

        holder.send_signal(signal.SIGCONT)
        assert holder.wait(PATIENCE) == 0

    queue.put(b"1")
    assert drain(queue) == [b"1"]
    is_sound(queue)
    assert (queue.stats().waiting_get, queue.stats().recoveries) == (0, 0)


@pytest.mark.prove
def test_a_child_that_met_a_held_lock_first_owns_what_it_leases(broker: Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put(b"1")
    reader, writer = os.pipe()
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
        child = os.fork()
        if not child:
            try:
                refused(queue.get_nowait, holder.pid)
                os.kill(holder.pid, signal.SIGCONT)
                os.write(writer, queue.get(timeout=PATIENCE).body)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(writer)
        with os.fdopen(reader, "rb") as told:
            assert told.read() == b"1"

    assert queue.get(timeout=PATIENCE).body == b"1"


#: What waits in an event loop, for so long.
AWAITED: dict[str, Callable[[Queue, float], Coroutine[Any, Any, Any]]] = {
    "aget": lambda queue, timeout: queue.aget(timeout),
    "aget by a filter": lambda queue, timeout: queue.aget(timeout, where="size > 0"),
    "aconsume": lambda queue, timeout: anext_of(queue.aconsume(timeout=timeout)),
}


async def anext_of(consumer: shmq.AsyncConsumer) -> Any:
    return await anext(consumer)


@pytest.mark.prove
@pytest.mark.parametrize("operation", AWAITED)
def test_what_is_awaited_goes_on_once_the_lock_is_free(broker: Broker, operation: str) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put(b"1")

    async def main() -> Any:
        with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
            awaited = asyncio.create_task(AWAITED[operation](queue, PATIENCE))
            for _ in range(3):  # each for as long as an operation waits that is done at once
                await asyncio.to_thread(refused, queue.qsize, holder.pid)
            assert not awaited.done()
        return await awaited

    assert asyncio.run(main()).body == b"1"


@pytest.mark.parametrize("operation", AWAITED)
@pytest.mark.parametrize("timeout", [0, 0.3])
def test_what_is_awaited_ends_with_its_timeout_and_names_the_holder_of_the_lock(
    broker: Broker, operation: str, timeout: float
) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put(b"1")
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
        begin = time.monotonic()
        refused(lambda: asyncio.run(AWAITED[operation](queue, timeout)), holder.pid)
        assert time.monotonic() - begin >= timeout


def test_a_consumer_waits_for_the_lock_as_long_as_for_messages(broker: Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put_many([b"1", b"2"])
    consumer = queue.consume(prefetch=2)
    next(consumer).ack()
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
        refused(queue.qsize, holder.pid)  # the acknowledgement is due meanwhile
        second = in_thread(next, consumer)
        for _ in range(3):  # each for as long as an operation waits that is done at once
            refused(queue.qsize, holder.pid)
        assert not second.done()

    assert outcome(second).body == b"2"
    consumer.close()


def test_a_settlement_ends_too_and_may_be_repeated(broker: Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put_many([b"1", b"2", b"3", b"4"])
    first, *others = queue.get_many(4)
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
        refused(first.ack, holder.pid)
        refused(first.nack, holder.pid)
        refused(lambda: queue.extend(first.receipt, 1.0), holder.pid)
        refused(lambda: queue.ack_many(others), holder.pid)

    first.ack()
    assert queue.ack_many(others) == []
    assert queue.qsize() == 0


def test_leases_and_settlements_go_on_beside_a_stopped_put(broker: Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put_many([b"1", b"2"], priority=None)
    queue.qsize()  # they are in the order by now
    with locks_of_queue(broker.namespace, "q")["puts"].held_by_stopped():
        for body in (b"1", b"2"):
            message = queue.get_nowait()
            assert message.body == body
            message.ack()


def test_what_was_put_before_the_lock_was_not_to_be_had_is_counted(broker: Broker) -> None:
    queue = broker.create_queue("q")
    queue.put_many([b"0"] * 40)
    assert len(drain(queue)) == 40  # their slots are at hand
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
        assert queue.put_many([b"1", b"2", b"x" * 100_000, b"3"]) == 2
        refused(lambda: queue.put_many([b"x" * 100_000]), holder.pid)
    assert drain(queue) == [b"1", b"2"]


def test_an_operation_that_was_carried_out_does_not_fail_for_what_is_beside_it(
    broker: Broker,
) -> None:
    queue = broker.create_queue("q", max_deliveries=1, retry_delay=0)
    queue.put(b"1")
    with locks_of_queue(broker.namespace, "q.dlq")["gets"].held_by_stopped():
        queue.get().nack()  # it dies, and cannot be moved
        assert queue.stats().dying == 1
        queue.put(b"2")
        queue.get().ack()
    eventually(lambda: queue.stats().dying == 0, "the dead letter moves")
    assert broker.queue("q.dlq").get(timeout=PATIENCE).body == b"1"


def test_a_dead_letter_whose_move_met_a_held_lock_moves_once_the_lock_is_free(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create_queue("q", max_deliveries=1, retry_delay=0)
    queue.put(b"1")
    with contextlib.ExitStack() as stack:

        def pack_late(properties: dict[str, Any]) -> bytes:
            # It is taken, and not staged yet.
            monkeypatch.setattr(dead_letters, "pack_properties", pack_properties)
            lock = locks_of_queue(broker.namespace, "q")["gets"]
            stack.enter_context(lock.held_by_stopped())
            return pack_properties(properties)

        monkeypatch.setattr(dead_letters, "pack_properties", pack_late)
        queue.get().nack()
    eventually(lambda: queue.stats().dying == 0, "the dead letter moves")
    assert drain(broker.queue("q.dlq")) == [b"1"]
    is_sound(queue)
    is_sound(broker.queue("q.dlq"))


def has_staged(target: Lock) -> bool:
    """Whether the queue of the lock has a staged copy, and nobody has its lock."""
    count = place_of("staged")
    with target.path.open("rb") as memory:
        memory.seek(count.start)
        return any(memory.read(count.stop - count.start)) and not target.holder()


def commit_impatiently(publisher: shmq.StagedPublisher) -> int:
    """Commit the batch 0, and wait for each lock at most 2 s."""
    _core.set_patience(2.0)
    return publisher.commit_batch(0, ["part"], timeout=PATIENCE)


@pytest.mark.prove
@pytest.mark.parametrize("moved", [True, False])
def test_rows_whose_end_met_a_held_lock_are_published_in_order_by_the_next_commit(
    broker: Broker, *, moved: bool
) -> None:
    queue = broker.create_queue("few", capacity=2)
    queue.staged_publisher("p").stage(0, "part", [b"1", b"2", b"3"])
    target = locks_of_queue(broker.namespace, "few")["gets"]
    source = locks_of_queue(broker.namespace, staging_name("few", "p"))["gets"]
    publisher = broker.queue("few").staged_publisher("p")

    commit = in_thread(functools.partial(commit_impatiently, publisher))
    eventually(queue.full, "the commit waits for room")
    source.take()
    bodies = drain(queue)
    eventually(lambda: has_staged(target), "the third row is staged, and waits for the source")
    target.take()
    if moved:
        source.write(0)
    with pytest.raises(LockTimeout):
        commit.result(PATIENCE)
    source.write(0)
    target.write(0)

    publisher.commit_batch(0, ["part"])
    assert bodies + drain(queue) == [b"1", b"2", b"3"]
    is_sound(queue)


def test_a_loan_may_end_while_the_lock_is_held(broker: Broker) -> None:
    queue, other = broker.create_queue("q"), broker.queue("q")
    dropped, deleted = queue.loan(10), queue.loan(10)
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped():
        dropped.drop()
        del deleted
    queue.put(b"1")
    queue.close()
    assert drain(other) == [b"1"]
    is_sound(other)


@pytest.mark.prove
def test_a_sleeper_whose_queue_is_stopped_meanwhile_is_told_and_counted_out(
    broker: Broker, start: Start
) -> None:
    queue = broker.create_queue("q")

    def sleep(pipe: Connection) -> int:
        here = shmq.connect(broker.namespace).queue("q")
        with pytest.raises(LockTimeout) as refused:
            here.get(timeout=4.0)  # the holder is there by then, on a busy machine, too
        pipe.send(refused.value.state)
        pipe.recv()
        with contextlib.suppress(shmq.Empty):
            here.get(timeout=0.1)
        return here.stats().waiting_get

    child = start(sleep)
    asleep(queue, getters=1)
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped():
        assert child.hear() == "stopped"
    child.tell()
    assert child.ends() == 0


def test_a_wait_without_end_goes_on_when_the_holder_does(broker: Broker, start: Start) -> None:
    queue = broker.create_queue("q")

    def wait(pipe: Connection) -> Any:
        here = shmq.connect(broker.namespace).queue("q")
        pipe.send("here")
        pipe.recv()
        return here.get().body

    child = start(wait)
    assert child.hear() == "here"
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
        child.tell()
        eventually(lambda: in_the_kernel(child.pid), "it waits")
        holder.send_signal(signal.SIGCONT)
        holder.wait(PATIENCE)
        queue.put(b"1")
        assert child.ends() == b"1"


def in_the_kernel(pid: int) -> bool:
    """Whether the process sleeps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_wait_without_end_is_interrupted_by_a_signal(broker: Broker, start: Start) -> None:
    broker.create_queue("q")

    def wait(pipe: Connection) -> str:
        here = shmq.connect(broker.namespace).queue("q")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pipe.send("here")
        pipe.recv()
        try:
            here.get()
        except KeyboardInterrupt:
            return "interrupted"
        return "not interrupted"

    child = start(wait)
    assert child.hear() == "here"
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped():
        child.tell()
        eventually(lambda: in_the_kernel(child.pid), "it waits")
        child.signal(signal.SIGINT)
        assert child.ends() == "interrupted"


def test_a_handle_is_closed_whose_queue_cannot_be_locked(broker: Broker, start: Start) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put(b"1")

    def close(pipe: Connection) -> int:
        here = shmq.connect(broker.namespace)
        message = here.queue("q").get()
        consumer = here.queue("q").consume()
        pipe.send("here")
        pipe.recv()
        here.close()
        del message, consumer
        pipe.send("closed")
        pipe.recv()
        return 0

    child = start(close)
    assert child.hear() == "here"
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped():
        child.tell()
        assert child.hear() == "closed"
    child.tell()
    child.ends()
    assert queue.get(timeout=PATIENCE).body == b"1"  # its death gives back what it held


def test_one_queue_that_is_locked_keeps_no_other_from_being_listed(broker: Broker) -> None:
    broker.create_queue("one", dead_letter=None)
    broker.create_queue("two", dead_letter=None).put(b"1")
    with locks_of_queue(broker.namespace, "one")["gets"].held_by_stopped() as holder:
        one, two = broker.list_queues()
        assert one.problem is not None
        assert f"held by PID {holder.pid} (stopped)" in one.problem
        assert (two.depth, two.problem) == (1, None)
        refused(lambda: broker.delete_queue("one"), holder.pid)
    broker.delete_queue("one")


@pytest.mark.prove
def test_the_registry_is_waited_for_no_longer_either(broker: Broker) -> None:
    queue = broker.create_queue("q")
    queue.put(b"1")
    with stopped_inside(IN_REGISTRY, broker.namespace) as holder:
        refused(lambda: broker.create_queue("other"), holder.pid)
        refused(lambda: broker.delete_queue("q"), holder.pid)
        refused(lambda: broker.create_stream("s"), holder.pid)
        queue.get().ack()
        with shmq.connect(broker.namespace) as another:
            assert another.queue("q").qsize() == 0
    broker.create_queue("other")


def test_a_process_at_work_in_the_registry_is_waited_for(broker: Broker, start: Start) -> None:
    def hold(pipe: Connection) -> None:
        from shmq.host.namespace.namespace import Namespace

        with Namespace.of(broker.namespace).locked():
            pipe.send("locked")
            time.sleep(0.3)  # longer than for one that is stopped

    child = start(hold)
    assert child.hear() == "locked"
    broker.create_queue("q")
    child.ends()


def test_a_partition_whose_appender_is_stopped_is_read_and_the_others_go_on(broker: Broker) -> None:
    stream = broker.create_stream("s", partitions=2)
    stream.append(b"1", partition=0)
    with lock_of_partition(broker.namespace, "s").held_by_stopped() as holder:
        refused(lambda: stream.append(b"2", partition=0), holder.pid)
        refused(lambda: stream.append(b"2", partition=0, timeout=0.2), holder.pid)
        stream.append(b"3", partition=1)
        assert [record.value for record in stream.read(0, 0)] == [b"1"]

        with pytest.raises(LockTimeout) as caught:
            stream.append_many([b"4"], partition=0)
        assert caught.value.appended == []  # type: ignore[attr-defined]
    stream.append(b"2", partition=0)
    assert [record.value for record in stream.read(0, 0)] == [b"1", b"2"]


def test_a_member_waits_for_its_group_as_long_as_for_records(broker: Broker) -> None:
    stream = broker.create_stream("s", 2)
    for partition in range(2):
        stream.append_many([b"1", b"2", b"3"], partition=partition)
    group = stream.group("g")
    with group.join(timeout=PATIENCE) as member:
        next(member)
        with group.join():  # so that the first one is to look at the group
            (lock,) = locks_of_group(broker.namespace, "g")
            with lock.held_by_stopped() as holder:
                waiting = in_thread(next, member)
                for _ in range(3):
                    refused(group.join, holder.pid)
                assert not waiting.done()
            assert waiting.result(PATIENCE).value in {b"1", b"2", b"3"}


def test_a_group_whose_member_is_stopped_inside_is_not_waited_for(broker: Broker) -> None:
    stream = broker.create_stream("s", partitions=1)
    stream.append(b"1")
    with stream.group("g").join() as member:
        assert [len(records) for records in member.poll(timeout=PATIENCE)] == [1]
        (lock,) = locks_of_group(broker.namespace, "g")
        with lock.held_by_stopped() as holder:
            refused(member.commit, holder.pid)
        member.commit()


def test_what_the_holder_does_is_told(broker: Broker) -> None:
    queue = broker.create_queue("q")
    with locks_of_queue(broker.namespace, "q")["gets"].held_by_stopped() as holder:
        error = refused(queue.qsize, holder.pid)
        assert isinstance(error, TimeoutError)
        assert "queue 'q'" in str(error)
        assert Path(f"/proc/{holder.pid}/comm").read_text().strip() in str(error)


#: Runs a call of a publisher, stopped once it has found that nothing is sealed.
_STOP_AFTER_MARKER = """
import os, signal, sys
import shmq
from shmq.client.local import staged_publish
find = staged_publish._find_marker
def find_stopped(queue):
    marker = find(queue)
    os.kill(os.getpid(), signal.SIGSTOP)
    return marker
with shmq.connect(sys.argv[1]) as broker:
    publisher = broker.queue("few").staged_publisher("p")
    staged_publish._find_marker = find_stopped
    """
_STAGE_LATE = _STOP_AFTER_MARKER + 'publisher.stage(0, "late", [b"late"])'
_SWEEP_LATE = _STOP_AFTER_MARKER + 'publisher.sweep(keep="new")'


def test_what_is_staged_during_the_commit_of_its_batch_is_not_committed(broker: Broker) -> None:
    queue = broker.create_queue("few", capacity=2)
    publisher = queue.staged_publisher("p")
    publisher.stage(0, "in time", [b"1", b"2", b"3"])
    with stopped_inside(_STAGE_LATE, broker.namespace) as stager:
        commit = in_thread(
            broker.queue("few").staged_publisher("p").commit_batch, 0, ["in time"], timeout=PATIENCE
        )
        eventually(queue.full, "the commit waits for room")
        stager.send_signal(signal.SIGCONT)
        assert stager.wait(PATIENCE) == 0
    bodies = drain(queue)

    assert commit.result(PATIENCE) == 3
    assert bodies + drain(queue) == [b"1", b"2", b"3"]
    publisher.stage(1, "next", [b"4"])
    assert publisher.commit_batch(1, ["next"]) == 1
    assert drain(queue) == [b"4"]


def test_a_sweep_removes_nothing_of_a_batch_that_is_committed_meanwhile(broker: Broker) -> None:
    queue = broker.create_queue("few", capacity=2)
    publisher = queue.staged_publisher("p")
    for part in ("old", "older"):
        publisher.stage(0, part, [part.encode(), b"row"])
    with stopped_inside(_SWEEP_LATE, broker.namespace) as sweeper:
        with pytest.raises(shmq.Full, match=f"committed by PID {sweeper.pid} .stopped"):
            publisher.commit_batch(0, ["old", "older"], timeout=0.2)
        sweeper.send_signal(signal.SIGCONT)
        assert sweeper.wait(PATIENCE) == 0
    with pytest.raises(shmq.InvalidOption, match="nothing was committed"):
        publisher.commit_batch(0, ["old", "older"])
    assert queue.empty()


class _Markers:
    """A staging queue in which another process acts once its markers are listed."""

    def __init__(self, queue: Any, act: Callable[[], object]) -> None:
        self._queue = queue
        self._act = act
        self.staging = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def listing(self, codec: int) -> Any:
        found = self._queue.staging.listing(codec)
        self._act()
        return found


def test_a_batch_is_sealed_while_the_next_one_is_being_sealed(broker: Broker) -> None:
    queue = broker.create_queue("q")
    publishers = [queue.staged_publisher("p") for _ in range(2)]
    for batch in range(2):
        publishers[0].stage(batch, "part", [b"row"])
    publishers[0].commit_batch(0, ["part"])
    assert publishers[1].sealed() == 0
    raced = _Markers(
        publishers[1]._queue,  # type: ignore[attr-defined]
        lambda: publishers[0].commit_batch(1, ["part"]),
    )

    marker = staged_publish._find_marker(raced)

    assert marker is not None
    assert marker.batch == 1


def test_a_server_goes_on_when_a_client_is_stopped_in_its_reply_queue(broker: Broker) -> None:
    queue = broker.create_queue("q")
    broker.create_queue("replies")
    with locks_of_queue(broker.namespace, "replies")["puts"].held_by_stopped():
        queue.put(b"1", reply_to="replies")
        stop = threading.Event()
        server = in_thread(broker.serve, "q", lambda _: b"2", stop=stop)
        eventually(lambda: queue.stats().acked == 1, "the request is done")
    assert not server.done()
    stop.set()
    server.result(PATIENCE)


def test_a_redrive_goes_on_when_the_origin_of_a_letter_is_deleted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        with broker.create_queue(name, dead_letter="graveyard") as queue:
            queue.put(name.encode())
            queue.get().reject()
    send_back = dead_letters.send_back

    def send_late(*arguments: Any) -> None:
        with contextlib.suppress(shmq.NoSuchQueue):  # deleted by the first call
            broker.delete_queue("one")
        send_back(*arguments)

    monkeypatch.setattr(dead_letters, "send_back", send_late)
    graveyard = broker.queue("graveyard")

    assert graveyard.redrive() == 1

    assert drain(broker.queue("two")) == [b"two"]
    assert drain(graveyard) == [b"one"]
