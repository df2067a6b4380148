"""The file of the exchanges: what dies, is damaged, or is changed by another process."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmq
from shmq.api import Binding
from shmq.client.local.broker import LocalBroker
from shmq.host.namespace.namespace import Namespace
from shmq.model.routing.book import Book
from shmq.native import _core

BEGIN = 64


@pytest.fixture
def broker(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


@pytest.fixture
def path(namespace: str) -> Path:
    return Namespace.of(namespace).exchanges_path


@pytest.fixture
def exchange(broker: LocalBroker) -> shmq.Exchange:
    """A topic exchange that is bound to one queue."""
    broker.create_queue("q", dead_letter=None)
    exchange = broker.create_exchange("x", "topic")
    exchange.bind("q", "a.#")
    return exchange


def another(namespace: str) -> Book:
    """What another process would have."""
    return Book(Namespace.of(namespace))


def keys(book: Book, name: str = "x") -> list[str]:
    with book.table() as table:
        return [binding.key for binding in table.bindings(name)]


def in_child(work: Callable[[], object]) -> int:
    """Run it in a forked child: the exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_there_is_no_file_before_the_first_exchange_and_after_the_last(
    broker: LocalBroker, path: Path
) -> None:
    assert broker.list_exchanges() == []
    assert not path.exists()
    for name in ("x", "y"):
        broker.create_exchange(name)
    assert path.stat().st_mode & 0o777 == 0o600
    broker.delete_exchange("x")
    assert path.exists()
    broker.delete_exchange("y")
    assert not path.exists()


def test_exchanges_stay_when_queues_and_processes_go(namespace: str) -> None:
    with LocalBroker(namespace) as maker:
        maker.create_queue("q", dead_letter=None)
        maker.create_exchange("x", "fanout").bind("q")
        maker.delete_queue("q")

    with LocalBroker(namespace) as broker:
        assert [each.name for each in broker.list_exchanges()] == ["x"]
        assert broker.exchange("x").bindings() == []


def test_a_change_of_another_process_is_seen_at_once(
    exchange: shmq.Exchange, namespace: str
) -> None:
    other = another(namespace)
    assert keys(other) == ["a.#"]

    assert in_child(lambda: exchange.bind("q", "of.a.child")) == 0

    assert keys(other) == ["a.#", "of.a.child"]
    assert exchange.publish(b"x", "of.a.child").delivered == 1


def test_a_reader_that_came_before_the_file_finds_it(broker: LocalBroker, namespace: str) -> None:
    other = another(namespace)
    with other.table() as table:
        assert table.summaries() == []

    broker.create_exchange("x")
    assert keys(other) == []
    broker.delete_exchange("x")
    with other.table() as table:
        assert table.summaries() == []
    broker.create_exchange("y")
    assert keys(other, "y") == []


def test_what_was_undone_takes_no_space_for_ever(
    exchange: shmq.Exchange, namespace: str, path: Path
) -> None:
    other = another(namespace)
    assert keys(other) == ["a.#"]

    for n in range(3000):
        exchange.bind("q", f"key.{n}")
        exchange.unbind("q", f"key.{n}")

    assert path.stat().st_size < 100_000
    assert keys(other) == ["a.#"]
    assert exchange.bindings() == [Binding("q", "queue", "a.#")]


def test_processes_that_bind_at_once_lose_no_binding(
    exchange: shmq.Exchange, broker: LocalBroker
) -> None:
    def bind(child: int) -> None:
        for n in range(100):
            exchange.bind("q", f"{child}.{n}")

    pids = []
    for child in range(3):
        pid = os.fork()
        if not pid:
            try:
                bind(child)
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0

    assert len(exchange.bindings()) == 301


