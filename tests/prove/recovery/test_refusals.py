"""A name whose files a recovery did not bring back is not given to anything new."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from tests.prove.recovery.test_recovery import bodies, confirmed, damaged, flip, last_segment
from tests.prove.recovery.tools import Persist, lose
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE


@pytest.fixture
def shell(namespace: str) -> Iterator[Shell]:
    """Runs the command in the test's namespace."""
    made = Shell(namespace)
    yield made
    made.close()


def recorded(namespace: str, count: int, name: str = "events") -> None:
    """A stream with so many records, all of them on disk."""
    with shmq.connect(namespace) as broker:
        stream = broker.ensure_stream(name, partitions=1, durability="journal")
        for at in range(count):
            stream.append(b"%d" % at, confirm="disk", timeout=PATIENCE)


def newest(directory: Path, name: str = "events") -> Path:
    """The newest file of the stream's partition 0 that has records."""
    paths = sorted(directory.glob(f"streams/{name}.*/0/*.dmsq"))
    return max(paths, key=lambda path: (len(path.read_bytes().rstrip(b"\0")) > 500, path))


def broken(persist: Persist, count: int = 10) -> Path:
    """A stream with a damaged byte in its newest file, without a writer or memory."""
    recorded(persist.namespace, count)
    persist.kill()
    lose(persist.namespace)
    path = newest(persist.directory)
    flip(path, len(path.read_bytes().rstrip(b"\0")) // 2)
    return path


def test_the_name_of_a_damaged_queue_is_refused_with_the_file_and_what_to_do(
    persist: Persist,
) -> None:
    path = damaged(persist)
    before = sorted(path.parent.iterdir())
    persist.begin()

    with shmq.connect(persist.namespace) as broker:
        for ask in (broker.create_queue, broker.ensure_queue, broker.queue):
            with pytest.raises(shmq.DamagedFile, match="shmq restore --salvage -q jobs") as told:
                ask("jobs")
            assert told.value.path == str(path)
            assert "shmq delete --kind queue jobs" in str(told.value)
        assert not broker.has_queue("jobs")  # type: ignore[attr-defined]
    assert set(before) <= set(path.parent.iterdir())
    assert bodies(persist.namespace, "whole") == [0, 1, 2]
    assert "cut off" not in persist.log


def test_a_flipped_bit_in_the_newest_file_of_a_stream_refuses_its_name(persist: Persist) -> None:
    path = broken(persist)
    persist.begin()

    with shmq.connect(persist.namespace) as broker:
        for ask in (broker.create_stream, broker.ensure_stream, broker.stream):
            with pytest.raises(
                shmq.DamagedFile, match="shmq restore --salvage --stream events"
            ) as told:
                ask("events")
            assert told.value.path == str(path)
        assert broker.list_streams() == []


def test_a_queue_is_not_made_with_dead_letters_that_were_not_brought_back(persist: Persist) -> None:
    confirmed(persist.namespace, 10, "jobs.dlq")
    persist.kill()
    lose(persist.namespace)
    path = last_segment(persist.directory, "jobs.dlq")
    flip(path, len(path.read_bytes().rstrip(b"\0")) // 2)
    persist.begin()

    with shmq.connect(persist.namespace) as broker, pytest.raises(shmq.DamagedFile):
        broker.ensure_queue("jobs")


@pytest.mark.parametrize("at", [0, 700])
def test_what_is_deleted_as_it_is_gives_its_name_free(
    persist: Persist, shell: Shell, at: int
) -> None:
    confirmed(persist.namespace, 10)
    recorded(persist.namespace, 10)
    persist.kill()
    lose(persist.namespace)
    flip(last_segment(persist.directory), at)
    flip(newest(persist.directory), at)
    persist.begin()

    shell("delete", "--kind", "queue", "jobs", "--yes")
    shell("delete", "--kind", "stream", "events", "--yes")

    confirmed(persist.namespace, 1)
    recorded(persist.namespace, 1)
    persist.reboot()
    assert bodies(persist.namespace) == [0]
    with shmq.connect(persist.namespace) as broker:
        assert broker.stream("events").read(0, 0).values() == [b"0"]


@pytest.mark.debris
def test_a_queue_whose_memory_was_removed_is_not_hidden_by_a_new_one(
    persist: Persist, shell: Shell
) -> None:
    confirmed(persist.namespace, 3)
    Path(f"/dev/shm/shmq@{persist.namespace}@jobs").unlink()

    with (
        shmq.connect(persist.namespace) as broker,
        pytest.raises(shmq.FileError, match="shmq restore -q jobs"),
    ):
        broker.ensure_queue("jobs")
    shell("restore", "-q", "jobs")
    assert bodies(persist.namespace) == [0, 1, 2]


def test_files_of_which_nothing_was_ever_finished_refuse_no_name(persist: Persist) -> None:
    persist.end()
    (persist.directory / "jobs@0000000000000001.dmsq").write_bytes(b"\xa5" * 100)
    persist.begin()

    confirmed(persist.namespace, 1)
    persist.reboot()
    assert bodies(persist.namespace) == [0]


def test_the_tail_of_a_stream_that_is_cut_off_is_told_with_its_records(persist: Persist) -> None:
    recorded(persist.namespace, 10)
    persist.kill()
    lose(persist.namespace)
    path = newest(persist.directory)
    with path.open("r+b") as file:
        file.truncate(len(path.read_bytes().rstrip(b"\0")) - 8)

    persist.begin()

    with shmq.connect(persist.namespace) as broker:
        assert broker.stream("events").offsets()[0].latest == 9
    assert re.search(
        rf"stream events: the last commit in {path} was never finished: \d+ bytes from byte \d+ on "
        "are cut off, with 1 record of partition 0, from offset 9 on",
        persist.log,
    )


@pytest.mark.parametrize("running", [True, False])
def test_a_damaged_stream_is_salvaged_when_that_is_asked_for(
    persist: Persist, shell: Shell, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_DATA_DIR", str(persist.directory))
    path = broken(persist)
    if running:
        persist.begin()
    assert shell("restore", "--stream", "events", code=Code.WRONG).lines == [
        "stream 'events': damaged"
    ]

    done = shell("restore", "--stream", "events", "--salvage")

    assert done.lines == ["stream 'events': salvaged, 10 records"]
    told = done.err.decode()
    assert str(path) in told
    lost = re.search(r"the offsets (\d+) to (\d+) of partition 0", told)
    assert lost is not None and lost[1] == lost[2]
    if not running:
        persist.begin()
    persist.hears("stream events is kept")
    recorded(persist.namespace, 1)
    persist.reboot()
    with shmq.connect(persist.namespace) as broker:
        stream = broker.stream("events")
        assert stream.offsets()[0].latest == 11
        assert stream.read(0, int(lost[1]) + 1).values()[0] == b"%d" % (int(lost[1]) + 1)
        assert stream.read(0, 0).values()[0] == b"0"


def unreadable(persist: Persist) -> Path:
    """A stream with a directory in place of its newest file, and an intact queue."""
    confirmed(persist.namespace, 3)
    recorded(persist.namespace, 10)
    persist.kill()
    lose(persist.namespace)
    path = newest(persist.directory)
    path.rename(persist.directory.with_name("lost.dmsq"))
    path.mkdir()
    return path


def test_a_file_of_a_stream_that_cannot_be_read_stops_that_stream_alone(persist: Persist) -> None:
    path = unreadable(persist)
    persist.begin()

    assert bodies(persist.namespace) == [0, 1, 2]
    with (
        shmq.connect(persist.namespace) as broker,
        pytest.raises(shmq.FileError, match="shmq delete --kind stream events") as caught,
    ):
        broker.stream("events")
    assert f"{path} cannot be read: Is a directory" in str(caught.value)


def test_lists_and_the_doctor_name_what_was_not_recovered(
    persist: Persist, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_DATA_DIR", str(persist.directory))
    path = unreadable(persist)
    persist.begin()
    why = f"{path} cannot be read: Is a directory; so stream 'events' is not recovered"

    listed = shell("list")

    assert "jobs" in listed.lines[1]
    assert f"stream 'events' is not there: {why}" in listed.err.decode()
    found = shell("doctor", "--json", code=Code.WRONG).json["found"]
    assert [(one["kind"], one["name"]) for one in found] == [("stream", "events")]
    assert found[0]["what"].startswith(why)
    shell("restore", "--stream", "events", "--salvage")
    assert shell("list", "--kind", "queue").err == b""
    path.with_name(f"{path.name}.damaged").rmdir()


def test_a_stream_with_a_file_that_cannot_be_read_is_salvaged_without_it(
    persist: Persist, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_DATA_DIR", str(persist.directory))
    path = unreadable(persist)
    persist.begin()

    done = shell("restore", "--stream", "events", "--salvage")

    assert done.lines == ["stream 'events': salvaged, 0 records"]
    assert f"{path} cannot be read: Is a directory; lost: what was behind" in done.err.decode()
    aside = path.with_name(f"{path.name}.damaged")
    aside.rmdir()  # else nothing could delete the stream
    recorded(persist.namespace, 1)
    persist.reboot()
    with shmq.connect(persist.namespace) as broker:
        assert broker.stream("events").read(0, 0).values() == [b"0"]


def test_what_is_left_of_a_deleted_stream_stops_nobody(persist: Persist, shell: Shell) -> None:
    path = unreadable(persist)
    persist.begin()
    shell("delete", "--kind", "stream", "events", "-y", code=Code.REFUSED)
    persist.end()
    lose(persist.namespace)

    persist.begin()

    assert bodies(persist.namespace) == [0, 1, 2]
    recorded(persist.namespace, 1)
    left = path.parent.parent
    assert f"{left}, of a deleted stream, cannot be removed: Is a directory" in persist.log


def test_a_damaged_file_of_transactions_is_refused_with_what_to_do(
    persist: Persist, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_DATA_DIR", str(persist.directory))
    confirmed(persist.namespace, 3)
    recorded(persist.namespace, 3)
    persist.kill()
    lose(persist.namespace)
    (persist.directory / "writer.txn").write_bytes(b"\xff" * 200)
    ended = shell("persist", "-d", str(persist.directory), code=Code.SEGMENT)
    assert "writer.txn is damaged at byte 0" in ended.err.decode()
    assert "shmq restore --salvage" in ended.err.decode()

    done = shell("restore", "--salvage")

    assert done.lines == [
        "transactions: salvaged, 0 transactions completed",
        "queue 'jobs': restored, 3 messages",
        "stream 'events': restored, 3 records",
    ]
    assert (persist.directory / "writer.txn.damaged.1").read_bytes() == b"\xff" * 200
    persist.begin()
    assert bodies(persist.namespace) == [0, 1, 2]
