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
from shmq.persistence.journal_writer import JournalWriter
from shmq.storage.disk import Disk
from shmq.storage.paths import catalog, segment_name
from tests.support.failing_disk import FailingDisk
from tests.support.manual_writer import Desk, run_out
from tests.support.queue_chain import chain


def failing(desk: Desk, at: int, for_calls: int = 1, code: int = errno.EIO) -> FailingDisk:
    disk = FailingDisk(desk.disk.directory, range(at, at + for_calls), code)
    desk.disk = disk
    return disk


def workload(desk: Desk, disk: FailingDisk) -> set[int]:
    """Puts, settlements, snapshots; returns what must be on disk at the end.

    After every call the disk's files must have what the queue says that they have.
    """
    queue = desk.broker.ensure_queue("q", durability="journal", retry_delay=0.0)
    while True:
        try:
            kept = desk.keep()
            break
        except OSError:
            continue
    live: set[int] = set()
    for turn in range(6):
        live |= {queue.put(bytes([turn]) * 900).sequence for _ in range(5)}
        _write(kept)
        for message in queue.get_many(3):
            message.ack()
            live.remove(message.sequence)
        queue.get().nack()
        _write(kept)
        if turn % 3 == 2:
            for _ in range(20):
                try:
                    kept.snapshot()
                    break
                except OSError:
                    assert disk.refused
    _write(kept)
    return live


def _write(kept: JournalWriter) -> None:
    for _ in range(12):
        synced = kept.follower.synced
        kept.step()
        assert kept.follower.synced >= synced


@pytest.mark.parametrize("for_calls", [1, 3])
def test_whichever_call_fails_nothing_is_lost_or_doubled(
    tmp_path: Path, broker: shmq.Broker, namespace: str, for_calls: int
) -> None:
    for at in itertools.count(1):
        desk = Desk(broker, namespace, tmp_path / str(at))
        desk.disk.make()
        disk = failing(desk, at, for_calls)
        live = workload(desk, disk)
        assert set(chain(disk, "q")) == live, f"call {at}: {disk.refused}"
        desk.close()
        broker.delete_queue("q")
        if not disk.refused:
            break
    assert at > 50


def test_a_queue_whose_disk_is_full_says_so_and_goes_on_by_itself(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    disk = failing(desk, 1 << 60, 0, errno.ENOSPC)
    queue = desk.create()
    kept = desk.keep()
    queue.put(b"before")
    run_out(kept)

    disk.failing = range(1 << 60)
    queue.put(b"while it is full")
    with caplog.at_level(logging.WARNING, "shmq"):
        for _ in range(3):
            assert not kept.step()
    assert kept.error is not None and kept.error.errno == errno.ENOSPC
    assert kept.follower.synced == 1
    assert len(caplog.records) == 1, "said once"
    assert "No space left on device" in caplog.text
    queue.put(b"taken all the same")
    assert queue.qsize() == 3

    disk.failing = range(0)
    with caplog.at_level(logging.WARNING, "shmq"):
        run_out(kept)
    assert "is written to" in caplog.text
    assert kept.follower.synced == 3
    assert sorted(chain(desk.disk, "q")) == [1, 2, 3]


def test_after_a_failed_sync_the_batch_goes_to_a_new_file(desk: Desk) -> None:
    disk = failing(desk, 1 << 60, 0)
    queue = desk.create()
    kept = desk.keep()
    queue.put(b"a")
    run_out(kept)
    published = kept.journal.offset

    queue.put(b"b")
    disk.failing = range(disk.calls + 2, disk.calls + 3)  # the write succeeds, the sync fails
    assert not kept.step()
    assert disk.refused == ["sync"]
    run_out(kept)

    assert catalog(disk.names())["q"].segments == [1, 2]
    assert (kept.journal.segment, kept.follower.synced) == (2, 2)
    assert sorted(chain(disk, "q")) == [1, 2]
    # What the failed sync left behind the published position is not read, whatever it is.
    path = disk.path(segment_name("q", 1))
    data = path.read_bytes()
    path.write_bytes(data[:published] + bytes(len(data) - published))
    assert sorted(chain(disk, "q")) == [1, 2]


def test_a_queue_that_cannot_be_written_collects_no_more(desk: Desk) -> None:
    disk = failing(desk, 1 << 60, 0)
    queue = desk.create(capacity=100)
    kept = desk.keep()
    kept.step()
    disk.failing = range(1 << 60)
    queue.put_many([b"first"] * 10)
    kept.step()
    for _ in range(20):
        queue.put_many([b"more"] * 2)
        for message in queue.get_many(2):
            message.ack()
        kept.step()
    disk.failing = range(0)
    run_out(kept)
    assert len(chain(disk, "q")) == queue.qsize() == 10


def test_a_segment_that_somebody_removed_confirms_nothing(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    first = queue.put(b"first").sequence
    run_out(kept)

    desk.disk.unlink(segment_name("q", 1))
    second = queue.put(b"second").sequence

    assert not kept.step()
    assert kept.error is not None
    assert kept.error.errno == errno.ENOENT
    assert kept.follower.synced == first
    run_out(kept)  # it goes to a new one
    assert kept.follower.synced == second

    # What was in the removed one is only in memory, until there is a snapshot.
    assert kept.due
    kept.snapshot()
    assert not kept.due
    assert set(chain(desk.disk, "q")) == {first, second}


def test_a_directory_that_somebody_removed_confirms_nothing_until_it_is_back(
    desk: Desk, tmp_path: Path
) -> None:
    desk.disk = Disk(tmp_path / "data")
    desk.disk.make()
    queue = desk.create()
    kept = desk.keep()
    queue.put(b"first")
    run_out(kept)
    synced = kept.follower.synced

    shutil.rmtree(tmp_path / "data")
    queue.put(b"second")
    for _ in range(3):
        assert not kept.step()
    assert kept.follower.synced == synced
    assert queue.stats().journal_error == os.strerror(errno.ENOENT)

    desk.disk.make()
    run_out(kept)
    kept.snapshot()
    assert len(chain(desk.disk, "q")) == 2
