"""A run that is leased in a name is the same after shared memory was lost."""

from __future__ import annotations

import array
from collections.abc import Iterator

import pytest

import shmq
from tests.prove.recovery.tools import Persist
from tests.support.processes import is_sound


def numbers(run: shmq.Run) -> list[int]:
    return array.array("Q", run.sequences).tolist()


@pytest.fixture
def jobs(persist: Persist) -> Iterator[shmq.Queue]:
    with shmq.connect(persist.namespace) as broker:
        queue = broker.create_queue("jobs", durability="journal", confirm="disk")
        for n in range(3000):
            queue.put(b"%d" % n, group="abc"[n % 3], priority=n % 2)
        yield queue


def reborn(persist: Persist, queue: shmq.Queue) -> shmq.Queue:
    """The queue in a new memory."""
    queue.close()
    persist.reboot()
    broker = shmq.connect(persist.namespace)
    found = broker.queue("jobs")
    is_sound(found)
    return found


def test_the_batch_is_leased_again_and_the_rest_is_served_after_it(
    persist: Persist, jobs: shmq.Queue
) -> None:
    claim = jobs.bulk().take_over("query").claim
    run = jobs.bulk().lease_run(2000, claim=claim, epoch=7)
    queue = reborn(persist, jobs)
    queue.put(b"first of all", group="a", priority=2)

    assert not queue.bulk().is_claimed(claim)
    taken = queue.bulk().take_over("query", settled=6, epoch=7)
    assert numbers(taken.run) == numbers(run)
    assert queue.get_many(10, block=False) == []  # the run holds all groups
    assert queue.bulk().ack_run(taken.run.receipts) == 0
    assert queue.get(block=False).body == b"first of all"
    assert numbers(queue.bulk().take_over("query", settled=6, epoch=7).run) == []


def test_what_was_committed_is_settled_though_its_acknowledgement_was_lost(
    persist: Persist, jobs: shmq.Queue
) -> None:
    jobs.purge()
    jobs.put_many([b"x"] * 3000)
    claim = jobs.bulk().take_over("query").claim
    for epoch in (6, 7, 8):
        assert len(jobs.bulk().lease_run(500, claim=claim, epoch=epoch)) == 500
    queue = reborn(persist, jobs)  # with all of them, as none is acknowledged

    taken = queue.bulk().take_over("query", settled=7, epoch=8)
    assert (taken.settled, len(taken.run)) == (500, 500)  # of epochs 7 and 8
    assert (queue.stats().acked, queue.stats().in_flight, queue.qsize()) == (500, 500, 2000)


def test_what_another_consumer_got_first_is_missing(persist: Persist, jobs: shmq.Queue) -> None:
    claim = jobs.bulk().take_over("query").claim
    run = jobs.bulk().lease_run(100, claim=claim, epoch=1)
    queue = reborn(persist, jobs)
    stolen = queue.get(block=False)
    stolen.ack()
    found = numbers(queue.bulk().take_over("query", epoch=1).run)
    assert found == [n for n in numbers(run) if n != stolen.sequence]


def test_a_name_that_was_released_is_forgotten_on_disk_too(
    persist: Persist, jobs: shmq.Queue
) -> None:
    claim = jobs.bulk().take_over("query").claim
    jobs.bulk().lease_run(100, claim=claim, epoch=1)
    assert jobs.bulk().release("query") == 100
    queue = reborn(persist, jobs)
    assert len(queue.bulk().take_over("query", epoch=1).run) == 0