@pytest.mark.parametrize("many", [False, True], ids=["appended", "written again"])
def test_a_death_at_any_point_leaves_the_change_made_or_not(
    exchange: shmq.Exchange, namespace: str, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    if many:
        monkeypatch.setattr("shmq.model.routing.book._LEAST_TO_SHORTEN", -100)
    for k in itertools.count():

        def work(k: int = k) -> None:
            marks = itertools.count()
            monkeypatch.setattr(_core, "mark", lambda: next(marks) == k and os._exit(9))
            exchange.bind("q", f"b.{k}")
            exchange.unbind("q", f"b.{k}")

        code = in_child(work)

        before = keys(another(namespace))
        assert exchange.bind("q", f"after.{k}")
        assert set(keys(another(namespace))) == {*before, f"after.{k}"}
        assert {binding.key for binding in exchange.bindings()} == {*before, f"after.{k}"}
        assert exchange.publish(b"x", f"after.{k}").delivered == 1
        if code == 0:
            break
    assert k > 3


def test_a_death_in_the_making_and_removing_of_the_file_leaves_nothing_bad(
    broker: LocalBroker, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in itertools.count():

        def work(k: int = k) -> None:
            marks = itertools.count()
            monkeypatch.setattr(_core, "mark", lambda: next(marks) == k and os._exit(9))
            broker.create_exchange("x")
            broker.delete_exchange("x")

        code = in_child(work)

        assert broker.ensure_exchange("x").name == "x"
        assert broker.create_exchange("y").name == "y"
        broker.delete_exchange("x")
        assert [each.name for each in broker.list_exchanges()] == ["y"]
        broker.delete_exchange("y")
        if code == 0:
            break
    assert k > 3


def test_what_was_written_behind_the_end_is_not_there(
    exchange: shmq.Exchange, namespace: str, path: Path
) -> None:
    with path.open("ab") as file:
        file.write(b"what a dead writer had begun" * 10)

    assert keys(another(namespace)) == ["a.#"]
    exchange.bind("q", "b")
    assert keys(another(namespace)) == ["a.#", "b"]


def test_every_damaged_byte_is_noticed_or_changes_nothing(
    exchange: shmq.Exchange, namespace: str, path: Path
) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        try:
            assert keys(another(namespace)) == ["a.#"], at
        except shmq.SegmentError as error:
            assert str(path) in str(error)
            assert "remove it" in str(error)
        else:
            assert at in range(16, BEGIN), at
    path.write_bytes(whole)


@pytest.mark.parametrize("size", [0, 10, BEGIN - 1, BEGIN, BEGIN + 5])
def test_a_file_that_was_cut_off_is_refused(
    exchange: shmq.Exchange, namespace: str, path: Path, size: int
) -> None:
    whole = path.read_bytes()
    os.truncate(path, size)

    with pytest.raises(shmq.DamagedSegment, match="damaged at byte"):
        keys(another(namespace))
    path.write_bytes(whole)


def test_a_file_of_another_version_is_refused(
    exchange: shmq.Exchange, namespace: str, path: Path
) -> None:
    with path.open("r+b") as file:
        file.seek(4)
        file.write(struct.pack("<I", 2))

    with pytest.raises(shmq.IncompatibleSegment, match="version 2"):
        keys(another(namespace))
    with path.open("r+b") as file:
        file.seek(4)
        file.write(struct.pack("<I", 1))


def test_a_file_that_others_may_touch_is_refused(
    exchange: shmq.Exchange, namespace: str, path: Path
) -> None:
    path.chmod(0o644)

    with pytest.raises(shmq.ForeignSegment, match="0644"):
        keys(another(namespace))
    path.chmod(0o600)


def test_a_link_is_not_followed(namespace: str, path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")

    with LocalBroker(namespace) as broker, pytest.raises(shmq.SegmentError):
        broker.create_exchange("x")
    assert not (tmp_path / "elsewhere").exists()
    path.unlink()


def test_a_queue_can_be_deleted_although_the_table_is_damaged(
    exchange: shmq.Exchange, namespace: str, path: Path
) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")

    def delete() -> None:
        with LocalBroker(namespace) as broker:
            Book.of(Namespace.of(namespace)).after_fork()
            broker.delete_queue("q")

    assert in_child(delete) == 0
    path.write_bytes(whole)
    assert exchange.bindings() == [Binding("q", "queue", "a.#")]
    with pytest.raises(shmq.Unroutable):  # the queue is not there, and forgotten now
        exchange.publish(b"x", "a", mandatory=True)
    assert exchange.bindings() == []
