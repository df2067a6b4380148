"""What is set aside on disk is listed by the doctor, and restored by its name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.disk.persistence.conflicts import set_aside
from shmq.disk.persistence.definitions import recover_definitions
from shmq.disk.persistence.restore import restore_aside
from shmq.disk.persistence.stream_restore import Restored
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import DEFINITIONS, FileHeader
from shmq.disk.storage.map_file import write_map
from shmq.disk.storage.paths import EXCHANGES, segment_file, segment_name, snapshot_name, unfinished
from shmq.disk.storage.set_aside import files_aside
from shmq.disk.storage.transaction_file import TRANSACTIONS
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from tests.prove.recovery.tools import Persist, lose
from tests.support.queue_files import HASH_KEY, Building, put
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE

KEY = f"{HASH_KEY:016x}"
FILES = (snapshot_name("q"), segment_name("q", 1))


@pytest.fixture
def shell(namespace: str) -> Iterator[Shell]:
    """Runs the command in the test's namespace."""
    made = Shell(namespace)
    yield made
    made.close()


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


def life(own: DataDirectory, *seqs: int) -> list[str]:
    """Set aside a snapshot and a segment of queue q; their names now."""
    snapshot = Building.snapshot(1).batch(put(seqs[0], b"%d" % seqs[0])).close()
    journal = Building(first_batch=2, previous_end=0).batch(*(put(n, b"%d" % n) for n in seqs[1:]))
    (own.path / snapshot_name("q")).write_bytes(bytes(snapshot))
    (own.path / segment_name("q", 1)).write_bytes(bytes(journal))
    return [*set_aside(own.disk, "q", dict.fromkeys(FILES, HASH_KEY)).values()]


def bodies(namespace: str, name: str) -> list[Any]:
    with shmq.connect(namespace) as broker:
        return [message.body for message in broker.queue(name).peek(100)]


def test_a_queue_is_restored_from_the_files_that_were_set_aside_together(
    namespace: str, own: DataDirectory
) -> None:
    first, second = life(own, 1, 2), life(own, 1, 2, 3)

    done = restore_aside(namespace, second[1])

    assert done == Restored("queue", "q", "restored", 3)
    assert bodies(namespace, "q") == [b"1", b"2", b"3"]
    assert restore_aside(namespace, first[0], "older") == Restored("queue", "older", "restored", 2)
    assert set(first + second) <= set(own.disk.names())


def test_a_queue_of_that_name_or_its_files_are_never_in_the_way_of_one_set_aside(
    namespace: str, own: DataDirectory
) -> None:
    (file, _) = life(own, 1, 2)
    (own.path / segment_name("q", 1)).write_bytes(bytes(Building().batch(put(9))))

    with pytest.raises(shmq.QueueExists, match=r"--as NAME.*shmq restore -q q"):
        restore_aside(namespace, file)
    own.disk.unlink(segment_name("q", 1))
    restore_aside(namespace, file)
    with pytest.raises(shmq.QueueExists, match=r"queue 'q' exists.*--as NAME"):
        restore_aside(namespace, file)
    with pytest.raises(shmq.ShmqError, match=r"is called 'no.dmsq'.*shmq doctor"):
        restore_aside(namespace, "no.dmsq")


def test_what_is_set_aside_and_damaged_is_restored_with_salvage_alone(
    namespace: str, own: DataDirectory
) -> None:
    (file, segment) = life(own, 1, 2)
    raw = (own.path / segment).read_bytes()
    (own.path / segment).write_bytes(raw[:-4] + b"\xff" * 4 + raw)

    refused = restore_aside(namespace, segment)

    assert refused.state == "damaged"
    assert f"shmq restore --aside {file} --salvage" in refused.problems[-1]
    assert restore_aside(namespace, segment, salvage=True).state == "salvaged"
    assert bodies(namespace, "q")[0] == b"1"


