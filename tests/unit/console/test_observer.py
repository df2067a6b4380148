"""The thread that looks at everything."""

from __future__ import annotations

import threading

import shmq
from shmq.console.history import History
from shmq.console.observer import ObserverThread
from shmq.diagnose.activity import Observation
from tests.support.processes import PATIENCE


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
