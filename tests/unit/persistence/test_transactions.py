"""When a writer looks for new transactions, and how they come to `writer.txn`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shmq import Broker
from shmq.client.transaction.transaction_log import hold
from shmq.disk.persistence import transactions
from shmq.disk.persistence.transactions import Transactions
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erasure_note
from shmq.disk.storage.transaction_file import (
    TRANSACTIONS,
    StoredTransaction,
    TransactionFile,
    read_noted,
)
from shmq.errors import NoSuchQueue, ShmqError
from shmq.host.namespace.namespace import Namespace
from tests.support.stepwise_disk import StepwiseDisk


def work_of(number: int) -> dict[str, Any]:
    """The steps of a transaction that settles a message of a queue that is gone."""
    return {"process": 1, "acks": [["gone", 5, [number]]], "puts": [], "appends": [], "offsets": []}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_transaction_that_was_seen_before_its_commit_is_noted_after_it(
    broker: Broker, disk: Disk
) -> None:
    namespace = Namespace.of(broker.namespace)
    notes = Transactions(namespace, disk)
    process = namespace.processes.own_number()
    with hold(namespace, process, make=True) as record:
        assert record is not None
        with record.noted(1):
            namespace.roles.announce_transaction()
            notes.note()
            record.write({"durable": work_of(1)})
            record.commit()
            notes.note()
        assert [one.id for one in read_noted(disk)] == [(process, 1)]
        record.finish()
    notes.mark()


def test_a_part_without_transactions_stays_unknown_beside_those_that_have_some(
    broker: Broker, disk: Disk
) -> None:
    namespace = Namespace.of(broker.namespace)
    namespace.processes.own_number()
    part = ("queue", "gone", 5)
    written = TransactionFile(disk)
    written.replace([StoredTransaction((1, 1), work_of(1), {part})])
    written.abandon()
    notes = Transactions(namespace, disk)
    other = ("queue", "other", 6)

    assert not notes.happened(other)
    assert not notes.open(other)  # as a snapshot of that queue asks
    assert notes.open(part) == notes.happened(part) == {(1, 1)}
    notes.mark()  # the queue of the part is gone
    assert not notes.open(part)
    assert not notes.happened(part)
    notes.mark()
    assert not read_noted(disk)


def test_a_queue_whose_files_cannot_be_erased_has_no_part_in_transactions(
    broker: Broker, disk: Disk
) -> None:
    namespace = Namespace.of(broker.namespace)
    namespace.roles.become_writer(disk.directory)
    broker.create_queue("q", durability="journal", dead_letter=None).close()
    part = ("queue", "q", namespace.open_segment("q").hash_key)
    work = {**work_of(1), "acks": [[*part[1:], [1]]]}
    written = TransactionFile(disk)
    written.replace([StoredTransaction((1, 1), work, {part})])
    written.abandon()
    notes = Transactions(namespace, disk)
    notes.mark()
    assert notes.open(part)

    obstacle = disk.path(erasure_note("q"))
    obstacle.mkdir()  # in the place of the note that the files are to be erased
    with pytest.raises(ShmqError, match="is deleted, but not its files"):
        broker.delete_queue("q")
    notes._look_at = 0.0
    notes.mark()
    assert not notes.open(part)
    obstacle.rmdir()
    with pytest.raises(NoSuchQueue):  # once the rest of it is removed
        broker.delete_queue("q")
    namespace.roles.release_writer()


def test_shared_memory_is_searched_only_after_an_announcement(
    broker: Broker, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def nothing(_: Namespace) -> dict[Any, Any]:
        nonlocal looks
        looks += 1
        return {}

    namespace = Namespace.of(broker.namespace)
    namespace.processes.own_number()
    notes = Transactions(namespace, disk)
    notes.note()
    monkeypatch.setattr(transactions, "noted", nothing)
    notes.note()
    assert looks == 0
    namespace.roles.announce_transaction()
    notes.note()
    notes.note()
    assert looks == 1


class Counting(StepwiseDisk):
    """Notes the order of writes and syncs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.calls: list[str] = []

    def write(self, file: int, pieces: Any, offset: int) -> int:
        self.calls.append("write")
        return super().write(file, pieces, offset)

    def sync(self, file: int) -> None:
        self.calls.append("sync")
        super().sync(file)


@pytest.fixture
def counting(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def test_the_transactions_of_a_commit_share_a_record_and_a_sync(counting: Counting) -> None:
    written = TransactionFile(counting)
    written.replace([])
    counting.calls.clear()
    part = ("queue", "gone", 5)
    for numbers in ((1, 2), (3, 4)):
        written.add([StoredTransaction((1, n), work_of(n), {part}) for n in numbers], [])
    end = written.end
    written.abandon()

    assert counting.calls == ["write", "sync"] * 2
    assert [one.id for one in read_noted(counting)] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    os.truncate(counting.path(TRANSACTIONS), end - 16)  # torn by a power cut
    assert [one.id for one in read_noted(counting)] == [(1, 1), (1, 2)]
