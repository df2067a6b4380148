"""What becomes of a message, by what its handler does."""

from __future__ import annotations

import pytest

import shmq
from tests.support.waiting import eventually
from tests.system.workers.conftest import Work
from tests.system.workers.tools import Journal


def dead(broker: shmq.Broker) -> shmq.DeadLetter:
    eventually(lambda: broker.queue("jobs.dlq").qsize() == 1, "a dead letter")
    (letter,) = broker.queue("jobs.dlq").peek()
    assert letter.dead is not None
    return letter.dead


def test_a_message_whose_handler_returns_is_acknowledged(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1])
    workers = work()

    eventually(lambda: jobs.stats().acked == 1, "the message is acknowledged")

    assert journal.numbers("end") == [1]
    assert workers.stops() == 0
    assert jobs.stats().redelivered == 0


@pytest.mark.prove
@pytest.mark.parametrize("operation", ["raise it is broken", "sys.exit 0"])
def test_a_message_whose_handler_fails_comes_back_later(
    jobs: shmq.Queue, work: Work, journal: Journal, operation: str
) -> None:
    jobs.put([1, f"first {operation}"])
    jobs.put([2])
    workers = work()

    eventually(lambda: jobs.stats().acked == 2, "both are done")

    assert [entry.delivery for entry in journal.entries("end") if entry.number == 1] == [2]
    assert jobs.stats().nacked == 1
    assert len(workers.started()) == 1
    assert len(workers.said("message 1, delivery 1 of 5, failed\nTraceback")) == 1
    assert workers.stops() == 0


@pytest.mark.prove
def test_a_message_that_fails_every_time_is_a_dead_letter_in_the_end(
    jobs: shmq.Queue, broker: shmq.Broker, work: Work
) -> None:
    jobs.put([1, "raise always"])
    workers = work()

    letter = dead(broker)

    assert (letter.reason, letter.deliveries) == ("max_deliveries", 5)
    assert len(workers.said("ValueError: always")) == 5
    assert len(workers.started()) == 1


def test_a_rejected_message_is_a_dead_letter_at_once(
    jobs: shmq.Queue, broker: shmq.Broker, work: Work
) -> None:
    jobs.put([1, "reject no such customer"])
    workers = work()

    letter = dead(broker)

    assert (letter.reason, letter.deliveries) == ("rejected", 1)
    assert workers.said("message 1, delivery 1 of 5, rejected: no such customer")
    assert "Traceback" not in workers.log


@pytest.mark.prove
def test_a_retry_says_itself_when_the_message_comes_back(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", retry_delay=3600)
    jobs.put([1, "first retry 0.02"])
    workers = work()

    journal.until("end", 1)

    assert [entry.delivery for entry in journal.entries("begin")] == [1, 2]
    assert workers.said("message 1, delivery 1 of 5, again in 0.02 s")
    assert "Traceback" not in workers.log


@pytest.mark.prove
def test_a_retry_without_a_delay_takes_the_back_off_of_the_queue(
    broker: shmq.Broker, work: Work, journal: Journal
) -> None:
    jobs = broker.create_queue("jobs", retry_delay=3600, retry_delay_max=3600)
    jobs.put([1, "retry"])
    work()

    eventually(lambda: jobs.stats().delayed == 1, "the message waits")

    assert len(journal.entries("begin")) == 1


@pytest.mark.prove
def test_a_retry_with_a_delay_that_is_none_is_a_failure(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1, "first retry -1"])
    workers = work()

    journal.until("end", 1)

    assert workers.said("InvalidOption: delay=-1.0 s is out of range")


@pytest.mark.prove
@pytest.mark.parametrize("how", ["ack", "nack", "reject"])
def test_what_the_handler_settles_itself_is_left_at_that(
    jobs: shmq.Queue, work: Work, journal: Journal, how: str
) -> None:
    jobs.put([1, f"first settle {how}"])
    jobs.put([2])
    workers = work()
    journal.until("end", 3 if how == "nack" else 2)

    assert workers.stops() == 0

    stats = jobs.stats()
    assert (stats.acked, stats.nacked, stats.dead_lettered) == {
        "ack": (2, 0, 0),
        "nack": (2, 1, 0),
        "reject": (1, 0, 1),
    }[how]
    assert "WARNING" not in workers.log
    assert "Traceback" not in workers.log


@pytest.mark.prove
def test_a_coroutine_function_is_run_to_its_end(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    for number in range(5):
        jobs.put([number, "first raise in a loop"] if number == 2 else [number])
    workers = work(handler="act_in_a_loop")

    eventually(lambda: jobs.stats().acked == 5, "all are done")

    assert sorted(journal.numbers("end")) == [0, 1, 2, 3, 4]
    assert workers.said("ValueError: in a loop")
    assert workers.stops() == 0


@pytest.mark.prove
def test_a_method_of_an_object_may_be_the_handler(
    jobs: shmq.Queue, work: Work, journal: Journal
) -> None:
    jobs.put([1])
    work(handler="acting.act")
    journal.until("end", 1)
