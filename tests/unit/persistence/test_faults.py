"""Disks that fail: nothing is confirmed that is not there, and nothing is lost."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
from pathlib import Path

import pytest

import shmq
from shmq.disk.persistence.journal_writer import JournalWriter
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import catalog, segment_name
from tests.support.failing_disk import FailingDisk
from tests.support.manual_writer import ManualWriter, run_out
from tests.support.queue_chain import chain


def failing(
    writer: ManualWriter, at: int, for_calls: int = 1, code: int = errno.EIO
) -> FailingDisk:
    disk = FailingDisk(writer.disk.directory, range(at, at + for_calls), code)
    writer.disk = disk
    return disk


def workload(writer: ManualWriter, disk: FailingDisk) -> set[int]:
    """Puts, settlements, snapshots; returns what must be on disk at the end.

    After every call the disk's files must have what the queue says that they have.
    """
    queue = writer.broker.ensure_queue("q", durability="journal", retry_delay=0.0)
    while True:
        try:
            journal_writer = writer.follow()
            break
        except OSError:
            continue
    live: set[int] = set()
    for turn in range(6):
        live |= {queue.put(bytes([turn]) * 900).sequence for _ in range(5)}
        _write(journal_writer)
        for message in queue.get_many(3):
            message.ack()
            live.remove(message.sequence)
        queue.get().nack()
        _write(journal_writer)
        if turn % 3 == 2:
            for _ in range(20):
                try:
                    journal_writer.snapshot()
                    break
                except OSError:
                    assert disk.refused
    _write(journal_writer)
    return live


def _write(journal_writer: JournalWriter) -> None:
    for _ in range(12):
        synced = journal_writer.follower.synced
        journal_writer.step()
        assert journal_writer.follower.synced >= synced


@pytest.mark.parametrize("for_calls", [1, 3])
def test_whichever_call_fails_nothing_is_lost_or_doubled(
    tmp_path: Path, broker: shmq.Broker, namespace: str, for_calls: int
) -> None:
    for at in itertools.count(1):
        writer = ManualWriter(broker, namespace, tmp_path / str(at))
        writer.disk.make()
        disk = failing(writer, at, for_calls)
        live = workload(writer, disk)
        assert set(chain(disk, "q")) == live, f"call {at}: {disk.refused}"
        writer.close()
        broker.delete_queue("q")
        if not disk.refused:
            break
    assert at > 50


def test_a_queue_whose_disk_is_full_says_so_and_goes_on_by_itself(
    writer: ManualWriter, caplog: pytest.LogCaptureFixture
) -> None:
    disk = failing(writer, 1 << 60, 0, errno.ENOSPC)
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put(b"before")
    run_out(journal_writer)

    disk.failing = range(1 << 60)
    queue.put(b"while it is full")
    with caplog.at_level(logging.WARNING, "shmq"):
        for _ in range(3):
            assert not journal_writer.step()
    assert journal_writer.error is not None and journal_writer.error.errno == errno.ENOSPC
    assert journal_writer.follower.synced == 1
    assert len(caplog.records) == 1, "said once"
    assert "No space left on device" in caplog.text
    queue.put(b"taken all the same")
    assert queue.qsize() == 3

    disk.failing = range(0)
    with caplog.at_level(logging.WARNING, "shmq"):
        run_out(journal_writer)
    assert "is written to" in caplog.text
    assert journal_writer.follower.synced == 3
    assert sorted(chain(writer.disk, "q")) == [1, 2, 3]


def test_after_a_failed_sync_the_batch_goes_to_a_new_file(writer: ManualWriter) -> None:
    disk = failing(writer, 1 << 60, 0)
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put(b"a")
    run_out(journal_writer)
    published = journal_writer.journal.offset

    queue.put(b"b")
    disk.failing = range(disk.calls + 2, disk.calls + 3)  # the write succeeds, the sync fails
    assert not journal_writer.step()
    assert disk.refused == ["sync"]
    run_out(journal_writer)

    assert catalog(disk.names())["q"].segments == [1, 2]
    assert (journal_writer.journal.segment, journal_writer.follower.synced) == (2, 2)
    assert sorted(chain(disk, "q")) == [1, 2]
    # What the failed sync left behind the published position is not read, whatever it is.
    path = disk.path(segment_name("q", 1))
    data = path.read_bytes()
    path.write_bytes(data[:published] + bytes(len(data) - published))
    assert sorted(chain(disk, "q")) == [1, 2]


def test_a_queue_that_cannot_be_written_collects_no_more(writer: ManualWriter) -> None:
    disk = failing(writer, 1 << 60, 0)
    queue = writer.create(capacity=100)
    journal_writer = writer.follow()
    journal_writer.step()
    disk.failing = range(1 << 60)
    queue.put_many([b"first"] * 10)
    journal_writer.step()
    for _ in range(20):
        queue.put_many([b"more"] * 2)
        for message in queue.get_many(2):
            message.ack()
        journal_writer.step()
    disk.failing = range(0)
    run_out(journal_writer)
    assert len(chain(disk, "q")) == queue.qsize() == 10


def test_a_removed_segment_confirms_nothing(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    first = queue.put(b"first").sequence
    run_out(journal_writer)

    writer.disk.unlink(segment_name("q", 1))
    second = queue.put(b"second").sequence

    assert not journal_writer.step()
    assert journal_writer.error is not None
    assert journal_writer.error.errno == errno.ENOENT
    assert journal_writer.follower.synced == first
    run_out(journal_writer)  # it goes to a new one
    assert journal_writer.follower.synced == second

    # What was in the removed one is only in memory, until there is a snapshot.
    assert journal_writer.due
    journal_writer.snapshot()
    assert not journal_writer.due
    assert set(chain(writer.disk, "q")) == {first, second}


def test_a_removed_directory_confirms_nothing_until_it_is_back(
    writer: ManualWriter, tmp_path: Path
) -> None:
    writer.disk = Disk(tmp_path / "data")
    writer.disk.make()
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put(b"first")
    run_out(journal_writer)
    synced = journal_writer.follower.synced

    shutil.rmtree(tmp_path / "data")
    queue.put(b"second")
    for _ in range(3):
        assert not journal_writer.step()
    assert journal_writer.follower.synced == synced
    assert queue.stats().journal_error == os.strerror(errno.ENOENT)

    writer.disk.make()
    run_out(journal_writer)
    journal_writer.snapshot()
    assert len(chain(writer.disk, "q")) == 2
