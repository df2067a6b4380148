"""The thread that looks at everything."""

from __future__ import annotations

import threading

import shmq
from shmq.extras.console.observer import History, ObserverThread
from shmq.host.diagnose.activity import Observation
from tests.support.waiting import PATIENCE


def test_a_listener_that_fails_ends_neither_the_thread_nor_the_others(broker: shmq.Broker) -> None:
    observer = ObserverThread(broker, History())
    heard = threading.Semaphore(0)

    def fail(_: Observation) -> None:
        raise ValueError("a fault")

    observer.listen(fail)
    observer.listen(lambda _: heard.release())
    observer.start()
    try:
        assert heard.acquire(timeout=PATIENCE)
        assert heard.acquire(timeout=PATIENCE), "the second look"
    finally:
        observer.stop()


def test_what_was_seen_long_ago_is_called_old(broker: shmq.Broker) -> None:
    now = [0.0]
    observer = ObserverThread(broker, History(), lambda: now[0])
    assert observer.old() is None
    seen = threading.Event()
    observer.listen(lambda _: seen.set())
    observer.start()
    assert seen.wait(PATIENCE)
    observer.stop()
    assert observer.old() is None
    now[0] = 60.0
    assert observer.old() == "nothing was seen for 60 s: a look still runs"
