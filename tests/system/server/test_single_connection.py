"""A connection that is the only one is waited for; it keeps nobody else waiting."""

from __future__ import annotations

import threading

import pytest

import shmq
from tests.support.server import serve

pytestmark = pytest.mark.prove


def test_one_who_asks_without_a_pause_keeps_no_other_waiting(namespace: str) -> None:
    with serve(namespace, workers=1) as server, shmq.connect(server.url) as busy:
        jobs = busy.create_queue("jobs")
        stopped = threading.Event()

        def hurry() -> None:
            while not stopped.is_set():
                jobs.put("x")
                jobs.get().ack()

        thread = threading.Thread(target=hurry)
        thread.start()
        try:
            for _ in range(20):
                with shmq.connect(server.url) as other:
                    assert other.list_queues()
                    other.queue("jobs").put("y")
        finally:
            stopped.set()
            thread.join()
        with shmq.connect(namespace) as here:
            assert here.queue("jobs").stats().put >= 20


def test_one_who_falls_silent_is_read_from_when_it_speaks_again(namespace: str) -> None:
    with serve(namespace, workers=1) as server, shmq.connect(server.url) as broker:
        jobs = broker.create_queue("jobs")
        for pause in (0.0, 0.0001, 0.001, 0.02, 0.1):
            for _ in range(30):
                jobs.put("x")
            assert jobs.qsize() > 0
            assert not threading.Event().wait(pause)
        assert jobs.purge() == 150
