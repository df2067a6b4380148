"""What has to be so of the files before a queue goes on from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.disk.persistence.conflicts import set_aside
from shmq.disk.persistence.recovery import plan, recover
from shmq.disk.persistence.restore import restore
from shmq.disk.persistence.stream_restore import _copy_stream
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erase_queue, finish_erasures
from shmq.disk.storage.paths import EXCHANGES, SCHEMAS, segment_name, snapshot_name
from shmq.disk.storage.progress import silent
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from tests.support.queue_files import HASH_KEY, Building, put


def held(directory: Path) -> dict[str, list[int]]:
    return {
        name: [fields["seq"] for fields in one.chain]
        for name, one in plan(Disk(directory)).items()
        if one.chain is not None
    }


def test_a_queue_beside_the_one_that_it_was_restored_from_loses_nothing_that_moved(
    tmp_path: Path,
) -> None:
    for name in ("jobs", "zcopy"):
        made = Building(name=name).batch(put(4), put(5))
        (tmp_path / segment_name(name, 1)).write_bytes(bytes(made))
    copies = Building(name="dead_letter_queues", hash_key=3)
    copies.batch(put(1, origin_queue=HASH_KEY, origin_seq=4))
    (tmp_path / segment_name("dead_letter_queues", 1)).write_bytes(bytes(copies))

    assert held(tmp_path) == {"dead_letter_queues": [1], "jobs": [4, 5], "zcopy": [4, 5]}

    (tmp_path / segment_name("zcopy", 1)).unlink()
    assert held(tmp_path) == {"dead_letter_queues": [1], "jobs": [5]}


# ---- into a namespace ----


@pytest.fixture
def own(namespace: str, tmp_path: Path) -> Iterator[DataDirectory]:
    """The directory of the namespace, which is being written in."""
    directory = DataDirectory(namespace, Disk(tmp_path / "own"))
    directory.ready()
    yield directory
    directory.close()
    with shmq.connect(namespace) as broker:
        for name in reversed([queue.name for queue in broker.list_queues()]):
            broker.delete_queue(name)
    Namespace.of(namespace).retire()


def test_what_a_queue_goes_on_from_is_on_disk_before_it_does(
    namespace: str, own: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own.path / segment_name("q", 1)).write_bytes(bytes(Building().batch(put(1))))
    synced: list[str] = []
    sync = Disk.sync

    def told(disk: Disk, file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        sync(disk, file)

    monkeypatch.setattr(Disk, "sync", told)
    (done,) = restore(namespace)

    assert (done.kind, done.state, done.count) == ("queue", "restored", 1)
    assert synced == [segment_name("q", 1)]


def test_how_far_the_restoration_of_one_large_queue_is_gets_reported(
    namespace: str, own: DataDirectory, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    made = Building(options={"capacity": 64, "arena_bytes": 64 << 20})
    for seq in range(1, 7):
        made.batch(put(seq, bytes(3 << 20)))
    (source / segment_name("q", 1)).write_bytes(bytes(made))
    seen: list[tuple[str, int, int]] = []

    (done,) = restore(namespace, source, report=lambda *step: seen.append(step))

    assert (done.kind, done.state, done.count) == ("queue", "restored", 6)
    for name in ("reading queues", "restoring queues"):
        steps = [(at, total) for step, at, total in seen if step == name]
        assert len({at for at, total in steps if 0 < at < total}) > 1, name
        assert steps == sorted(steps)
        assert (steps[0][0], steps[-1][0]) == (0, steps[-1][1])


def test_the_deletion_of_a_queue_does_not_reach_the_files_of_one_restored_since(
    namespace: str, own: DataDirectory, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    whole = bytes(Building.snapshot(1).batch(put(1)).close())
    (backup / snapshot_name("q")).write_bytes(whole)
    (own.path / snapshot_name("q")).write_bytes(whole)
    erase_queue(own.disk, "q", HASH_KEY, last=False)  # its writer dies before the last word

    restore(namespace, backup)
    (own.path / snapshot_name("q")).write_bytes(whole)  # the next writer keeps it
    finish_erasures(own.disk)

    assert snapshot_name("q") in own.disk.names()


def test_a_directory_without_files_of_shmq_is_refused_before_anything_is_written(
    namespace: str, own: DataDirectory, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "tables").mkdir(parents=True)
    for path in ("notes.txt", "writer.txt", "tables/prices.csv"):
        (source / path).write_text("x")
    before = own.disk.names()

    with pytest.raises(shmq.ShmqError, match="source is neither a backup nor a data directory"):
        restore(namespace, source)

    assert own.disk.names() == before


def test_files_that_are_not_of_shmq_are_named_and_not_copied(
    namespace: str, own: DataDirectory, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    stream = source / "streams" / f"s.{7:016x}"
    (stream / "0").mkdir(parents=True)
    (source / segment_name("q", 1)).write_bytes(bytes(Building().batch(put(1))))
    for path in ("notes.txt", EXCHANGES, f"streams/s.{7:016x}/0/notes.txt"):
        (source / path).write_text("x")
    (source / "link").symlink_to("notes.txt")
    (source / SCHEMAS).symlink_to("notes.txt")

    done = restore(namespace, source)

    assert [(one.kind, one.name, one.state) for one in done] == [
        ("queue", "q", "restored"),
        ("file", EXCHANGES, "damaged"),
        ("file", SCHEMAS, "damaged"),
        ("file", "link", "foreign"),
        ("file", "notes.txt", "foreign"),
        ("file", f"streams/s.{7:016x}/0/notes.txt", "foreign"),
    ]
    assert not {"link", "notes.txt", EXCHANGES, SCHEMAS}.intersection(own.disk.names())
    assert not own.disk.under("streams").exists()


def test_of_a_stream_only_its_own_files_are_copied(
    namespace: str, own: DataDirectory, tmp_path: Path
) -> None:
    source, target = Disk(tmp_path / "source"), Disk(tmp_path / "target")
    files = ["0/00000000000000000000.dmsq", "0/producers.dmsq", "stream.dmsq"]
    identity = f"streams/s.{7:016x}"
    for path in (*files, "notes.txt", "0/notes.txt", "more/00000000000000000000.dmsq"):
        (source.path(identity) / path).parent.mkdir(parents=True, exist_ok=True)
        (source.path(identity) / path).write_text("x")
    link = source.path(identity) / "0" / f"{1:020d}.dmsq"
    link.symlink_to("notes.txt")

    assert _copy_stream(source, target, "s", 7, silent) == [f"{link} is not a regular file"]

    copied = target.path(identity)
    assert sorted(str(p.relative_to(copied)) for p in copied.rglob("*") if p.is_file()) == files


def test_what_was_set_aside_before_is_not_written_over(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for text in ("first", "second", "third"):
        (tmp_path / "q.dmsq").write_text(text)
        set_aside(disk, "q", {"q.dmsq": 7})

    there = f"q.dmsq.{7:016x}"
    assert {name: (tmp_path / name).read_text() for name in disk.names()} == {
        there: "first",
        f"{there}.2": "second",
        f"{there}.3": "third",
    }


def test_a_restore_that_fails_leaves_the_files_as_they_were(
    namespace: str, own: DataDirectory, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    newer = Building(options={"capacity": 64, "colour": "red"}).batch(put(1))
    (backup / segment_name("q", 1)).write_bytes(bytes(newer))
    (own.path / segment_name("q", 1)).write_bytes(bytes(Building().batch(put(1))))
    before = own.disk.names()

    said = r"queue 'q' cannot be made as its files say: unknown option 'colour'"
    with pytest.raises(shmq.ShmqError, match=said):
        restore(namespace, backup)

    assert own.disk.names() == before


def test_options_that_are_not_known_stop_their_queue_and_no_other(
    own: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    newer = Building(name="a", options={"capacity": 64, "colour": "red"}).batch(put(1))
    (own.path / segment_name("a", 1)).write_bytes(bytes(newer))
    other = Building(name="b", hash_key=2).batch(put(1))
    (own.path / segment_name("b", 1)).write_bytes(bytes(other))

    recover(own)

    assert Namespace.of(own.namespace).queue_names() == ["b"]
    assert "queue a is not recovered" in caplog.text
