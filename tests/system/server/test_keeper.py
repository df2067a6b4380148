"""The keeper does what is due in queues that no other process touches."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq.api import Broker
from shmq.client.local.broker import LocalBroker
from shmq.native import _core
from shmq.server.keeper import Keeper

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def clock() -> Iterator[int]:
    """The real time, standing still for this process's queue operations."""
    now = time.monotonic_ns()
    _core.set_clock(now)
    yield now
    _core.set_clock(None)


def test_dead_letters_move_although_only_their_own_queue_is_looked_at(
    broker: Broker, clock: int
) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=1, visibility_timeout=5)
    dead_letter_queue = broker.queue("jobs.dlq")
    jobs.put(b"x")
    jobs.get()
    keeper = Keeper(broker.namespace)

    _core.set_clock(clock + 6 * SECOND)
    before = dead_letter_queue.qsize()
    keeper.tend()

    assert (before, dead_letter_queue.qsize()) == (0, 1)
    keeper.close()


def test_a_queue_that_is_made_or_deleted_meanwhile_is_kept_or_forgotten(broker: Broker) -> None:
    broker.create_queue("old", dead_letter=None)
    keeper = Keeper(broker.namespace)
    keeper.tend()
    broker.delete_queue("old")
    young = broker.create_queue("young", dead_letter=None)
    keeper._look_around_at = 0.0

    keeper.tend()

    assert len(young.attachments()) == 2
    assert list(keeper._queues) == ["young"]
    keeper.close()


def test_it_runs_until_it_is_stopped(broker: LocalBroker) -> None:
    queue = broker.create_queue("jobs", dead_letter=None)
    keeper = Keeper(broker.namespace, interval=0.001)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    while len(queue.attachments()) < 2:
        time.sleep(0.001)

    keeper.stop()
    thread.join()

    assert len(queue.attachments()) == 1


def test_a_signal_handler_may_stop_it_while_it_waits(broker: LocalBroker) -> None:
    keeper = Keeper(broker.namespace, interval=3600)
    before = signal.signal(signal.SIGALRM, lambda *_: keeper.stop())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        keeper.run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_one_that_was_stopped_before_it_ran_does_not_run(broker: LocalBroker) -> None:
    keeper = Keeper(broker.namespace, interval=3600)
    keeper.stop()

    keeper.run()


@pytest.mark.parametrize("interval", [0, -1, math.nan, math.inf])
def test_an_interval_out_of_range_is_refused(namespace: str, interval: float) -> None:
    with pytest.raises(shmq.InvalidOption, match=f"interval={interval} s is out of range"):
        Keeper(namespace, interval)


def test_an_interval_that_is_no_number_is_a_type_error(namespace: str) -> None:
    often: Any = "often"
    with pytest.raises(TypeError, match=r"interval='often'.*not str"):
        Keeper(namespace, often)


def test_a_keeper_without_a_name_tends_the_namespace_of_the_environment(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_NAMESPACE", broker.namespace)
    queue = broker.create_queue("q")
    keeper = Keeper()

    keeper.tend()

    assert len(queue.attachments()) == 2
    keeper.close()
