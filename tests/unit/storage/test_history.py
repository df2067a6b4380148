"""The history of a data directory survives torn writes, full disks and unusual paths."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.history import HISTORY, History, read_history, write_history

PATHS = [Path("/data"), Path("/数据/é\n"), Path(os.fsdecode(b"/\xff\xfe")), Path("/" + "x" * 4000)]


def test_a_directory_without_a_history_has_the_default_one(tmp_path: Path) -> None:
    assert read_history(Disk(tmp_path)) == read_history(Disk(tmp_path / "none")) == History()


@pytest.mark.parametrize("path", PATHS)
def test_what_is_written_is_read(path: Path, tmp_path: Path) -> None:
    for number in range(1, 6):
        history = History(number, tuple(range(1, number)), path, path if number % 2 else None)
        write_history(Disk(tmp_path), history)
        assert read_history(Disk(tmp_path)) == history
    assert [path.name for path in tmp_path.iterdir()] == [HISTORY]


def test_every_memory_is_followed_by_the_next_and_the_oldest_are_forgotten() -> None:
    history = History()
    for memory in range(1, 300):
        history = history.joined(memory)
        assert history.joined(memory) == history
    assert history == History(299, tuple(range(199, 299)))


def test_a_torn_write_leaves_the_one_before(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    write_history(disk, History(1))
    write_history(disk, History(2, (1,)))
    before = (tmp_path / HISTORY).read_bytes()
    write_history(disk, History(3, (1, 2)))
    after = (tmp_path / HISTORY).read_bytes()
    changed = [at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    for cut in range(changed[0], changed[-1] + 2):
        (tmp_path / HISTORY).write_bytes(after[:cut] + before[cut:])
        whole = cut > changed[-1]
        assert read_history(disk).memory == (3 if whole else 2)


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 30_000, b"{}", b"00000000 {}\n", b"\xff" * 50, b"0 \n", b"82f0215c null"]
)
def test_what_is_damaged_counts_as_missing_and_is_replaced(text: bytes, tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_bytes(text)
    assert read_history(Disk(tmp_path)) == History()
    write_history(Disk(tmp_path), History(7))
    assert read_history(Disk(tmp_path)) == History(7)


class Full(Disk):
    """A disk without room for another file."""

    def create(self, name: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        assert offset + sum(map(len, pieces)) <= self.size(file), "it needs more room"
        return super().write(file, pieces, offset)


def test_a_full_disk_has_room_for_it(tmp_path: Path) -> None:
    write_history(Disk(tmp_path), History(1))
    for number in range(2, 9):
        write_history(Full(tmp_path), History(number))
        assert read_history(Disk(tmp_path)) == History(number)


def test_paths_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    write_history(Disk(tmp_path), History(1))
    with pytest.raises(OSError, match="too long"):
        write_history(Disk(tmp_path), History(2, moved_to=Path("/" + "\n" * 9000)))
    assert read_history(Disk(tmp_path)) == History(1)
