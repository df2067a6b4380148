"""The counters of exchanges: several processes, deaths, and files that cannot be used."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import ExchangeStats
from shmq.client.local.broker import LocalBroker
from shmq.host.namespace.namespace import Namespace
from shmq.model.routing import counters
from shmq.model.routing.book import Book
from shmq.native import _core
from tests.support.waiting import eventually

NOTHING = ExchangeStats(published=0, unrouted=0)
NOT_COUNTED = ExchangeStats(published=None, unrouted=None)


@pytest.fixture
def broker(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


@pytest.fixture
def path(namespace: str) -> Path:
    return Path(f"/dev/shm/exchanges.shmq@{namespace}@counts")


def stats_of(namespace: str, name: str = "x") -> ExchangeStats:
    """What another process would read."""
    return Book(Namespace.of(namespace)).stats(name)


def fork(work: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def test_processes_that_publish_at_once_lose_no_count(broker: LocalBroker, namespace: str) -> None:
    exchange = broker.create_exchange("x", "fanout")

    def work() -> None:
        for n in range(2000):
            exchange.publish(b"x")
            if n % 100 == 0:  # every process reads the file again
                broker.create_exchange(f"{os.getpid()}.{n}", "fanout")

    for pid in [fork(work) for _ in range(3)]:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    assert exchange.stats() == ExchangeStats(published=6000, unrouted=6000)


def test_counts_survive_the_death_of_every_process(namespace: str) -> None:
    def work() -> None:
        exchange = LocalBroker(namespace).create_exchange("x", "topic")
        while True:
            exchange.publish(b"x", "a")

    pid = fork(work)
    counted = counters.Counters

    def has_published() -> bool:
        found = counted.open(Path(f"/dev/shm/exchanges.shmq@{namespace}@counts"))
        return found is not None and (found.read("x").published or 0) > 100

    eventually(has_published, "the child has published")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    with LocalBroker(namespace) as broker:
        before = broker.exchange("x").stats()
        assert before.published is not None
        assert before.unrouted in {before.published - 1, before.published}
        broker.exchange("x").publish(b"x")
        assert broker.exchange("x").stats().published == before.published + 1


def test_the_file_is_private_and_is_removed_with_the_last_exchange(
    broker: LocalBroker, path: Path
) -> None:
    for name in ("x", "y"):
        broker.create_exchange(name)
    assert path.stat().st_mode & 0o777 == 0o600
    broker.delete_exchange("x")
    assert path.exists()
    broker.delete_exchange("y")
    assert not path.exists()


def test_counts_are_kept_when_the_table_is_rewritten(broker: LocalBroker, namespace: str) -> None:
    broker.create_queue("q", dead_letter=None)
    exchange = broker.create_exchange("x", "topic")
    exchange.publish(b"x")
    for n in range(600):
        exchange.bind("q", f"key.{n}")
        exchange.unbind("q", f"key.{n}")
    exchange.publish(b"x")

    assert exchange.stats() == stats_of(namespace) == ExchangeStats(published=2, unrouted=2)


def test_a_death_at_any_point_leaves_exchanges_that_count_from_0(
    broker: LocalBroker, namespace: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_exchange("other", "fanout").publish(b"x")
    for k in itertools.count():

        def work(k: int = k) -> None:
            marks = itertools.count()
            monkeypatch.setattr(_core, "mark", lambda: next(marks) == k and os._exit(9))
            exchange = broker.create_exchange("x", "fanout")
            exchange.publish(b"x")
            broker.delete_exchange("x")
            broker.create_exchange("x", "fanout")

        code = os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])

        if any(one.name == "x" for one in broker.list_exchanges()):
            broker.delete_exchange("x")
        exchange = broker.create_exchange("x", "fanout")
        assert exchange.stats() == stats_of(namespace) == NOTHING
        broker.delete_exchange("x")
        assert stats_of(namespace, "other") == ExchangeStats(published=1, unrouted=1)
        if code == 0:
            break
    assert k > 6
    broker.delete_exchange("other")
    assert not path.exists()


def test_a_file_that_a_dead_process_has_left_is_removed(namespace: str, path: Path) -> None:
    counters.Counters.assign(path, "x", lambda _: False)
    assert path.exists()
    with LocalBroker(namespace) as broker:
        broker.create_queue("q", dead_letter=None)
    with LocalBroker(namespace) as broker:
        broker.delete_queue("q")
    assert not path.exists()


def test_more_exchanges_than_slots_are_not_counted_and_deleted_ones_leave_theirs(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_SLOTS", 2)
    monkeypatch.setattr(counters, "_SIZE", 3 * 128)
    made = [broker.create_exchange(name, "fanout") for name in ("a", "b", "c")]
    for exchange in made:
        assert exchange.publish(b"x").delivered == 0
    assert [one.stats().unrouted for one in made] == [1, 1, None]
    assert [one.unrouted for one in broker.list_exchanges()] == [1, 1, None]

    broker.delete_exchange("a")
    broker.delete_exchange("c")
    again = broker.create_exchange("c", "fanout")
    assert again.stats() == NOTHING
    again.publish(b"x")
    assert [one.stats().unrouted for one in (made[1], again)] == [1, 1]


def test_without_space_nothing_is_counted(
    broker: LocalBroker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_exchange("x", "fanout")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        counters.Counters.assign(path, "y", lambda _: True)
        path.unlink()
        counters.Counters.assign(path, "y", lambda _: True)

    exchange = broker.create_exchange("y", "fanout")
    assert exchange.publish(b"x").delivered == 0
    assert exchange.stats() == ExchangeStats(published=1, unrouted=1)
    assert broker.exchange("x").publish(b"x").delivered == 0
    assert broker.exchange("x").stats() == NOT_COUNTED


def damage(path: Path, content: bytes, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def replace(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda path: path.unlink(),
        lambda path: damage(path, b"?", 0),
        lambda path: damage(path, b"\2", 4),
        lambda path: damage(path, b"\xff" * 8, 8),
        lambda path: damage(path, b"\xff" * 128, 128 + 16),
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, 4096),
        lambda path: path.chmod(0o644),
        lambda path: replace(path, lambda name: name.symlink_to("/dev/zero")),
        lambda path: replace(path, os.mkfifo),
        lambda path: replace(path, os.mkdir),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_counting_and_nothing_else(
    namespace: str, path: Path, break_it: Any
) -> None:
    with LocalBroker(namespace) as broker:
        broker.create_exchange("x", "fanout").publish(b"x")
    break_it(path)

    with LocalBroker(namespace) as broker:
        exchange = broker.exchange("x")
        assert exchange.publish(b"x").delivered == 0
        with pytest.raises(shmq.Unroutable):
            exchange.publish(b"x", mandatory=True)
        assert exchange.stats() == NOT_COUNTED
        assert broker.create_exchange("y", "fanout").publish(b"x").delivered == 0
        if path.is_dir():
            path.rmdir()


def test_every_damaged_byte_of_a_slot_changes_numbers_at_most(namespace: str, path: Path) -> None:
    with LocalBroker(namespace) as broker:
        broker.create_exchange("x", "fanout")
    for at in range(160):
        broken = bytearray(path.read_bytes())
        broken[at] ^= 0x10
        path.write_bytes(broken)
        with LocalBroker(namespace) as broker:
            assert broker.exchange("x").publish(b"x").delivered == 0
            broker.exchange("x").stats()
        broken[at] ^= 0x10
        path.write_bytes(broken)
