"""Locks over HTTP, and their page: holders, waiters, and a holder that is stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

import shmq
from shmq.server.config.tokens import make_token
from tests.conformance.tools import in_thread, outcome
from tests.support.browser import Page, open_page
from tests.support.console import Console, console
from tests.support.lock_holder import holding
from tests.support.processes import is_stopped
from tests.support.waiting import eventually


@pytest.fixture
def holder(place: str) -> Iterator[int]:
    """The pid of a process that holds the lock ``report``."""
    with holding(place, "report") as pid:
        yield pid


def text_of(site: Console) -> str:
    answer = open_page(site, "/locks")
    assert answer.status == 200
    return Page(answer.content.decode()).text


def test_without_locks_the_page_says_how_to_make_one(site: Console) -> None:
    assert site.api("GET", "/locks").json == {"items": [], "next": None}
    assert 'A program makes one with broker.lock("name")' in text_of(site)


def test_holders_and_waiters_are_shown_and_a_stopped_holder_is_marked(
    site: Console, shop: shmq.Broker, holder: int
) -> None:
    lock, licences = shop.lock("report"), shop.semaphore("licences", 3)
    waiting = in_thread(lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1, "it waits")
    with licences, licences:
        free, held = site.api("GET", "/locks").json["items"]
        assert (free["name"], free["kind"], free["permits"], free["held"]) == (
            "licences", "semaphore", 3, 2,
        )  # fmt: skip
        assert {one["pid"] for one in free["holders"]} == {os.getpid()}
        assert (held["waiting"], held["stopped"]) == (1, 0)
        assert held["holders"][0]["pid"] == holder
        assert held["holders"][0]["stopped"] is False
        shown = text_of(site)
        assert "report lock 1 of 1 holds" in shown
        assert "report lock 1 of 1 waits" in shown
        assert "licences semaphore 2 of 3 holds" in shown
        assert "stopped" not in shown

    os.kill(holder, signal.SIGSTOP)
    eventually(lambda: is_stopped(holder), "it is stopped")
    (found,) = site.api("GET", "/locks", where="stopped > 0").json["items"]
    assert found["name"] == "report"
    shown = text_of(site)
    assert "Lock report is held by a process that is stopped; 1 waits for it" in shown
    assert f"kill -CONT {holder}" in shown
    assert "licences semaphore 0 of 3 free" in shown
    os.kill(holder, signal.SIGKILL)
    assert outcome(waiting) is True
    lock.release()


def test_a_caller_sees_the_locks_of_its_names(place: str, shop: shmq.Broker) -> None:
    token = make_token()
    tokens = {token: {"consume": ["lock::report"]}}
    with console(place, tokens=tokens) as site, shop.lock("report"), shop.lock("secret"):
        site.headers["Authorization"] = f"Bearer {token}"
        items = site.api("GET", "/locks").json["items"]
        assert [one["name"] for one in items] == ["report"]
