"""What moves between queues with snapshots is in one of them, whichever snapshot is older."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

import shmq
from shmq.disk.storage.disk import Disk, read_whole
from shmq.disk.storage.paths import catalog
from shmq.disk.storage.queue_files import QueueFiles
from shmq.disk.storage.queue_reader import lineage_of
from shmq.disk.storage.writer_control import ask_for_snapshots
from tests.prove.recovery.tools import Persist, lose
from tests.support.waiting import PATIENCE, eventually

SNAPSHOT: dict[str, Any] = {"durability": "snapshot", "snapshot_interval": 3600}
#: The dead-letter queue is written after the other one, or before it.
NAMES = ["jobs.dlq", "aside"]


def snapshot(persist: Persist, name: str) -> None:
    """Write the snapshot of that queue now."""
    ((_, error),) = ask_for_snapshots(persist.directory, [name], PATIENCE)
    assert error is None


def lost_memory(persist: Persist) -> None:
    """The writer dies, the memory is lost, and the next writer recovers what is on disk."""
    persist.kill()
    lose(persist.namespace)
    persist.begin()


def bodies(namespace: str, *names: str) -> list[list[int]]:
    with shmq.connect(namespace) as broker:
        return [sorted(message.body for message in broker.queue(one).peek(10_000)) for one in names]


def count_in_files(persist: Persist, name: str) -> int:
    """The messages that the queue's own files have."""
    disk = Disk(persist.directory)
    names = lineage_of(disk, catalog(disk.names())[name])
    with QueueFiles([(one, read_whole(disk, one)) for one in names]) as chain:
        return chain.messages


def reject_one(persist: Persist) -> None:
    """The next message becomes a dead letter."""
    with shmq.connect(persist.namespace) as broker:
        broker.queue("jobs").get().reject("wrong")


def two_queues(persist: Persist, name: str, count: int = 2) -> None:
    """A queue with so many messages and its dead-letter queue, both on disk."""
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue(name, dead_letter=None, max_deliveries=None, **SNAPSHOT)
        queue = broker.create_queue("jobs", dead_letter=name, **SNAPSHOT)
        queue.put_many(list(range(count)))
    for each in "jobs", name:
        snapshot(persist, each)


@pytest.mark.parametrize("name", NAMES)
def test_a_dead_letter_is_on_disk_before_it_leaves_the_snapshot_of_its_queue(
    persist: Persist, name: str
) -> None:
    two_queues(persist, name)
    reject_one(persist)
    snapshot(persist, "jobs")

    lost_memory(persist)

    assert bodies(persist.namespace, "jobs", name) == [[1], [0]]
    with shmq.connect(persist.namespace) as broker:
        (letter,) = broker.queue(name).peek(1)
        assert letter.dead is not None
        assert letter.dead.queue == "jobs"
    snapshot(persist, name)
    lost_memory(persist)
    assert bodies(persist.namespace, "jobs", name) == [[1], [0]]


@pytest.mark.parametrize("name", NAMES)
def test_a_redriven_message_is_on_disk_before_it_leaves_that_of_the_dead_letters(
    persist: Persist, name: str
) -> None:
    two_queues(persist, name)
    reject_one(persist)
    for each in "jobs", name:
        snapshot(persist, each)
    with shmq.connect(persist.namespace) as broker:
        broker.queue("jobs").redrive()
    snapshot(persist, name)

    lost_memory(persist)

    assert bodies(persist.namespace, "jobs", name) == [[0, 1], []]


def test_a_message_that_moves_on_is_in_the_last_queue(persist: Persist) -> None:
    two_queues(persist, "jobs.dlq")
    reject_one(persist)
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("last", dead_letter=None, max_deliveries=None, **SNAPSHOT)
        assert broker.queue("jobs.dlq").move_to("last") == 1
    persist.hears("queue last is kept")
    snapshot(persist, "jobs")

    lost_memory(persist)

    assert bodies(persist.namespace, "jobs", "jobs.dlq", "last") == [[1], [], [0]]


