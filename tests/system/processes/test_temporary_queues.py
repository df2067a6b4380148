"""Queues that end with processes: deaths, forks, and processes that open while a queue goes."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil
import pytest

import shmq
from shmq import Broker, Queue
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.client.local.temporary_queue import remove_if_over
from shmq.host.diagnose.leftovers import sweep
from shmq.host.namespace.namespace import Namespace
from shmq.server.keeper import Keeper
from tests.support.processes import Child, Start, asleep, drain, files_of, is_sound, run_script
from tests.support.waiting import PATIENCE, eventually

ENDS: dict[str, dict[str, Any]] = {
    "auto_delete": {"auto_delete": True},
    "exclusive": {"exclusive": True},
}


def be_consumer(queue: Queue) -> None:
    """Consume from the empty queue: from now on the handle is a consumer."""
    with contextlib.suppress(shmq.Empty):
        queue.get(block=False)


def work(pipe: Connection, namespace: str, options: dict[str, Any]) -> None:
    """Make queue ``t``, or open it, and be its consumer until told to end, or killed."""
    with shmq.connect(namespace) as broker:
        queue = broker.ensure_queue("t", **options)
        be_consumer(queue)
        pipe.send(os.getpid())
        pipe.recv()


def worker(start: Start, namespace: str, options: dict[str, Any]) -> Child:
    child = start(work, namespace, options)
    child.hear()
    return child


# ---- ends without a close ----

_FORGETFUL = """
import sys
import shmq
broker = shmq.connect(sys.argv[1])
queue = broker.queue("t")
queue.get(timeout=0).ack()
lock = broker.lock("l")
lock.acquire()
lock.release()
"""


def test_a_process_that_closes_nothing_leaves_no_binding(broker: Broker) -> None:
    kept, ends = broker.create_queue("kept"), broker.create_queue("t", auto_delete=True)
    for kind, how in (
        ("direct", {"key": "k"}),
        ("fanout", {}),
        ("topic", {"key": "a.*"}),
        ("headers", {"headers": {"a": 1}, "match": "any"}),
    ):
        exchange = broker.create_exchange(kind, kind, alternate="other")  # type: ignore[arg-type]
        for queue in (kept, ends):
            exchange.bind(queue.name, **how)
    broker.delete_exchange("direct")
    ends.put(b"1")
    ends.close()

    run_script(_FORGETFUL, broker.namespace)  # it writes nothing to stderr

    assert broker.queue_names() == ["kept", "kept.dlq"]
    for kind in ("fanout", "topic", "headers"):
        assert [each.target for each in broker.exchange(kind).bindings()] == ["kept"]


# ---- deaths ----


def open_it(broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("t")


def list_it(broker: Broker) -> None:
    assert broker.list_queues() == []


def keep_it(broker: Broker) -> None:
    keeper = Keeper(broker.namespace)
    keeper.tend()
    keeper.close()


def put_into_it(broker: Broker) -> None:
    assert isinstance(broker, LocalBroker)
    with pytest.raises(shmq.NoSuchQueue):
        broker.put_target("t")


NOTICES = (open_it, list_it, keep_it, put_into_it)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("notice", NOTICES)
def test_a_killed_processes_queue_goes_when_another_process_looks(
    namespace: str, broker: Broker, start: Start, notice: Callable[[Broker], None], ends: str
) -> None:
    worker(start, namespace, ENDS[ends]).kill()
    assert broker.queue_names() == ["t"]

    notice(broker)

    assert broker.queue_names() == []


@pytest.mark.parametrize("ends", ENDS)
def test_another_one_may_be_made_in_its_place_at_once(
    namespace: str, broker: Broker, start: Start, ends: str
) -> None:
    worker(start, namespace, ENDS[ends]).kill()

    assert broker.create_queue("t", capacity=7).options.capacity == 7


@pytest.mark.parametrize("ends", ENDS)
def test_it_goes_by_itself_where_a_process_waits(
    namespace: str, broker: Broker, start: Start, ends: str
) -> None:
    def wait(pipe: Connection) -> None:
        shmq.connect(namespace).queue("q").get(timeout=PATIENCE).ack()

    queue = broker.create_queue("q", dead_letter=None)
    child = worker(start, namespace, ENDS[ends])
    waiter = start(wait)
    asleep(queue, getters=1)
    eventually(lambda: len(os.listdir(f"/proc/{waiter.pid}/task")) > 1, "it becomes a guardian")

    child.kill()

    eventually(lambda: broker.queue_names() == ["q"], "the guardian deletes it")
    queue.put(b"")
    waiter.ends()


def test_a_holder_of_a_handle_notices_when_it_does_what_is_due(
    namespace: str, broker: Broker, start: Start
) -> None:
    queue = broker.create_queue("t", auto_delete=True)
    worker(start, namespace, ENDS["auto_delete"]).kill()

    with pytest.raises(shmq.QueueDeleted):
        queue.qsize()

    assert broker.queue_names() == []


def test_what_a_killed_consumer_held_stays_while_there_is_another(
    namespace: str, broker: Broker, start: Start
) -> None:
    def lease(pipe: Connection) -> None:
        message = shmq.connect(namespace).queue("t").get()
        pipe.send(message.sequence)
        pipe.recv()

    queue = broker.create_queue("t", auto_delete=True)
    be_consumer(queue)
    queue.put(b"1")
    child = start(lease)
    child.hear()

    child.kill()

    assert drain(queue) == [b"1"]
    is_sound(queue)


def test_a_queue_that_expires_counts_its_time_from_the_end_of_its_consumer(
    namespace: str, broker: Broker, start: Start
) -> None:
    options: dict[str, Any] = {"expires": 0.5, "dead_letter": None}
    child = worker(start, namespace, options)
    broker.create_queue("passed", **options)
    eventually(lambda: [each.name for each in broker.list_queues()] == ["t"], "the time passes")

    child.kill()

    eventually(lambda: broker.list_queues() == [], "the queue goes")


def test_a_process_that_ends_without_closing_leaves_no_exclusive_queue(
    namespace: str, broker: Broker
) -> None:
    run_script(
        "import sys, shmq\nshmq.connect(sys.argv[1]).create_queue('t', exclusive=True)", namespace
    )

    assert broker.queue_names() == []


def test_nothing_is_left_of_them(namespace: str, start: Start) -> None:
    child = worker(start, namespace, {"auto_delete": True, "exclusive": True})
    child.tell()
    child.ends()

    assert files_of(namespace) == []


# ---- exchanges ----


@pytest.mark.parametrize("ends", ENDS)
def test_a_publish_neither_fails_nor_fills_a_killed_workers_queue(
    namespace: str, broker: Broker, start: Start, ends: str
) -> None:
    exchange = broker.create_exchange("e", "fanout")
    stays = broker.create_queue("stays")
    child = worker(start, namespace, {"capacity": 4, **ENDS[ends]})
    for target in ("t", "stays"):
        exchange.bind(target)
    assert exchange.publish(b"0").delivered == 2

    child.kill()

    assert [exchange.publish(b"%d" % number).delivered for number in range(1, 10)] == [1] * 9
    assert [each.target for each in exchange.bindings()] == ["stays"]
    assert broker.queue_names() == ["stays", "stays.dlq"]
    assert len(drain(stays)) == 10


def test_a_publish_that_waits_for_room_goes_on_when_the_queues_worker_dies(
    namespace: str, broker: Broker, start: Start
) -> None:
    def publish(pipe: Connection) -> int:
        exchange = shmq.connect(namespace).exchange("e")
        return exchange.publish_many([b"1", b"2"], timeout=PATIENCE).delivered

    child = worker(start, namespace, {"capacity": 1, "overflow": "block", "auto_delete": True})
    exchange = broker.create_exchange("e", "fanout")
    broker.create_queue("stays", dead_letter=None)
    for target in ("t", "stays"):
        exchange.bind(target)
    publisher = start(publish)
    queue = broker.queue("t")
    asleep(queue, putters=1)

    child.kill()

    assert publisher.ends() == 3  # one was in the queue that went
    # The publisher may have ended while it deleted the queue: then who lists deletes the rest.
    assert [each.name for each in broker.list_queues()] == ["stays"]
    assert broker.queue_names() == ["stays"]


def test_only_an_exchange_that_has_no_other_queue_tells_that_one_went(
    namespace: str, broker: Broker, start: Start
) -> None:
    exchange = broker.create_exchange("e", "fanout")
    child = worker(start, namespace, ENDS["auto_delete"])
    exchange.bind("t")
    child.kill()

    with pytest.raises(shmq.Unroutable):
        exchange.publish(b"1", mandatory=True)


# ---- owners ----


def test_another_process_is_refused_with_the_owners_name(
    namespace: str, broker: Broker, start: Start
) -> None:
    child = worker(start, namespace, ENDS["exclusive"])

    for attempt in (broker.queue, broker.ensure_queue, broker.create_queue):
        with pytest.raises(shmq.Forbidden, match=rf"'t' is exclusive to process {child.pid} "):
            attempt("t")


def test_the_child_of_a_fork_is_not_the_owner_of_the_handle_it_inherited(
    broker: Broker, start: Start
) -> None:
    queue = broker.create_queue("t", exclusive=True)
    be_consumer(queue)

    def use(pipe: Connection) -> None:
        queue.put(b"1")
        for attempt in (lambda: queue.get(block=False), queue.purge, lambda: broker.queue("t")):
            with pytest.raises(shmq.Forbidden, match=f"process {os.getppid()} "):
                attempt()
        queue.close()
        broker.close()  # which ends nothing of its parent's

    start(use).ends()

    assert drain(queue) == [b"1"]


def test_it_goes_with_its_owner_although_a_child_of_the_owner_lives(
    namespace: str, broker: Broker, start: Start
) -> None:
    def own(pipe: Connection) -> None:
        queue = shmq.connect(namespace).create_queue("t", exclusive=True)
        be_consumer(queue)
        child = os.fork()
        if not child:
            queue.put(b"1")
            pipe.send(os.getpid())
            signal.pause()
        signal.pause()

    owner = start(own)
    orphan = psutil.Process(owner.hear())
    try:
        owner.kill()
        eventually(lambda: broker.list_queues() == [], "it goes")
    finally:
        orphan.kill()
        orphan.wait(PATIENCE)


def test_a_handle_that_another_process_unpickles_only_puts(broker: Broker, start: Start) -> None:
    queue = broker.create_queue("t", exclusive=True)

    def use(pipe: Connection, pickled: bytes) -> None:
        given = pickle.loads(pickled)
        given.put(b"1")
        with pytest.raises(shmq.Forbidden):
            given.get(timeout=0)

    start(use, pickle.dumps(queue)).ends()

    assert drain(queue) == [b"1"]


# ---- processes that open while it goes ----


def open_at_once(pipe: Connection, namespace: str) -> str:
    broker = shmq.connect(namespace)
    pipe.send("ready")
    pipe.recv()
    try:
        queue = broker.queue("t")
        be_consumer(queue)
        queue.put(b"1")
    except (shmq.NoSuchQueue, shmq.QueueDeleted) as error:
        return type(error).__name__
    queue.get(timeout=PATIENCE).ack()
    return "consumed"


@pytest.mark.prove
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "closed"])
def test_two_processes_that_open_it_while_it_goes_consume_or_are_told(
    namespace: str, broker: Broker, start: Start, kill: bool
) -> None:
    for _ in range(20):
        last = worker(start, namespace, ENDS["auto_delete"])
        openers = [start(open_at_once, namespace) for _ in range(2)]
        for opener in openers:
            opener.hear()

        for opener in openers:
            opener.tell()
        if kill:
            last.kill()
        else:
            last.tell()
            last.ends()

        told = {opener.ends() for opener in openers}
        assert told <= {"consumed", "NoSuchQueue", "QueueDeleted"}
        eventually(lambda: broker.list_queues() == [], "it goes with the last of them")


def test_a_consumer_that_comes_after_the_first_look_keeps_it(
    namespace: str, broker: Broker, start: Start
) -> None:
    queue = broker.create_queue("t", auto_delete=True)
    worker(start, namespace, ENDS["auto_delete"]).kill()

    class Late(LocalQueue):
        """The handle of the process that deletes; a consumer comes in between."""

        def end(self, unused: bool) -> bool:
            queue.begin_consuming()  # type: ignore[attr-defined]
            return super().end(unused)

    assert not remove_if_over(Namespace.of(namespace), "t", Late)
    queue.put(b"1")
    assert drain(queue) == [b"1"]


def test_the_bindings_of_a_queue_that_a_process_half_deleted_are_not_those_of_the_next(
    namespace: str, broker: Broker
) -> None:
    broker.create_exchange("e", "fanout")
    with broker.create_queue("t", auto_delete=True) as queue:
        broker.exchange("e").bind("t")
        queue.begin_consuming()  # type: ignore[attr-defined]
        segment = queue.segment  # type: ignore[attr-defined]
        with LocalQueue(Namespace.of(namespace), "t", segment) as deleting:
            deleting.reclaim(0, Namespace.of(namespace).processes.own_number())
            assert deleting.end(unused=True)  # and here it dies

    broker.create_queue("t")

    assert broker.exchange("e").bindings() == []


def test_doctor_finds_and_deletes_a_queue_that_has_ended(
    namespace: str, broker: Broker, start: Start
) -> None:
    broker.create_queue("stays", auto_delete=True, exclusive=True)
    worker(start, namespace, ENDS["auto_delete"]).kill()

    (found,) = sweep(namespace, fix=False)
    assert (found.kind, found.name, found.fixed) == ("temporary", "t", False)
    (found,) = sweep(namespace, fix=True)

    assert found.fixed
    assert broker.queue_names() == ["stays"]
