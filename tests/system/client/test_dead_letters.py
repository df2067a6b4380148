"""Dead letters and redriven messages whose move is cut short or impossible."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

import pytest

import shmq
from shmq.client.local import dead_letters
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.model.codec.codecs import pack_properties


@pytest.fixture
def local(namespace: str) -> LocalBroker:
    return LocalBroker(namespace)


def die_after(work: Callable[[], object]) -> None:
    """Do that in a child that is then killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def half_a_burial(jobs: LocalQueue, dead_letter_queue: LocalQueue) -> None:
    """Reject a message and stage its copy, but not more."""
    jobs._dead_letters.retry_at = float("inf")
    jobs.get(block=False).reject()
    row = jobs.transfer.take_dead()
    assert row is not None
    taken = dead_letters.TakenDeadLetter(*row)
    letter = {"dead": {"reason": "rejected", "queue": "jobs", "deliveries": 1, "at": 1}}
    stage(jobs, dead_letter_queue, taken, pack_properties(letter))


def half_a_redrive(dead_letter_queue: LocalQueue, jobs: LocalQueue) -> None:
    """Take a dead letter and stage its copy, but not more."""
    rows, _ = dead_letter_queue.inspection.scan(0, 10)
    row = dead_letter_queue.transfer.take(rows[0][0], rows[0][2])
    assert row is not None
    stage(dead_letter_queue, jobs, dead_letters.TakenDeadLetter(*row), b"")


def stage(
    source: LocalQueue, target: LocalQueue, taken: dead_letters.TakenDeadLetter, meta: bytes
) -> None:
    origin = source.segment.queue_id
    target.transfer.stage_copy(
        taken.body, meta, taken.codec, taken.priority, None, None, origin, taken.sequence
    )


def everything_in(*queues: LocalQueue) -> list[bytes]:
    found = []
    for queue in queues:
        for message in queue.consume(block=False):
            found.append(message.body)
            message.ack()
    return sorted(found)


def test_a_dead_letter_move_and_a_redrive_that_die_at_once_lose_and_double_nothing(
    local: LocalBroker,
) -> None:
    with local:
        jobs = local.create_queue("jobs")
        dead_letter_queue = local.queue("jobs.dlq")
        jobs.put(b"one")
        jobs.get().reject()
        jobs.put(b"two")
        die_after(lambda: half_a_redrive(dead_letter_queue, jobs))
        die_after(lambda: half_a_burial(jobs, dead_letter_queue))

        jobs.qsize()
        dead_letter_queue.qsize()

        jobs.check()
        dead_letter_queue.check()
        assert everything_in(jobs, dead_letter_queue) == [b"one", b"two"]


def test_a_dead_letter_waits_until_its_queue_can_take_it(
    local: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with local, caplog.at_level(logging.WARNING, "shmq"):
        jobs = local.create_queue("jobs")
        local.delete_queue("jobs.dlq")
        local.create_queue("jobs.dlq")  # has a delivery limit: not fit for dead letters
        jobs.put(b"one")
        jobs.get().reject()
        waiting = jobs.stats().dying

        local.delete_queue("jobs.dlq")
        jobs._dead_letters.retry_at = 0.0

        assert (waiting, jobs.stats().dying) == (1, 0)
        assert everything_in(local.queue("jobs.dlq")) == [b"one"]
        assert "dead letters wait" in caplog.text


def test_the_largest_message_of_a_queue_fits_its_dead_letter_queue(local: LocalBroker) -> None:
    with local:
        jobs = local.create_queue("jobs", arena_bytes=32_768, max_message_bytes=32_768)
        jobs.put(bytes(32_768))
        message = jobs.get()
        assert message.body == bytes(32_768)

        message.reject()

        assert (jobs.stats().dying, local.queue("jobs.dlq").qsize()) == (0, 1)


def test_a_message_that_fills_an_arena_of_an_odd_size_is_taken(local: LocalBroker) -> None:
    with local:
        jobs = local.create_queue("jobs", arena_bytes=5000, max_message_bytes=5000)

        jobs.put(bytes(5000))

        assert jobs.get().body == bytes(5000)
        jobs.check()


def test_a_message_that_is_viewed_is_not_dropped_in_vain(local: LocalBroker) -> None:
    with local:
        jobs = local.create_queue("jobs", capacity=1, overflow="drop-oldest", dead_letter=None)
        jobs.put(b"first")
        message = jobs.get()
        view = message.view
        message.nack(delay=0)

        with pytest.raises(shmq.Full):
            jobs.put(b"second")

        assert (jobs.qsize(), jobs.stats().dropped, bytes(view)) == (1, 0, b"first")


def test_redrive_stops_where_the_queue_is_full_and_says_how_many_went(local: LocalBroker) -> None:
    with local:
        jobs = local.create_queue("jobs", capacity=3)
        for body in (b"a", b"b", b"c"):
            jobs.put(body)
        for message in jobs.get_many(3):
            message.reject()
        jobs.put_many([b"x", b"y"])

        moved = jobs.redrive()

        assert moved == 1
        with pytest.raises(shmq.Full):
            jobs.redrive()
        assert local.queue("jobs.dlq").qsize() == 2