def test_all_that_is_set_aside_is_listed_with_why(own: DataDirectory) -> None:
    disk, stream = own.disk, f"streams/s.{KEY}"
    life(own, 1, 2)
    disk.close(disk.create(f"{unfinished('a')}.{KEY}"))
    for name in (f"{EXCHANGES}.aside", f"{EXCHANGES}.aside.2", f"{TRANSACTIONS}.damaged.1"):
        (own.path / name).write_bytes(b"1234")
    for below in (f"{stream}.aside.2/0", f"{stream}/0"):
        (own.path / below).mkdir(parents=True)
        (own.path / below / segment_file(0)).write_bytes(b"12345")
    for name in ("astray", "astray.2", "damaged"):
        (own.path / stream / "0" / f"{segment_file(5)}.{name}").write_bytes(b"123")

    found = files_aside(own.path)

    assert [(one.kind, one.name, one.file, one.restorable) for one in found] == [
        ("definitions", EXCHANGES, f"{EXCHANGES}.aside", True),
        ("definitions", EXCHANGES, f"{EXCHANGES}.aside.2", True),
        ("queue", "a", f".a.dmsq.tmp.{KEY}", False),
        ("queue", "q", f"{FILES[0]}.{KEY}", True),
        *(("segment", "s", f"{stream}/0/{segment_file(5)}.{what}", False)
          for what in ("astray", "astray.2", "damaged")),
        ("stream", "s", f"{stream}.aside.2", True),
        ("transactions", TRANSACTIONS, f"{TRANSACTIONS}.damaged.1", False),
    ]  # fmt: skip
    assert [one.bytes for one in found if one.kind in {"segment", "stream"}] == [3, 3, 3, 5]
    assert all(one.why and one.written for one in found)


def test_the_doctor_tells_what_restores_and_what_removes_it(
    persist: Persist, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmq.connect(persist.namespace) as broker:
        stream = broker.create_stream("events", partitions=1, durability="journal")
        stream.append_many([b"0", b"1"], partition=0, confirm="disk", timeout=PATIENCE)
    shell("backup", str(tmp_path / "copy"))
    persist.end()
    lose(persist.namespace)
    (before,) = (persist.directory / "streams").iterdir()
    monkeypatch.setenv("SHMQ_DATA_DIR", str(persist.directory))
    shell("restore", str(tmp_path / "copy"))
    persist.begin()
    persist.hears("stream events is kept", 2)

    (one,) = shell("doctor", "--json").json["aside"]

    assert (one["kind"], one["name"]) == ("stream", "events")
    assert one["file"] == f"streams/{before.name}.aside"
    assert one["remove"] == f"rm -r {before}.aside"
    lines = [line.strip() for line in shell("doctor").lines]
    assert {one["restore"], one["remove"]} <= {*lines}
    again = shlex.split(one["restore"])[3:]
    assert "shmq delete --kind stream events" in shell(*again, code=Code.EXISTS).error
    with shmq.connect(persist.namespace) as broker:
        broker.delete_stream("events")
    assert shell(*again).lines == ["stream 'events': restored, 2 records"]
    persist.hears("stream events is kept", 3)
    with shmq.connect(persist.namespace) as broker:
        assert broker.stream("events").read(0, 0).values() == [b"0", b"1"]
    assert shell("doctor", "--json").json["aside"] == []


def test_a_second_damaged_file_of_definitions_leaves_the_first_as_it_is(
    namespace: str, own: DataDirectory
) -> None:
    for text in (b"first", b"second"):
        (own.path / EXCHANGES).write_bytes(text)
        recover_definitions(Namespace.of(namespace), own.disk)

    found = {one.file: (own.path / one.file).read_bytes() for one in files_aside(own.path)}
    assert found == {f"{EXCHANGES}.aside": b"first", f"{EXCHANGES}.aside.2": b"second"}


def test_definitions_come_back_if_they_can_be_read_and_nothing_would_write_over_them(
    namespace: str, own: DataDirectory
) -> None:
    header = FileHeader(
        kind=DEFINITIONS, name=namespace, options={}, salt=0, queue_id=0, hash_key=0, number=0,
        created=1,
    )  # fmt: skip
    whole, damaged = f"{EXCHANGES}.aside", f"{EXCHANGES}.aside.2"
    write_map(own.disk, whole, "new", header, {"operations": []})
    (own.path / damaged).write_bytes((own.path / whole).read_bytes()[:-1])

    with pytest.raises(shmq.ShmqError, match=r"writes in .* end it first"):
        restore_aside(namespace, whole)
    own.close()
    refused = restore_aside(namespace, damaged)
    assert (refused.state, len(refused.problems)) == ("damaged", 1)
    assert restore_aside(namespace, whole) == Restored("file", EXCHANGES, "restored")
    with pytest.raises(shmq.ShmqError, match=f"{EXCHANGES} exists"):
        restore_aside(namespace, damaged)
