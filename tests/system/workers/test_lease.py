"""The lease of the message in progress is kept, and what happens if it is lost even so."""

from __future__ import annotations

import logging
import os
import signal

import pytest

import shmq
from shmq.client.shared.rpc_server import LeaseKeeper
from tests.support.waiting import eventually
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal


@pytest.mark.prove
def test_a_handler_may_take_longer_than_the_visibility_timeout(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", visibility_timeout=4)
    jobs.put([1, "sleep 6"])
    work("--processes", "2").ready(2)

    eventually(lambda: jobs.stats().acked == 1, "it is done")

    assert [entry.delivery for entry in journal.entries("begin")] == [1]
    assert jobs.stats().expired == 0


@pytest.mark.prove
def test_a_message_whose_lease_is_lost_is_not_acknowledged(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", visibility_timeout=2.0)
    jobs.put([1, "wait"])
    workers = work("--processes", "2")
    first = journal.until("begin", 1)[0]

    os.kill(first.pid, signal.SIGSTOP)
    again = journal.until("begin", 2)[1]
    os.kill(first.pid, signal.SIGCONT)
    workers.hears("the lease of the message in progress is lost")
    journal.open_gate()
    workers.hears("message 1 cannot be settled")
    eventually(lambda: jobs.stats().acked == 1, "the other has done it")

    assert (again.number, again.delivery) == (1, 2)
    assert again.pid != first.pid
    assert workers.stops() == 0
    assert jobs.stats().acked == 1


@pytest.mark.prove
def test_the_keeper_prolongs_one_message_at_a_time(broker: shmq.Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=2)
    queue.put_many([b"kept", b"left"])
    kept, left = queue.get_many(2)

    with LeaseKeeper("it", lambda: 2) as keeper:
        keeper.keep(kept)
        eventually(lambda: queue.stats().expired == 1, "the other lease ends")
        kept.ack()
        with pytest.raises(shmq.LeaseExpired):
            left.ack()


def test_the_keeper_says_nothing_of_what_was_settled_meanwhile(
    broker: shmq.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=3600)
    queue.put_many([b"first", b"second"])
    caplog.set_level(logging.INFO)
    first, second = queue.get_many(2)
    first.ack()
    second.extend(0.01)

    with LeaseKeeper("it", lambda: 0.01) as keeper:
        keeper.keep(first)
        eventually(lambda: queue.stats().expired == 1, "a lease that nobody keeps ends")
        assert not second.settled

    assert caplog.text == ""


def test_the_keeper_says_once_that_a_lease_is_lost(
    broker: shmq.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=3600)
    queue.put(b"x")
    message = queue.get()
    queue.reject(message.receipt)

    with LeaseKeeper("it", lambda: 0.003) as keeper:
        keeper.keep(message)
        eventually(lambda: "is lost" in caplog.text, "it says so")

    assert len(caplog.records) == 1
