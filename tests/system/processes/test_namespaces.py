"""The namespace's file: made with the first queue, gone with the last, and made again."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.host.namespace.namespace import Namespace
from shmq.server.config.settings import Settings
from tests.support.processes import HOUR, SHM, Start, attached, drain, files_of, is_empty


def test_connecting_and_looking_make_nothing(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        assert broker.list_queues() == []
        with pytest.raises(shmq.NoSuchQueue):
            broker.queue("q")

    assert files_of(namespace) == []


def test_without_a_name_the_namespace_is_the_environments(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_NAMESPACE", namespace)

    assert shmq.connect().namespace == namespace
    assert shmq.connect(None).namespace == namespace
    assert shmq.connect("another").namespace == "another"


@pytest.mark.parametrize("variable", [None, ""])
def test_without_a_name_or_a_variable_the_namespace_is_the_users_own(
    monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    monkeypatch.delenv("SHMQ_NAMESPACE", raising=False)
    if variable is not None:
        monkeypatch.setenv("SHMQ_NAMESPACE", variable)

    assert shmq.connect().namespace == f"default-{os.geteuid()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_two_users_of_a_host_do_not_meet_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHMQ_NAMESPACE", raising=False)
    own = shmq.connect().namespace
    os.seteuid(65534)
    try:
        other = shmq.connect().namespace
    finally:
        os.seteuid(0)

    assert (own, other) == ("default-0", "default-65534")


def test_a_name_in_the_environment_that_is_not_allowed_says_where_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHMQ_NAMESPACE", "no spaces")

    with pytest.raises(shmq.InvalidName, match=r"no spaces.*SHMQ_NAMESPACE"):
        shmq.connect()


#: Names that as a directory are another one than a namespace's own.
ELSEWHERE = [".", "..", "/", "../other", "a/b/c", ""]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_name_that_is_a_path_names_no_namespace(name: str) -> None:
    with pytest.raises(shmq.InvalidName, match="invalid namespace"):
        shmq.connect(name)
    with pytest.raises(shmq.InvalidName, match="invalid namespace"):
        Settings(namespace=name)


@pytest.mark.parametrize("name", [5, b"default", ["a"]])
def test_a_namespace_that_is_no_str_is_a_type_error(name: Any) -> None:
    with pytest.raises(TypeError, match=type(name).__name__):
        shmq.connect(name)


def test_the_file_goes_with_the_last_queue(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("a", dead_letter=None)
        broker.create_queue("b", dead_letter=None)
        broker.delete_queue("a")
        assert f"shmq@{namespace}" in files_of(namespace)
        broker.delete_queue("b")

    assert files_of(namespace) == []


def test_the_file_stays_as_long_as_another_process_is_there(namespace: str, start: Start) -> None:
    def make(pipe: Connection) -> None:
        with shmq.connect(namespace) as broker:
            broker.create_queue("q", dead_letter=None)
            pipe.send("made")
            pipe.recv()
            broker.delete_queue("q")

    def attach(pipe: Connection) -> None:
        with shmq.connect(namespace) as broker:
            broker.queue("q").put(b"1")
            pipe.send("attached")
            pipe.recv()

    maker = start(make)
    maker.hear()
    other = start(attach)
    other.hear()
    maker.tell()
    maker.ends()
    assert files_of(namespace) == [f"shmq@{namespace}"]

    other.tell()
    other.ends()

    assert files_of(namespace) == []


def test_a_process_goes_on_in_a_namespace_that_was_removed_and_made_again(
    namespace: str, broker: Broker, start: Start
) -> None:
    old = broker.create_queue("q", dead_letter=None)
    old.put(b"old")
    broker.delete_queue("q")
    assert files_of(namespace) == []

    def make(pipe: Connection) -> None:
        with shmq.connect(namespace) as mine:
            queue = mine.create_queue("q", dead_letter=None, visibility_timeout=HOUR)
            queue.put_many([b"1", b"2"])
            pipe.send("made")
            pipe.recv()
            assert [message.body for message in queue.get_many(5)] == [b"2"]
            pipe.send("leased")
            pipe.recv()

    child = start(make)
    child.hear()
    queue = broker.queue("q")
    mine = queue.get_nowait()
    child.tell()
    child.hear()
    assert attached(queue) == sorted([os.getpid(), child.pid])
    with pytest.raises(shmq.QueueDeleted):
        old.get_nowait()

    child.kill()

    theirs = queue.get_nowait()
    assert (mine.body, theirs.body, theirs.delivery_count) == (b"1", b"2", 2)
    assert queue.ack_many([mine, theirs]) == []
    is_empty(queue)


def test_a_process_that_was_there_before_is_not_taken_for_dead_after(
    namespace: str, start: Start
) -> None:
    """Numbers of processes are never used twice, not even in a new file."""

    def come_back(pipe: Connection) -> str:
        broker = shmq.connect(namespace)
        for _ in range(5):
            broker.create_queue("q", dead_letter=None)
            broker.delete_queue("q")
        pipe.send("gone")
        pipe.recv()
        queue = broker.queue("q")
        message = queue.get_nowait()
        pipe.send("leased")
        pipe.recv()
        message.ack()
        return "acknowledged"

    child = start(come_back)
    child.hear()
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q", dead_letter=None, visibility_timeout=HOUR)
        queue.put(b"1")
        child.tell()
        child.hear()
        for _ in range(3):
            assert queue.get_many(1, block=False) == []
        child.tell()
        assert child.ends() == "acknowledged"
        is_empty(queue)


@pytest.mark.prove
def test_numbers_of_processes_are_never_used_twice(namespace: str, start: Start) -> None:
    def number(pipe: Connection) -> int:
        with shmq.connect(namespace) as broker:
            broker.create_queue("q", dead_letter=None)
            used = Namespace.of(namespace).processes.own_number()
            broker.delete_queue("q")
            return used

    numbers = [start(number).ends() for _ in range(20)]

    assert numbers == sorted(set(numbers))


def test_handles_of_one_broker_outlive_another_of_the_same_process(broker: Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put(b"1")
    message = queue.get()

    with shmq.connect(broker.namespace) as other:
        other.queue("q").put(b"2")

    assert attached(queue) == [os.getpid()]
    message.ack()
    assert drain(queue) == [b"2"]


def test_closing_a_broker_does_not_let_its_process_be_taken_for_dead(
    namespace: str, broker: Broker, start: Start
) -> None:
    """Closing any descriptor of a file gives up every lock that the process has on it."""
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put(b"1")
    message = queue.get()
    with shmq.connect(namespace) as other:
        other.create_queue("another", dead_letter=None)
        other.delete_queue("another")

    def look(pipe: Connection) -> int:
        with shmq.connect(namespace) as mine:
            return len(mine.queue("q").get_many(1, block=False))

    assert start(look).ends() == 0
    message.ack()


def test_namespaces_do_not_see_each_other(namespace: str) -> None:
    names = [namespace, f"{namespace}.x", f"{namespace}-q", f"x{namespace}"]
    brokers = [shmq.connect(name) for name in names]
    for broker in brokers:
        broker.create_queue("q", dead_letter=None).put(broker.namespace)
        broker.create_queue(f"only-{broker.namespace}", dead_letter=None)

    for broker in brokers:
        listed = [summary.name for summary in broker.list_queues()]
        assert listed == sorted(["q", f"only-{broker.namespace}"])
        assert drain(broker.queue("q")) == [broker.namespace]
        for name in listed:
            broker.delete_queue(name)
        broker.close()
    assert files_of(namespace) == []


@pytest.mark.parametrize("name", ["a", "a.b_c:d-e", "A" * 100, "0", "...", ".a"])
def test_every_name_that_is_allowed_names_a_file_of_its_own(namespace: str, name: str) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue(name, dead_letter=None)
        queue.put(b"1")
        assert drain(broker.queue(name)) == [b"1"]
        assert [summary.name for summary in broker.list_queues()] == [name]
        assert (SHM / f"shmq@{namespace}@{name}").is_file()
        broker.delete_queue(name)

    assert files_of(namespace) == []


def test_the_longest_namespace_with_the_longest_name_has_room(namespace: str) -> None:
    longest = namespace.ljust(100, "x")
    with shmq.connect(longest) as broker:
        queue = broker.create_queue("q" * 100, dead_letter=None)
        queue.put(b"1")
        assert drain(queue) == [b"1"]
        broker.delete_queue("q" * 100)

    assert files_of(namespace) == []
