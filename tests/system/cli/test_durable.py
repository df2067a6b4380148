"""Queues that are kept on disk, on the command line."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.host.namespace.namespace import Namespace
from tests.support.shell import Shell
from tests.support.waiting import eventually
from tests.support.writer_process import running_writer
from tests.system.cli.conftest import Quick


@pytest.fixture
def queue(shell: Shell, broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("jobs", durability="journal", dead_letter=None)


def test_confirmed_messages_are_on_disk(quick: Quick, queue: shmq.Queue) -> None:
    with running_writer(quick.namespace):
        ran = quick("produce", "-q", "jobs", "-m", "one", "--confirm", "disk")
        assert ran.text == "message 1 put on queue 'jobs'\n"
        assert queue.stats().journal_synced == 1

        ran = quick("produce", "-q", "jobs", "--confirm", "disk", stdin=b"two\nthree\n")
        assert ran.text == "2 messages put on queue 'jobs'\n"
        assert queue.stats().journal_synced == 3


def test_a_queue_that_no_writer_keeps_is_made_with_one_line_of_warning(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_AUTOSTART", "0")
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    ran = shell("create", "jobs", "--durability", "journal")
    assert ran.error.startswith("no persistence writer keeps queue 'jobs'")
    assert ran.error.endswith("shmq persist`")


def test_without_a_writer_it_says_what_to_start(quick: Quick, queue: shmq.Queue) -> None:
    for given in (("-m", "x"), ("-m", "x", "-m", "y")):
        ran = quick(
            "produce", "-q", "jobs", *given, "--confirm", "disk", "--timeout", "100ms",
            code=Code.REFUSED,
        )  # fmt: skip
        assert "shmq persist" in ran.error


def test_without_a_journal_it_is_refused(quick: Quick, broker: shmq.Broker) -> None:
    broker.create_queue("plain")
    ran = quick("produce", "-q", "plain", "-m", "x", "--confirm", "disk", code=Code.USAGE)
    assert "keeps no journal" in ran.error
    assert broker.queue("plain").qsize() == 0


def test_a_durable_queue_without_a_writer_is_told_of(quick: Quick, queue: shmq.Queue) -> None:
    queue.put(b"x")
    for command in (("stats",), ("stats", "-q", "jobs"), ("top", "--once")):
        assert "no persistence writer runs for it" in quick(*command).error
    ran = quick("doctor", code=Code.WRONG)
    assert "no persistence writer" in ran.text.replace("\n", " ")
    with running_writer(quick.namespace) as writer_process:
        writer_process.follows(queue)
        assert quick("stats").err == b""
        quick("doctor")


def test_the_slots_that_wait_for_a_missing_writer_are_counted(
    quick: Quick, queue: shmq.Queue
) -> None:
    with running_writer(quick.namespace) as writer_process:
        writer_process.follows(queue)
        queue.put_many([b"x", b"y", b"z"], confirm="disk", timeout=60)
        writer_process.kill()
    for message in queue.get_many(2):
        message.ack()
    queue.put(b"on no disk")
    assert queue.stats().journal_waiting == 2
    told = (
        "no persistence writer runs for it (messages: 1 not on disk, 2 settled, and keeping "
        "their slots until that is on disk)"
    )
    assert told in quick("doctor", "--json", code=Code.WRONG).text
    assert told in quick("stats", "-q", "jobs").error


def test_a_disk_that_fails_is_told_of(quick: Quick, queue: shmq.Queue) -> None:
    with running_writer(quick.namespace) as writer_process:
        writer_process.follows(queue)
        writer_process.fail(errno.ENOSPC)
        queue.put(b"x")
        eventually(lambda: queue.stats().journal_error is not None, "the disk has failed")
        for command in (("stats",), ("stats", "-q", "jobs"), ("top", "--once")):
            assert "No space left on device" in quick(*command).error
        row = quick("stats", "-q", "jobs", "--json").json
        assert row["journal_error"] == "No space left on device"
        assert row["journal_lag"] == 1


def test_a_damaged_file_ends_a_read_or_is_passed_over_and_told(
    quick: Quick, broker: shmq.Broker
) -> None:
    with running_writer(quick.namespace) as writer_process:
        stream = broker.create_stream(
            "s", 1, ring_bytes=64 << 10, segment_bytes=64 << 10, durability="journal"
        )
        for first in range(0, 2000, 200):
            values = [b"%06d" % n * 10 for n in range(first, first + 200)]
            stream.append_many(values, partition=0, confirm="disk", timeout=60.0)
        for path in writer_process.folder.rglob("00000000000000000000.dmsq"):
            data = bytearray(path.read_bytes())
            data[data.index(b"000100" * 10)] ^= 1
            path.write_bytes(data)
        ran = quick("stream", "read", "s", code=Code.SEGMENT)
        assert ran.out.count(b"\n") == 100
        assert "go on at 101" in ran.error
        ran = quick("stream", "read", "s", "--on-damage", "skip")
        assert ran.out.count(b"\n") == 1999
        assert "1 record skipped" in ran.error
        ran = quick("subscribe", "s", "--history", "none", "--timeout", "0", "--on-damage", "skip")
        assert ran.out.count(b"\n") == 1999
        assert "1 record skipped" in ran.error


def test_a_file_that_is_not_of_shmq_is_neither_backed_up_nor_restored(
    quick: Quick, queue: shmq.Queue, tmp_path: Path
) -> None:
    (tmp_path / "notes").touch()
    refused = quick("restore", str(tmp_path), code=Code.REFUSED).error
    assert f"{tmp_path} is neither a backup nor a data directory" in refused

    with running_writer(quick.namespace):
        queue.put(b"x", confirm="disk")
        own = Namespace.of(quick.namespace).roles.data_dir
        assert own is not None
        (own / "notes").touch()
        saved = quick("backup", str(tmp_path / "copy"), "--json").json
        assert ([one["queue"] for one in saved["queues"]], saved["files"]) == (["jobs"], [])
        (tmp_path / "copy" / "photo").touch()
        done = quick("restore", str(tmp_path / "copy"))
        assert done.lines[-1] == "file 'photo': not a file of shmq, and not copied"
        assert not (own / "photo").exists()


def test_a_snapshot_of_no_queue_is_an_empty_array(quick: Quick) -> None:
    ran = quick("snapshot", "--json")
    assert ran.json == []
    assert "has no durable queues" in ran.error