@pytest.mark.parametrize("newer", [["jobs"], ["other"], ["jobs", "other"], ["other", "jobs"]])
def test_no_snapshot_after_a_move_loses_the_message(persist: Persist, newer: list[str]) -> None:
    two_queues(persist, "jobs.dlq")
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("other", dead_letter=None, max_deliveries=None, **SNAPSHOT)
        persist.hears("queue other is kept")
        assert broker.queue("jobs").move_to("other") == 2
    for name in newer:
        snapshot(persist, name)

    lost_memory(persist)

    left, moved = bodies(persist.namespace, "jobs", "other")
    assert moved == [0, 1]
    assert left == ([] if "jobs" in newer else [0, 1])


def test_a_confirmed_message_of_a_journal_survives_as_a_dead_letter_with_snapshots(
    persist: Persist,
) -> None:
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("dead", dead_letter=None, max_deliveries=None, **SNAPSHOT)
        queue = broker.create_queue("jobs", durability="journal", dead_letter="dead")
        queue.put(0, confirm="disk", timeout=PATIENCE)
        queue.get().reject("wrong")
        queue.put(1, confirm="disk", timeout=PATIENCE)
    eventually(lambda: count_in_files(persist, "jobs") == 1, "the dead letter leaves the journal")

    lost_memory(persist)

    assert bodies(persist.namespace, "jobs", "dead") == [[1], [0]]


def test_the_writer_goes_on_after_segments_of_another_writer(persist: Persist) -> None:
    two_queues(persist, "jobs.dlq", 4)
    for at in range(4):
        reject_one(persist)
        snapshot(persist, "jobs")
        persist.kill()  # the memory stays
        persist.begin()
        if at == 1:
            snapshot(persist, "jobs.dlq")

    lost_memory(persist)

    assert bodies(persist.namespace, "jobs", "jobs.dlq") == [[], [0, 1, 2, 3]]


def test_a_new_queue_is_on_disk_at_once(persist: Persist) -> None:
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("jobs", dead_letter=None, **SNAPSHOT)
    eventually(lambda: "jobs.dmsq" in persist.files(), "the first snapshot")

    lost_memory(persist)

    assert bodies(persist.namespace, "jobs") == [[]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_messages_that_die_and_come_back_survive_deaths_of_the_machine(
    persist: Persist, name: str, seed: int
) -> None:
    chance = random.Random(seed)
    count = 2000
    with shmq.connect(persist.namespace) as broker:
        often: dict[str, Any] = {"durability": "snapshot", "snapshot_interval": 0.1}
        broker.create_queue(name, dead_letter=None, max_deliveries=None, **often)
        queue = broker.create_queue("jobs", dead_letter=name, **often)
        queue.put_many(list(range(count)))
    for each in "jobs", name:
        snapshot(persist, each)
    for _ in range(4):
        end = time.monotonic() + chance.uniform(0.3, 1.5)
        with shmq.connect(persist.namespace) as broker:
            queue = broker.queue("jobs")
            while time.monotonic() < end:
                for message in queue.get_many(50, timeout=0.01):
                    message.reject("wrong")
                if chance.random() < 0.3:
                    queue.redrive(100)
            lost_memory(persist)
        found = [one for each in bodies(persist.namespace, "jobs", name) for one in each]
        assert sorted(set(found)) == list(range(count))


def test_a_message_that_moved_into_a_journal_is_in_it_before_it_leaves_the_snapshot(
    persist: Persist,
) -> None:
    two_queues(persist, "jobs.dlq")
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("other", durability="journal", dead_letter=None, max_deliveries=None)
        persist.hears("queue other is kept")
        assert broker.queue("jobs").move_to("other", 1) == 1
    snapshot(persist, "jobs")

    lost_memory(persist)

    assert bodies(persist.namespace, "jobs", "other") == [[1], [0]]
