"""The only way to the disk, and what is written through it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from shmq.disk.storage.disk import Disk, write_pushed, write_whole
from shmq.disk.storage.paths import aside_names, catalog, segment_name, snapshot_name, unfinished
from tests.support.failing_disk import FailingDisk, ShortDisk


def test_only_its_user_may_enter_the_directory_or_read_its_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state" / "shmq" / "shop")
    before = os.umask(0)
    try:
        disk.make()
        disk.close(disk.create("orders.dmsq"))
    finally:
        os.umask(before)

    assert stat.S_IMODE(disk.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(disk.path("orders.dmsq").stat().st_mode) == 0o600
    disk.make()  # it is there already


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(PermissionError, match="has mode 0755, so others may read"):
        Disk(tmp_path).make()


def test_a_directory_that_is_not_there_has_no_names(tmp_path: Path) -> None:
    assert Disk(tmp_path / "none").names() == []


def test_a_file_is_made_only_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.close(disk.create("a"))
    with pytest.raises(FileExistsError):
        disk.create("a")


def test_a_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Disk(tmp_path).open("a")


@pytest.mark.parametrize("kind", [Disk, ShortDisk])
def test_what_is_written_in_pieces_is_there_whole(tmp_path: Path, kind: type[Disk]) -> None:
    disk = kind(tmp_path)
    pieces: list[bytes | memoryview] = [b"x" * 5, b"", memoryview(b"y" * 20), *[b"z"] * 2000]
    file = disk.create("a")

    end = write_whole(disk, file, pieces, 3)

    whole = b"\0\0\0" + b"".join(pieces)
    assert end == disk.size(file) == len(whole)
    assert disk.read(file, 1 << 20, 0) == whole
    disk.close(file)


def test_a_disk_that_writes_nothing_has_failed(tmp_path: Path) -> None:
    class Nothing(Disk):
        def write(self, *_: object) -> int:
            return 0

    disk = Nothing(tmp_path)
    file = disk.create("a")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_whole(disk, file, [b"x"], 0)
    disk.close(file)


def test_a_file_system_that_takes_no_advice_is_written_to_all_the_same(tmp_path: Path) -> None:
    class Unadvised(Disk):
        def push(self, *_: object) -> None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    disk = Unadvised(tmp_path)
    file = disk.create("a")
    whole = bytes(range(256)) * (5 << 10)
    assert write_pushed(disk, file, [whole[:300], whole[300:]], 0) == len(whole)
    assert disk.read(file, 1 << 21, 0) == whole
    disk.close(file)


def test_a_failing_disk_fails_where_it_is_told_to(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path, range(2, 3), errno.ENOSPC)
    file = disk.create("a")
    with pytest.raises(OSError, match="No space"):
        disk.write(file, [b"abcd"], 0)
    assert disk.read(file, 9, 0) == b"ab"
    disk.close(file)


def test_the_files_of_a_directory_are_told_by_their_queue() -> None:
    names = [
        *(segment_name("a", number) for number in (12, 2)),
        snapshot_name("a"),
        unfinished("a"),
        snapshot_name("a.dmsq"),
        segment_name("-b:.", 1),
        "a.dmsq.0000000000000abc",
        "writer.lock",
        "a@12.dmsq",
        "a@@0000000000000001.dmsq",
        ".dmsq",
    ]
    found = catalog(names)

    assert sorted(found) == ["-b:.", "a", "a.dmsq"]
    a = found["a"]
    assert (a.snapshot, a.unfinished, a.segments) == (True, True, [2, 12])
    assert sorted(a.names()) == sorted(names[:4])


def test_files_that_are_set_aside_together_have_one_number() -> None:
    files = {"a.dmsq": 0xABC, segment_name("a", 1): 0xABC, segment_name("a", 2): None}
    key = "0000000000000abc"

    assert aside_names(files, [f"{segment_name('a', 1)}.{key}"]) == {
        name: f"{name}.{key}.2" for name in files
    }
    assert aside_names({**files, "a.dmsq": 1}, []) == {
        "a.dmsq": "a.dmsq.0000000000000001",
        segment_name("a", 1): f"{segment_name('a', 1)}.{key}",
        segment_name("a", 2): f"{segment_name('a', 2)}.0000000000000000",
    }


def test_a_file_in_the_place_of_the_directory_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(NotADirectoryError, match="is not a directory"):
        Disk(tmp_path / "file").make()
