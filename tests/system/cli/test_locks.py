"""``shmq locks``, and lists that do not show the queues of locks."""

from __future__ import annotations

import shmq
from tests.conformance.tools import in_thread, outcome
from tests.support.waiting import eventually
from tests.system.cli.conftest import Quick


def test_locks_are_listed_with_holders_and_waiters(quick: Quick, broker: shmq.Broker) -> None:
    assert "has no locks" in quick("locks").error
    lock, semaphore = broker.lock("a"), broker.semaphore("s", 3)
    assert [row["holders"] for row in quick("locks", "--json").json] == [[], []]
    assert quick("locks").text.split("\n")[1].split()[:3] == ["a", "lock", "free"]
    with lock, semaphore:
        waiting = in_thread(lock.acquire)
        eventually(lambda: len(lock.waiters()) == 1, "it waits")
        one, two = quick("locks", "--json").json
        assert (one["name"], one["kind"], one["permits"]) == ("a", "lock", 1)
        assert one["holders"][0]["pid"] == one["waiters"][0]["pid"]
        assert (two["kind"], two["permits"], two["waiters"]) == ("semaphore", 3, [])
        shown = quick("locks").text
        assert "holds" in shown
        assert "waits" in shown
        assert "semaphore of 3" in shown
        assert quick("list", "--json").json == []
        assert quick("list", "--names").text == ""
        assert "::" not in quick("stats").text
        quick("doctor")
        quick("fsck")
    assert outcome(waiting) is True
    lock.release()
