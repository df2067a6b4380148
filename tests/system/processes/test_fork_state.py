"""What the child of a fork must not share with its parent: ids, records that wait, claims."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.handles.put import waiting_puts
from shmq.host.namespace.namespace import Namespace
from shmq.model.routing.book import Book
from shmq.mp.mutex import Mutex
from tests.support.processes import Child, Start, drain
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE, eventually

#: A fork of a process with threads is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

#: Longer than any test, in seconds.
FOREVER = 3600.0


@pytest.fixture(params=["local", "tcp"])
def either(request: pytest.FixtureRequest, namespace: str) -> Iterator[shmq.Broker]:
    """A broker of each transport."""
    with contextlib.ExitStack() as stack:
        tcp = request.param == "tcp"
        target = stack.enter_context(TCP_SERVERS.serve(namespace)) if tcp else namespace
        yield stack.enter_context(shmq.connect(target))


def values(stream: shmq.Stream) -> list[Any]:
    return [record.body for record in stream.read(0, 0)]


def test_records_that_both_processes_send_are_all_appended(
    either: shmq.Broker, start: Start
) -> None:
    stream = either.create_stream("s", 1)
    with stream.producer() as producer:
        producer.send("before")

        def work(pipe: Connection) -> tuple[int | None, int, int]:
            producer.send("child")
            return producer.id, producer.appended, producer.pending

        found, appended, pending = start(work).ends()
        producer.send("parent")
        assert found != producer.id
        assert (appended, pending) == (1, 0)
        assert producer.appended == 2
    assert values(stream) == ["before", "child", "parent"]


def test_records_that_wait_in_a_producer_are_appended_by_the_parent_alone(
    either: shmq.Broker, start: Start
) -> None:
    stream = either.create_stream("s", 1)
    with stream.producer(linger=FOREVER, idempotent=False) as producer:
        producer.send("before")

        def work(pipe: Connection) -> int:
            waiting = producer.pending
            producer.close()
            return waiting

        assert start(work).ends() == 0
        assert producer.pending == 1
        assert values(stream) == []
    assert values(stream) == ["before"]


def test_the_clock_of_a_producer_runs_in_the_child_too(either: shmq.Broker, start: Start) -> None:
    """The condition on which the parent's clock waits does not take the child's notifications."""
    stream = either.create_stream("s", 1)
    with stream.producer(linger=0.001) as producer:
        producer.send("before")
        eventually(lambda: not producer.pending, "the clock has appended the record")

        def work(pipe: Connection) -> None:
            for number in range(3):
                producer.send(number)
                eventually(lambda: not producer.pending, "the child's clock has appended it")

        start(work).ends()
    assert values(stream) == ["before", 0, 1, 2]


def test_puts_of_both_processes_with_generated_ids_are_all_taken(
    either: shmq.Broker, start: Start
) -> None:
    queue = either.create_queue("q", dedupe_window=FOREVER)
    queue.put("before")

    def work(pipe: Connection) -> list[bool]:
        return [queue.put(f"child {number}").duplicate for number in range(3)]

    child = start(work)
    assert not any(queue.put(f"parent {number}").duplicate for number in range(3))
    assert not any(child.ends())
    assert len(drain(queue)) == 7


def test_puts_in_flight_are_those_of_the_parent_alone(either: shmq.Broker, start: Start) -> None:
    queue = either.create_queue("q")
    with queue.pipeline(window=100) as pipeline:
        pipeline.put("before")

        def work(pipe: Connection) -> None:
            pipeline.put("child")
            pipeline.flush()

        start(work).ends()
        pipeline.put("parent")
    assert sorted(drain(queue)) == ["before", "child", "parent"]


def test_a_child_counts_no_put_of_its_parent_that_waits_for_room(
    namespace: str, start: Start
) -> None:
    with TCP_SERVERS.serve(namespace) as url, shmq.connect(url) as broker:
        queue: Any = broker.create_queue("q", capacity=1)
        queue.put(0)
        waiting = threading.Thread(target=queue.put, args=(1,), kwargs={"timeout": PATIENCE})
        waiting.start()
        eventually(lambda: waiting_puts(queue.port.key) > 0, "a put waits")
        assert start(lambda pipe: waiting_puts(queue.port.key)).ends() == 0
        queue.get().ack()
        waiting.join()


def test_a_child_receives_its_replies_in_a_queue_of_its_own(
    either: shmq.Broker, start: Start
) -> None:
    requests = either.create_queue("q")
    stop = threading.Event()

    def reply(message: shmq.Message) -> str | None:
        return message.reply_to

    def ask() -> list[str]:
        return [either.request("q", None, PATIENCE).body for _ in range(3)]

    server = threading.Thread(target=either.serve, args=(requests, reply), kwargs={"stop": stop})
    server.start()
    ours = ask()
    child = start(lambda pipe: ask())
    ours += ask()
    theirs = child.ends()
    stop.set()
    server.join()
    assert len(set(ours)) == len(set(theirs)) == 1
    assert set(ours).isdisjoint(theirs)


def test_a_child_cannot_commit_a_transaction_of_its_parent(
    broker: shmq.Broker, start: Start
) -> None:
    queue = broker.create_queue("q")
    with broker.transaction() as transaction:
        transaction.put(queue, "once")

        def work(pipe: Connection) -> None:
            with pytest.raises(shmq.ShmqError, match="does not survive a fork"):
                transaction.put(queue, "again")
            with pytest.raises(shmq.ShmqError, match="does not survive a fork"), transaction:
                pass

        start(work).ends()
    assert drain(queue) == ["once"]


def test_a_child_has_neither_the_number_nor_the_claims_of_its_parent(
    broker: shmq.Broker, namespace: str, start: Start
) -> None:
    known = Namespace.of(namespace)
    number = known.processes.own_number()
    assert known.roles.claim(1)

    def work(pipe: Connection) -> tuple[int, int | None, bool, bool, bool]:
        own = known.processes.own_number()
        return (
            own,
            known.processes.pid_of(number),
            known.roles.has_claim(1),
            known.roles.is_claimed(1),
            known.roles.claim(1),
        )

    child = start(work)
    own, pid, *claims = child.ends()
    assert own != number
    assert pid == os.getpid()
    assert claims == [False, True, False]
    assert not known.processes.is_alive(own)
    known.roles.unclaim(1)


@pytest.mark.parametrize("holder", ["exchanges", "names", "mutex"])
def test_a_child_forked_right_after_a_file_was_closed_closes_no_other_file(
    holder: str, namespace: str, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be that of another file already."""
    (tmp_path / "lock").touch(0o600)
    mutex = Mutex(tmp_path / "lock")
    broker = shmq.connect(namespace)
    broker.create_exchange("x")
    broker.create_queue("q")
    with mutex:
        Book.of(Namespace.of(namespace)).look()
    release = {
        "exchanges": Book.of(Namespace.of(namespace)).release,
        "names": Namespace.of(namespace)._names.release,
        "mutex": mutex.close,
    }[holder]
    close, closed = os.close, list[int]()
    children: list[Child] = []

    def close_and_fork(fd: int) -> None:
        close(fd)
        closed.append(fd)
        if len(closed) == 1:
            assert os.open(tmp_path, os.O_RDONLY | os.O_CLOEXEC) == fd
            children.append(start(lambda pipe: (os.fstat(fd).st_ino, broker.queue_names())))

    monkeypatch.setattr(os, "close", close_and_fork)
    release()
    monkeypatch.undo()
    assert children[0].ends() == (tmp_path.stat().st_ino, ["q", "q.dlq"])
    os.close(closed[0])
    broker.close()
