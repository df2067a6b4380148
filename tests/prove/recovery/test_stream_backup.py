"""A backup has streams, and what else the namespace has on disk; a restore puts it back."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.disk.persistence.backup import backup
from shmq.disk.persistence.definitions import _make_header
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.map_file import write_map
from shmq.disk.storage.paths import CARD, EXCHANGES
from shmq.disk.storage.stream_meta import read_card
from tests.prove.recovery.tools import Persist, lose
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def shell(namespace: str) -> Iterator[Shell]:
    """Runs the command in the test's namespace."""
    made = Shell(namespace)
    yield made
    made.close()


def values(stream: shmq.Stream, partition: int = 0) -> list[bytes]:
    """All records of a partition."""
    found: list[bytes] = []
    bounds = stream.offsets()[partition]
    while len(found) < bounds.latest - bounds.earliest:
        found += stream.read(partition, bounds.earliest + len(found)).values()
    return found


def test_a_backup_has_what_the_groups_have_committed_right_before_it(
    persist: Persist, tmp_path: Path
) -> None:
    with shmq.connect(persist.namespace) as broker:
        stream = broker.create_stream("events", 1, durability="journal")
        with stream.group("g", start="earliest").join() as member:
            for number in range(5):
                stream.append(b"x", confirm="disk", timeout=PATIENCE)
                eventually(lambda: member.poll(timeout=PATIENCE) != [], "the record is read")
                member.commit()

                copy = tmp_path / f"copy {number}"
                backup(persist.directory, [], ["events"], copy)

                (folder,) = {file.parent for file in copy.rglob(CARD)}
                found = read_card(Disk(folder))
                assert found is not None
                assert found[1].groups["g"]["committed"] == [number + 1]


def test_a_stream_comes_back_from_a_backup_with_its_offsets_and_groups(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    with shmq.connect(persist.namespace) as broker:
        stream = broker.create_stream("events", partitions=2, durability="journal")
        for at in range(20):
            stream.append(b"%d" % at, partition=at % 2, confirm="disk", timeout=PATIENCE)
        with stream.group("g", start="earliest").join() as member:
            member.poll(timeout=PATIENCE)
            while any(member.lag().values()):
                member.poll(timeout=PATIENCE)
            member.commit()
    header = _make_header(persist.namespace)
    write_map(Disk(persist.directory), EXCHANGES, ".definitions.tmp", header, {"operations": []})
    definitions = (persist.directory / EXCHANGES).read_bytes()

    done = shell("backup", str(tmp_path / "copy"), "--json").json

    assert [one["stream"] for one in done["streams"]] == ["events"]
    assert [one["file"] for one in done["files"]] == ["writer.exchanges"]
    with shmq.connect(persist.namespace) as broker:
        broker.stream("events").append(b"later", partition=0)
        broker.delete_stream("events")
    (persist.directory / "writer.exchanges").unlink()
    assert shell("restore", str(tmp_path / "copy")).lines == [
        "stream 'events': restored, 20 records",
        "file 'writer.exchanges': restored, for the next writer that starts",
    ]
    persist.hears("stream events is kept", 2)
    assert (persist.directory / "writer.exchanges").read_bytes() == definitions
    for _ in range(2):
        with shmq.connect(persist.namespace) as broker:
            stream = broker.stream("events")
            assert values(stream) == [b"%d" % at for at in range(0, 20, 2)]
            assert values(stream, 1) == [b"%d" % at for at in range(1, 20, 2)]
            assert stream.group("g").lag() == {0: 0, 1: 0}
        (persist.directory / "writer.exchanges").unlink(missing_ok=True)
        persist.reboot()


#: More messages than a slow machine puts while it makes the copies.
MOST = 200_000


def test_a_backup_of_streams_in_use_is_one_moment_of_a_transaction(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    with shmq.connect(persist.namespace) as broker:
        stream = broker.create_stream("events", partitions=1, durability="journal")
        queue = broker.create_queue("jobs", capacity=MOST, durability="journal", dead_letter=None)
        stop = threading.Event()

        def both() -> None:
            at = 0
            while not stop.is_set():
                with broker.transaction() as transaction:
                    transaction.append(stream, b"%d" % at)
                    transaction.put(queue, at)
                at += 1

        thread = threading.Thread(target=both)
        thread.start()
        try:
            for number in range(3):
                shell("backup", str(tmp_path / f"copy{number}"))
        finally:
            stop.set()
            thread.join()
    persist.end()
    own = persist.directory
    for number in range(3):
        lose(persist.namespace)
        shutil.rmtree(own)  # the copy is the namespace's directory from now on
        own = tmp_path / f"copy{number}"
        second = Persist(persist.namespace, own)
        try:
            second.begin()
            with shmq.connect(persist.namespace) as broker:
                records = sorted(int(one) for one in values(broker.stream("events")))
                messages = sorted(one.body for one in broker.queue("jobs").peek(MOST))
            assert records == messages == list(range(len(records)))
            second.end()
        finally:
            second.kill()
