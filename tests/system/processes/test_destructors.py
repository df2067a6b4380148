"""The collector runs destructors anywhere, in the middle of whatever their thread is at."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.host.namespace.namespace import Namespace
from shmq.mp.store import Store
from tests.support.processes import SHM, files_of
from tests.support.waiting import PATIENCE


def garbage(what: object) -> None:
    """Leave it to the collector: it holds itself."""
    what.__dict__["itself"] = what


def within(operation: Callable[[], object]) -> bool:
    """Whether it ends; in a thread, so that one that waits for itself is seen."""
    thread = threading.Thread(target=operation, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_a_reply_queue_may_be_dropped_while_a_namespace_is_first_named(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LocalBroker(namespace)
    garbage(broker._make_reply_queue())
    real = threading.RLock

    def collect() -> Any:
        gc.collect()
        return real()

    monkeypatch.setattr("shmq.fork_safe.threading.RLock", collect)

    assert within(lambda: Namespace.of(f"{namespace}-other"))
    broker.close()
    assert files_of(namespace) == []


def test_what_is_dropped_under_the_registry_lock_is_removed_behind_it(namespace: str) -> None:
    broker = LocalBroker(namespace)
    queue = broker._make_reply_queue()
    name = queue.name
    garbage(queue)
    del queue

    with broker._namespace.locked():
        gc.collect()
        assert broker.has_queue(name)
        assert (SHM / f"shmq@{namespace}").exists(), "the lock that is held is of this file"
    assert files_of(namespace) == []
    broker.close()


def test_what_is_dropped_while_another_thread_is_in_a_section_is_done_by_that_one(
    namespace: str,
) -> None:
    found = Namespace.of(namespace)
    begun, end = threading.Event(), threading.Event()
    done: list[str] = []

    def stay() -> None:
        with found.locked():
            begun.set()
            end.wait(PATIENCE)

    thread = threading.Thread(target=stay, name="stays")
    thread.start()
    begun.wait(PATIENCE)
    assert within(
        lambda: found.processes.run_when_unlocked(
            lambda: done.append(threading.current_thread().name)
        )
    )
    assert done == []
    end.set()
    thread.join(PATIENCE)
    assert done == ["stays"]
    found.retire()


def test_what_was_left_is_done_in_order_and_what_it_leaves_as_well(namespace: str) -> None:
    found = Namespace.of(namespace)
    done: list[int] = []

    with found.locked():
        found.processes.run_when_unlocked(lambda: done.append(1))
        found.processes.run_when_unlocked(
            lambda: found.processes.run_when_unlocked(lambda: done.append(3))
        )
        found.processes.run_when_unlocked(lambda: done.append(2))
        assert done == []
    assert done == [1, 2, 3]
    found.processes.run_when_unlocked(lambda: done.append(4))
    assert done[-1] == 4
    with pytest.raises(KeyError), found.locked():
        found.processes.run_when_unlocked(lambda: done.append(5))
        raise KeyError
    assert done[-1] == 5
    found.retire()


def test_the_last_queue_may_be_dropped_while_another_one_is_made(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_MP_NAMESPACE", namespace)
    garbage(Store.create(1))
    real = Store._make.__func__  # type: ignore[attr-defined]

    def make(kind: type[Store], *arguments: object) -> Store:
        gc.collect()
        return real(kind, *arguments)  # type: ignore[no-any-return]

    monkeypatch.setattr(Store, "_make", classmethod(make))
    store = Store.create(1)

    assert Namespace.of(namespace).processes.is_alive(
        Namespace.of(namespace).processes.own_number()
    )
    assert (SHM / f"shmq@{namespace}").exists()
    store.close()
    assert files_of(namespace) == []


def test_a_member_that_is_dropped_leaves_its_group(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        stream = broker.create_stream("events", 1)
        garbage(stream.group("g").join())
        gc.collect()
        assert stream.group("g").members() == []
        share = stream.share("s")
        garbage(share)
        del share
        gc.collect()
        assert [group.members for group in stream.groups()] == [0, 0]
