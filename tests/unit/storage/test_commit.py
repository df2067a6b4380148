"""A commit of a writer's disk, which the core writes and syncs in one call."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
from pathlib import Path

import pytest

from shmq.disk.storage.disk import Disk
from tests.support.stepwise_disk import StepwiseDisk

LOT = 1 << 19


@pytest.fixture(params=[StepwiseDisk, Disk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = request.param(tmp_path)
    return made


@pytest.mark.parametrize(
    "lengths", [(), (0,), (7,), (48, 100, 0, 9), (0, LOT, 1), (48, 3 * LOT + 5, 0, LOT - 1, 2, LOT)]
)
def test_the_pieces_are_written_one_after_the_other(disk: Disk, lengths: tuple[int, ...]) -> None:
    pieces = [random.Random(number).randbytes(length) for number, length in enumerate(lengths)]
    file = disk.create("a")
    end = disk.commit(file, [memoryview(piece) for piece in pieces], 3)
    whole = b"\0\0\0" + b"".join(pieces)
    assert end == len(whole)
    assert disk.read(file, len(whole) + 1, 0) == (whole if end > 3 else b"")
    disk.close(file)


def test_a_commit_to_a_file_that_was_removed_is_refused(disk: Disk) -> None:
    file = disk.create("a")
    disk.unlink("a")
    with pytest.raises(FileNotFoundError):
        disk.commit(file, [b"lost"], 0)
    disk.close(file)


def test_a_commit_that_is_cut_off_is_refused_with_its_reason(disk: Disk) -> None:
    file = disk.create("a")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as refused:
            disk.commit(file, [b"x" * 60, b"y" * 60], 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert refused.value.errno == errno.EFBIG
    assert disk.read(file, 200, 0) == b"x" * 60 + b"y" * 40
    disk.close(file)


def test_a_file_that_cannot_be_written_or_synced_is_refused(disk: Disk) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OSError, match=os.strerror(errno.ESPIPE)):
        disk.commit(writing, [b"x"], 0)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        disk.commit(writing, [], 0)
    os.close(writing)


def test_more_pieces_than_a_commit_has_are_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    file = disk.create("a")
    with pytest.raises(ValueError, match="9 pieces"):
        disk.commit(file, [b"x"] * 9, 0)
    assert disk.size(file) == 0
    disk.close(file)
