"""Sessions of leases: when they end, and what returns then."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import shmq
from shmq.extras.console.access import Access, Sessions
from shmq.extras.console.api.leases import lease
from shmq.extras.console.context import Console
from shmq.extras.console.leases import IDLE, LeaseBook, LeaseSession
from shmq.extras.console.observer import History, ObserverThread
from shmq.extras.console.settings import ConsoleSettings
from tests.support.waiting import eventually


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(broker: shmq.Broker, clock: Clock) -> LeaseBook:
    return LeaseBook(broker, clock)


def take(book: LeaseBook, session: LeaseSession) -> None:
    receipt = book.queue(session, "orders").get(False).receipt
    session.held.setdefault("orders", set()).add(receipt)


def test_an_idle_session_ends_though_nobody_calls(
    broker: shmq.Broker, book: LeaseBook, clock: Clock
) -> None:
    observer = ObserverThread(broker, History())
    Console(
        settings=ConsoleSettings(),
        broker=broker,
        access=Access([]),
        sessions=Sessions(),
        observer=observer,
        leases=book,
    )
    with broker.create_queue("orders") as orders:
        orders.put("tea")
        with book.session("anyone") as session:
            take(book, session)
        observer.start()
        try:
            observer.latest()
            assert orders.qsize() == 0
            clock.now = IDLE
            eventually(lambda: orders.qsize() == 1, "the message returns")
        finally:
            observer.stop()


def test_what_a_call_leases_while_its_session_is_ended_returns_after_the_call(
    broker: shmq.Broker, book: LeaseBook
) -> None:
    with broker.create_queue("orders") as orders:
        orders.put("tea")
        orders.put("coffee")
        with book.session("anyone") as session:
            take(book, session)
            assert book.end(session.id, "anyone") == 1
            handle = book.queue(session, "orders")
            take(book, session)
            with pytest.raises(shmq.LeaseExpired, match="has ended"):
                session.check()
            assert orders.qsize() == 1
        assert orders.qsize() == 2
        with pytest.raises(shmq.ShmqError, match="is closed"):
            handle.stats()
        with pytest.raises(shmq.LeaseExpired), book.session("anyone", session.id):
            raise AssertionError


def test_what_is_leased_before_an_error_is_held_by_its_session(
    broker: shmq.Broker, book: LeaseBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    call: Any = SimpleNamespace(console=SimpleNamespace(leases=book, ending=threading.Event()))
    with broker.create_queue("orders") as orders, book.session("anyone") as session:
        for number in range(3):
            orders.put(number)
        queue = book.queue(session, "orders")
        get = queue.get

        def get_two(*what: Any, **how: Any) -> Any:
            if orders.stats().in_flight == 2:
                raise shmq.LockTimeout("held by a stopped process")
            return get(*what, **how)

        found = SimpleNamespace(get=get_two)
        monkeypatch.setattr(book, "queue", lambda *_: found)
        assert len(lease(call, session, "orders", 3, 0, None)) == 2
        assert len(session.held["orders"]) == 2


def test_a_session_ends_by_its_own_caller_alone(broker: shmq.Broker, book: LeaseBook) -> None:
    with book.session("anna") as session:
        assert book.end(session.id, "berta") == 0
        assert not session.ended
    with pytest.raises(shmq.LeaseExpired), book.session("berta", session.id):
        raise AssertionError
