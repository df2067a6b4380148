"""Deleting a queue: every waiter is woken and told, and a new queue is a new queue."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import Broker, Message, Queue
from shmq.client.local import temporary_queue
from shmq.client.local.broker import LocalBroker
from shmq.client.local.dead_letters import DeadLetters
from shmq.client.local.queue import LocalQueue, remove_if_over
from shmq.client.local.stream import LocalStream
from shmq.host.namespace import streams
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core
from tests.support.processes import HOUR, LARGE, Start, asleep, drain, files_of, is_empty

GETS: dict[str, Callable[[Queue], Any]] = {
    "get": lambda queue: queue.get(),
    "get with a timeout": lambda queue: queue.get(timeout=HOUR),
    "get_many": lambda queue: queue.get_many(10),
    "consume": lambda queue: next(queue.consume()),
}
PUTS: dict[str, Callable[[Queue], Any]] = {
    "put": lambda queue: queue.put(b"2", block=True),
    "put of a large body": lambda queue: queue.put(bytes(LARGE), block=True),
    "put_many": lambda queue: queue.put_many([b"2"], block=True),
    "loan": lambda queue: queue.loan(LARGE, block=True),
}


def is_told(pipe: Connection, queue: Queue, wait: Callable[[Queue], Any]) -> str:
    with pytest.raises(shmq.QueueDeleted) as caught:
        wait(queue)
    return str(caught.value)


@pytest.mark.parametrize("how", GETS)
def test_deleting_wakes_and_fails_waiting_gets(
    broker: Broker, queue: Queue, start: Start, how: str
) -> None:
    children = [start(is_told, queue, GETS[how]) for _ in range(3)]
    asleep(queue, getters=3)

    broker.delete_queue("q")

    assert [child.ends() for child in children] == ["queue 'q' was deleted"] * 3


@pytest.mark.parametrize("how", PUTS)
def test_deleting_wakes_and_fails_waiting_puts(broker: Broker, start: Start, how: str) -> None:
    queue = broker.create_queue("full", capacity=1)
    queue.put(b"1")
    children = [start(is_told, queue, PUTS[how]) for _ in range(3)]
    asleep(queue, putters=3)

    broker.delete_queue("full")

    assert [child.ends() for child in children] == ["queue 'full' was deleted"] * 3


def test_deleting_in_another_process_is_seen_here(
    namespace: str, queue: Queue, start: Start
) -> None:
    def delete(pipe: Connection) -> None:
        with shmq.connect(namespace) as mine:
            mine.delete_queue("q")

    start(delete).ends()

    with pytest.raises(shmq.QueueDeleted, match="'q'"):
        queue.put(b"1")


USES: dict[str, Callable[[Queue, Message], Any]] = {
    "put": lambda queue, message: queue.put(b"1"),
    "put of a large body": lambda queue, message: queue.put(bytes(LARGE)),
    "put_many": lambda queue, message: queue.put_many([b"1"]),
    "get": lambda queue, message: queue.get_nowait(),
    "get_many": lambda queue, message: queue.get_many(1, block=False),
    "consume": lambda queue, message: next(queue.consume(block=False)),
    "loan": lambda queue, message: queue.loan(10),
    "ack": lambda queue, message: message.ack(),
    "nack": lambda queue, message: message.nack(),
    "reject": lambda queue, message: message.reject(),
    "extend": lambda queue, message: message.extend(1),
    "ack_many": lambda queue, message: queue.ack_many([message]),
    "peek": lambda queue, message: queue.peek(),
    "purge": lambda queue, message: queue.purge(),
    "redrive": lambda queue, message: queue.redrive(),
    "stats": lambda queue, message: queue.stats(),
    "qsize": lambda queue, message: queue.qsize(),
    "full": lambda queue, message: queue.full(),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("how", USES)
def test_an_old_handle_fails_for_good(broker: Broker, queue: Queue, how: str, again: bool) -> None:
    queue.put(b"1")
    message = queue.get()
    broker.delete_queue("q")
    if again:
        broker.create_queue("q").put(b"new")

    for _ in range(2):
        with pytest.raises(shmq.QueueDeleted, match="'q'"):
            USES[how](queue, message)

    if again:
        assert drain(broker.queue("q")) == [b"new"]


def test_an_old_handle_still_closes_and_tells_its_name_and_options(
    broker: Broker, queue: Queue
) -> None:
    broker.delete_queue("q")

    assert queue.name == "q"
    assert queue.options.visibility_timeout == HOUR
    queue.close()
    queue.close()


def test_messages_in_hand_keep_their_bodies(broker: Broker, queue: Queue) -> None:
    queue.put(b"\x01" * 10)
    queue.put(b"\x02" * LARGE)
    small, large = queue.get(), queue.get()
    view = large.view

    broker.delete_queue("q")
    broker.create_queue("q").put_many([b"\xff" * LARGE] * 100)

    assert small.body == b"\x01" * 10
    assert view == b"\x02" * LARGE


def test_an_open_loan_is_refused_at_its_commit(broker: Broker, queue: Queue) -> None:
    loan = queue.loan(LARGE)
    broker.delete_queue("q")
    loan.view[:] = bytes(LARGE)

    with pytest.raises(shmq.QueueDeleted):
        loan.commit()
    loan.drop()


def test_a_consumer_is_told_and_closes(broker: Broker, queue: Queue) -> None:
    queue.put_many([b"1", b"2", b"3"])
    with queue.consume(prefetch=2) as consumer:
        next(consumer).ack()
        broker.delete_queue("q")
        with pytest.raises(shmq.QueueDeleted):
            list(consumer)


def test_a_new_queue_of_the_old_name_knows_nothing_of_the_old_one(
    broker: Broker, queue: Queue
) -> None:
    queue.put_many([b"old"] * 10)
    old = queue.get_many(5)
    broker.delete_queue("q")

    new = broker.create_queue("q", capacity=50, visibility_timeout=HOUR, dedupe_window=60.0)

    assert new.options.capacity == 50
    is_empty(new)
    put = new.put(b"new", dedupe_id="1")
    assert (put.sequence, put.duplicate) == (1, False)
    got = new.get()
    refused = [message.receipt for message in old]
    assert new.ack_many(refused) == refused
    for receipt in refused:
        for settle in (new.nack, new.reject):
            with pytest.raises(shmq.LeaseExpired):
                settle(receipt)
    got.ack()
    is_empty(new)


def test_receipts_of_many_old_queues_mean_nothing_in_the_new_one(broker: Broker) -> None:
    receipts: list[int] = []
    for _ in range(30):
        queue = broker.create_queue("q", visibility_timeout=HOUR, dead_letter=None)
        queue.put_many([b"1"] * 5)
        messages = queue.get_many(5)
        assert queue.ack_many(receipts) == receipts
        assert queue.stats().in_flight == 5
        receipts += [message.receipt for message in messages]
        broker.delete_queue("q")


def test_a_waiter_of_the_old_queue_never_wakes_for_the_new_one(
    broker: Broker, queue: Queue, start: Start
) -> None:
    child = start(is_told, queue, GETS["get"])
    asleep(queue, getters=1)
    broker.delete_queue("q")
    new = broker.create_queue("q")
    new.put(b"new")

    assert child.ends() == "queue 'q' was deleted"
    assert drain(new) == [b"new"]
    asleep(new)


def test_the_dead_letter_queue_stays(broker: Broker, queue: Queue) -> None:
    queue.put(b"1")
    queue.get().reject()

    broker.delete_queue("q")

    dead_letter_queue = broker.queue("q.dlq")
    letter = dead_letter_queue.get()
    assert letter.dead is not None
    assert (letter.body, letter.dead.queue) == (b"1", "q")
    assert broker.create_queue("q").redrive() == 0


def test_a_deleted_dead_letter_queue_is_made_anew_when_it_is_needed(
    broker: Broker, queue: Queue
) -> None:
    queue.put(b"1")
    broker.delete_queue("q.dlq")

    queue.get().reject()

    assert drain(broker.queue("q.dlq")) == [b"1"]


def test_only_one_of_many_that_delete_succeeds(
    namespace: str, broker: Broker, queue: Queue, start: Start
) -> None:
    def delete(pipe: Connection) -> bool:
        with shmq.connect(namespace) as mine:
            pipe.send("ready")
            pipe.recv()
            try:
                mine.delete_queue("q")
            except shmq.NoSuchQueue:
                return False
            return True

    children = [start(delete) for _ in range(6)]
    for child in children:
        child.hear()
    for child in children:
        child.tell()

    assert sum(child.ends() for child in children) == 1
    with pytest.raises(shmq.QueueDeleted):
        queue.get()


def test_asking_for_the_writer_of_a_removed_namespace_does_not_create_its_file(
    namespace: str, broker: shmq.Broker
) -> None:
    file = Path("/dev/shm", f"shmq@{namespace}")
    broker.create_queue("q", dead_letter=None)
    broker.delete_queue("q")
    assert not file.exists()
    assert Namespace.of(namespace).roles.writer_pid is None
    assert not file.exists()


def test_a_sleeper_that_looks_for_deaths_too_late_does_not_create_the_namespaces_file(
    namespace: str, broker: LocalBroker
) -> None:
    file = Path("/dev/shm", f"shmq@{namespace}")
    stream = broker.create_stream("s", 1)
    queue = broker.create_queue("q", dead_letter=None)
    assert queue.is_guarded()
    broker.delete_queue("q")
    broker.delete_stream("s")
    assert not file.exists()

    assert queue.is_guarded()
    assert stream.is_guarded()

    assert not file.exists()


def test_a_sleeper_registers_anew_where_only_the_namespaces_file_was_removed(
    namespace: str, broker: LocalBroker
) -> None:
    file = Path("/dev/shm", f"shmq@{namespace}")
    queue = broker.create_queue("q", dead_letter=None)
    file.unlink()

    assert queue.is_guarded()

    assert file.exists()


def test_a_handle_that_attaches_too_late_does_not_create_the_namespaces_file(
    namespace: str, broker: LocalBroker
) -> None:
    class Late(LocalQueue):
        def _process_number(self) -> int:
            broker.delete_queue(self.name)
            return super()._process_number()

    broker.create_queue("q", dead_letter=None).close()
    home = Namespace.of(namespace)

    with pytest.raises(shmq.QueueDeleted):
        Late(home, "q", home.open_segment("q"))

    assert files_of(namespace) == []


def test_a_stream_that_is_opened_too_late_does_not_create_the_namespaces_file(
    namespace: str, broker: LocalBroker
) -> None:
    broker.create_stream("s", 1).close()
    home = Namespace.of(namespace)
    opened = streams.open_stream(home, "s")
    broker.delete_stream("s")

    stream = LocalStream(home, "s", opened)
    with pytest.raises(shmq.StreamDeleted):
        stream.append(b"1")

    assert files_of(namespace) == []


def test_one_who_ends_a_deleted_queue_too_late_does_not_create_the_namespaces_file(
    namespace: str, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*given: Any) -> bool:
        monkeypatch.undo()
        broker.delete_queue("q")
        return True

    broker.create_queue("q", dead_letter=None, auto_delete=True).close()
    monkeypatch.setattr(temporary_queue, "looks_over", late)

    assert not remove_if_over(Namespace.of(namespace), "q")

    assert files_of(namespace) == []


def test_a_late_mover_does_not_make_the_dead_letter_queue_of_a_deleted_queue(
    namespace: str, broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(DeadLetters[LocalQueue]):
        def queue_of(self, source: _core.Handle) -> LocalQueue:
            broker.delete_queue("q")
            broker.delete_queue("letters")
            return super().queue_of(source)

    letters = broker.create_queue("letters", capacity=1, dead_letter=None, max_deliveries=None)
    letters.put(b"full")
    queue = broker.create_queue("q", dead_letter="letters")
    queue.put(b"1")
    queue.get().reject()
    assert queue.stats().dying == 1

    Late(Namespace.of(namespace), LocalQueue).move_dying(queue, 1)

    assert files_of(namespace) == []
    assert caplog.records == []
