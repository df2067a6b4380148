"""The files of a deleted queue go, and stay gone."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

import shmq
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erase_queue, erasure_note, finish_erasures
from shmq.disk.storage.file_header import hash_key_of
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from tests.support.failing_disk import ShortDisk


def file(folder: Path, name: str, key: int) -> Path:
    """A file that begins as one of the queue's with that hash key does."""
    path = folder / name
    path.write_bytes(struct.pack("<4s20xQ", b"DMSQ", key) + bytes(64))
    return path


def left(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Two queues; of one there are two lives."""
    file(tmp_path, "jobs.dmsq", 7)
    file(tmp_path, "jobs@0000000000000003.dmsq", 7)
    file(tmp_path, "jobs@0000000000000004.dmsq", 8)
    file(tmp_path, "others.dmsq", 7)
    return tmp_path


def test_the_files_of_one_life_go_and_no_others(full: Path) -> None:
    assert erase_queue(Disk(full), "jobs", 7)

    assert left(full) == ["jobs@0000000000000004.dmsq", "others.dmsq"]


def test_a_queue_that_cannot_be_read_takes_all_of_its_lives_along(full: Path) -> None:
    assert erase_queue(Disk(full), "jobs")

    assert left(full) == ["others.dmsq"]
    assert not erase_queue(Disk(full), "jobs")


class Cut(Exception):
    """The process was killed."""


class Dying(Disk):
    """Is killed at its ``calls``-th change of the directory."""

    def __init__(self, directory: Path, calls: int) -> None:
        super().__init__(directory)
        self._get_left = calls

    def _live(self) -> None:
        self._get_left -= 1
        if self._get_left < 0:
            raise Cut

    def create(self, name: str) -> int:
        self._live()
        return super().create(name)

    def write(self, file, pieces, offset):  # type: ignore[no-untyped-def]
        self._live()
        return super().write(file, pieces, offset)

    def unlink(self, name: str) -> None:
        self._live()
        super().unlink(name)


@pytest.mark.parametrize("calls", range(6))
def test_an_interrupted_erasure_leaves_all_files_or_a_note(full: Path, calls: int) -> None:
    before = {name for name in left(full) if name.startswith("jobs")}
    try:
        erase_queue(Dying(full, calls), "jobs")
    except Cut:
        there = set(left(full)) - {"others.dmsq"}
        assert erasure_note("jobs") in there or there in ({*before}, set())
        noted = (full / erasure_note("jobs")).stat().st_size if erasure_note("jobs") in there else 0

        assert finish_erasures(Disk(full)) == (["jobs"] if erasure_note("jobs") in there else [])

        gone = noted or not there
        assert set(left(full)) - {"others.dmsq"} == (set() if gone else before)
    else:
        assert left(full) == ["others.dmsq"]


def test_a_disk_that_writes_in_small_pieces_gets_the_whole_note(full: Path) -> None:
    erase_queue(ShortDisk(full), "jobs", 7, last=False)
    file(full, "jobs@0000000000000005.dmsq", 7)

    finish_erasures(Disk(full))

    assert left(full) == ["jobs@0000000000000004.dmsq", "others.dmsq"]


def test_the_note_stays_for_the_writer_that_may_be_making_a_file(full: Path) -> None:
    erase_queue(Disk(full), "jobs", 7, last=False)
    file(full, "jobs@0000000000000005.dmsq", 7)  # it was

    assert finish_erasures(Disk(full)) == ["jobs"]

    assert left(full) == ["jobs@0000000000000004.dmsq", "others.dmsq"]


def test_a_file_without_a_header_has_no_hash_key(tmp_path: Path) -> None:
    (tmp_path / "a.dmsq").write_bytes(b"")
    (tmp_path / "b.dmsq").write_bytes(bytes(64))

    assert [hash_key_of(Disk(tmp_path), f"{name}.dmsq") for name in "abc"] == [None] * 3


# ---- with queues ----


@pytest.fixture
def kept(namespace: str, tmp_path: Path, broker: shmq.Broker) -> Path:
    """A directory of the namespace without a writer."""
    directory = DataDirectory(namespace, Disk(tmp_path / "d"))
    directory.ready()
    directory.close()
    return directory.path


def key_of(namespace: str, queue: str) -> int:
    return Namespace.of(namespace).open_segment(queue).hash_key


def test_deleting_a_durable_queue_removes_its_files(
    namespace: str, broker: shmq.Broker, kept: Path
) -> None:
    broker.create_queue("jobs", durability="journal", dead_letter=None)
    file(kept, "jobs.dmsq", key_of(namespace, "jobs"))
    file(kept, "jobs@0000000000000009.dmsq", 5)

    broker.delete_queue("jobs")

    assert left(kept) == ["jobs@0000000000000009.dmsq", "writer.lock"]


def test_deleting_a_queue_of_memory_touches_no_file(
    namespace: str, broker: shmq.Broker, kept: Path
) -> None:
    broker.create_queue("jobs", dead_letter=None)
    file(kept, "jobs.dmsq", key_of(namespace, "jobs"))

    broker.delete_queue("jobs")

    assert left(kept) == ["jobs.dmsq", "writer.lock"]


def test_a_deletion_that_cannot_remove_the_files_says_so_and_is_finished_later(
    namespace: str, broker: shmq.Broker, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_queue("jobs", durability="snapshot", dead_letter=None)
    file(kept, "jobs.dmsq", key_of(namespace, "jobs"))

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Disk, "unlink", fail)
        with pytest.raises(shmq.ShmqError, match=r"not its files in .*: Input/output error"):
            broker.delete_queue("jobs")

    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("jobs")
    assert left(kept) == ["writer.lock"]


def test_a_note_is_written_whole_however_little_is_written_at_once(full: Path) -> None:
    erase_queue(ShortDisk(full), "jobs", last=False)

    raw = (full / erasure_note("jobs")).read_bytes()
    assert {key for (key,) in struct.iter_unpack("<Q", raw)} == {7, 8}
