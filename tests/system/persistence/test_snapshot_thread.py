"""The thread that writes the snapshots: how often it does, and that it does not die."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import shmq
from shmq.client.local.queue import attach
from shmq.disk.persistence import snapshot
from shmq.disk.persistence.snapshot import SnapshotThread, SnapshotWriter
from tests.support.manual_writer import SMALL, ManualWriter
from tests.support.processes import ROOT
from tests.support.waiting import PATIENCE


class Slow(SnapshotWriter):
    """Is due until its snapshot is there; one is written when the test says so."""

    def __init__(self, writer: ManualWriter) -> None:
        super().__init__(writer.disk, attach(writer.namespace, "q"), SMALL, writer.moves)
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.failure: BaseException | None = None

    @property
    def due(self) -> bool:
        return not self.number

    def snapshot(self) -> None:
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        super().snapshot()


@pytest.fixture
def slow(writer: ManualWriter) -> Iterator[Slow]:
    writer.create(durability="snapshot", dead_letter=None)
    slow = Slow(writer)
    yield slow
    slow.close()


@pytest.fixture
def snapshot_thread() -> Iterator[SnapshotThread]:
    snapshot_thread = SnapshotThread()
    snapshot_thread.start()
    yield snapshot_thread
    snapshot_thread.finish([])


def test_what_is_due_is_written_once_however_long_it_takes(
    slow: Slow, snapshot_thread: SnapshotThread
) -> None:
    snapshot_thread.expose([slow])
    assert slow.begun.acquire(timeout=PATIENCE)
    snapshot_thread.expose([slow])
    slow.go.release(3)

    snapshot_thread.take(slow, PATIENCE)

    assert slow.begun.acquire(blocking=False), "the one that was asked for"
    assert not slow.begun.acquire(blocking=False)


def test_what_comes_in_the_middle_of_a_transaction_is_tried_again(
    slow: Slow, snapshot_thread: SnapshotThread
) -> None:
    slow.failure = OSError(errno.EAGAIN, "a transaction is not on disk as a whole yet")
    slow.go.release(2)

    snapshot_thread.take(slow, PATIENCE)

    assert slow.number == 1


def test_a_transaction_that_stays_in_the_middle_fails_the_snapshot(
    slow: Slow, snapshot_thread: SnapshotThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_PATIENCE", 0.0)
    slow.failure = OSError(errno.EAGAIN, "a transaction is not on disk as a whole yet")
    slow.go.release()

    with pytest.raises(shmq.ShmqError, match="not on disk as a whole yet"):
        snapshot_thread.take(slow, PATIENCE)


def test_want_of_memory_fails_one_snapshot_and_not_the_next(
    slow: Slow, snapshot_thread: SnapshotThread
) -> None:
    slow.failure = MemoryError("no room for a chunk")
    slow.go.release(2)

    with pytest.raises(shmq.ShmqError, match="no room for a chunk"):
        snapshot_thread.take(slow, PATIENCE)
    snapshot_thread.take(slow, PATIENCE)

    assert slow.number


def test_a_process_that_ends_at_once_does_not_wait_for_it() -> None:
    text = (
        "from shmq.disk.persistence.snapshot import SnapshotThread; "
        "SnapshotThread().start(); raise SystemExit(3)"
    )
    run = subprocess.run([sys.executable, "-c", text], check=False, cwd=ROOT, timeout=PATIENCE)
    assert run.returncode == 3
