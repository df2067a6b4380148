"""The writer as it runs: threads, queues that come and go, its stop, its death."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import signal
import stat
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.client.local.stream import LocalStream
from shmq.disk.persistence import writer
from shmq.disk.persistence.journal_writer import JournalWriter
from shmq.disk.persistence.outage import RETRY
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.writer import Writer
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.inventory import others
from shmq.disk.storage.paths import EXCHANGES, catalog, snapshot_name
from shmq.disk.storage.writer_control import Control
from shmq.host.namespace.data_directory import DataDirectory
from shmq.model.codec.codecs import unpack_properties
from tests.support.failing_disk import FailingDisk
from tests.support.manual_writer import ManualWriter
from tests.support.processes import Child, Start
from tests.support.queue_chain import chain
from tests.support.stepwise_disk import StepwiseDisk
from tests.support.waiting import PATIENCE, eventually

SMALL = WriteSizes(segment=256 << 10, ahead=16 << 10, commit=64 << 10, chunk=64 << 10)


@contextlib.contextmanager
def writing(namespace: str, disk: Disk, sizes: WriteSizes = SMALL) -> Iterator[Writer]:
    """A writer that runs in a thread of this process."""
    directory = DataDirectory(namespace, disk)
    writer = Writer(namespace, directory, sizes)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        thread.join(PATIENCE)
        directory.close()
        assert not thread.is_alive()


def synced(queue: shmq.Queue, writer: Writer | None = None) -> None:
    """Return once all that was put is on disk, and all that was settled, too."""

    def is_so() -> bool:
        stats = queue.stats()
        return stats.journal_lag == 0 and stats.journal_waiting == 0

    eventually(is_so, "all is on disk")


def sequences(disk: Disk, queue: str = "q") -> list[int]:
    return sorted(chain(disk, queue))


def test_queues_that_come_later_are_kept_and_those_in_memory_are_not(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path / "data")
    with writing(namespace, disk) as writer:
        broker.create_queue("memory")
        assert not disk.directory.exists(), "there is nothing to keep yet"
        queue = broker.create_queue("q", durability="journal")
        queue.put(b"one", confirm="disk")
        broker.create_queue("s", durability="snapshot")
        kept = ["q", "q.dlq", "s", "s.dlq"]
        eventually(lambda: writer.followed() == kept, "all durable queues are followed")
    assert sequences(disk) == [1]
    assert stat.S_IMODE(disk.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in disk.directory.iterdir()} == {0o600}


def test_a_put_confirmed_on_disk_is_there_when_it_returns(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    with writing(namespace, disk):
        queue = broker.create_queue("q", durability="journal")
        for _ in range(20):
            sequence = queue.put(b"x", confirm="disk").sequence
            assert sequence in chain(disk, "q")


@pytest.mark.parametrize("durability", ["journal", "snapshot"])
@pytest.mark.parametrize("written_first", [True, False])
def test_the_error_of_a_failed_delivery_is_on_disk(
    broker: shmq.Broker, namespace: str, tmp_path: Path, durability: Any, written_first: bool
) -> None:
    disk = Disk(tmp_path)
    queue = broker.create_queue("q", durability=durability)
    queue.put(b"body", headers={"a": 1})
    with writing(namespace, disk) as writer:
        eventually(lambda: "q" in writer.followed(), "the queue is followed")
        if written_first and durability == "journal":
            synced(queue)
        for error in ("first", "second"):
            queue.get(timeout=PATIENCE).nack(0, error=error)
            if durability == "journal":
                synced(queue)
    (message,) = chain(disk, "q").values()
    properties = unpack_properties(message["meta"])
    assert properties["headers"] == {"a": 1}
    assert properties["error"]["line"] == "second"
    assert (message["body"], message["deliveries"]) == (b"body", 2)


def test_the_error_of_a_message_that_was_written_while_it_was_leased_is_on_disk(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    queue = broker.create_queue("q", durability="journal")
    queue.put(b"body")

    def has_on_disk(error: str) -> bool:
        properties = unpack_properties(chain(disk, "q")[1]["meta"])
        return bool(properties.get("error", {}).get("line") == error)

    with writing(namespace, disk):
        for error in ("first", "other"):  # of the same size
            message = queue.get(timeout=PATIENCE)
            queue.put(b"next", confirm="disk")  # the lease is written with it
            message.nack(0, error=error)
            eventually(functools.partial(has_on_disk, error), f"{error!r} is on disk")


def test_a_clean_stop_leaves_nothing_unwritten(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    journaled = broker.create_queue("q", durability="journal")
    snapped = broker.create_queue("s", durability="snapshot", snapshot_interval=1e6)
    with writing(namespace, disk) as writer:
        eventually(lambda: len(writer.followed()) == 4, "all are followed")
        for number in range(2000):
            journaled.put(b"%d" % number)
            snapped.put(b"%d" % number)
    assert len(sequences(disk)) == len(sequences(disk, "s")) == 2000
    assert not catalog(disk.names())["s"].segments


def test_a_snapshot_is_written_at_every_interval(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    queue = broker.create_queue("s", durability="snapshot", snapshot_interval=0.1)
    with writing(namespace, disk):
        for count in (1, 2, 3):
            queue.put(b"x")

            def is_there(count: int = count) -> bool:
                return snapshot_name("s") in disk.names() and len(sequences(disk, "s")) == count

            eventually(is_there, "the interval passes")


def test_a_snapshot_on_demand_is_newer_than_the_call(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    queues = [
        broker.create_queue("s", durability="snapshot"),
        broker.create_queue("q", durability="journal"),
    ]
    with writing(namespace, disk) as writer:
        eventually(lambda: len(writer.followed()) == 4, "all are followed")
        for queue in queues:
            queue.put(b"x")
        synced(queues[1])
        for name in ("s", "q"):
            writer.snapshot(name, PATIENCE)
            assert snapshot_name(name) in disk.names()
            assert sequences(disk, name) == [1]
        with pytest.raises(shmq.ShmqError, match="is not kept on disk"):
            writer.snapshot("none")


def test_a_deleted_queue_leaves_no_file_and_one_of_its_name_begins_anew(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    with writing(namespace, disk) as writer:
        for turn in range(5):
            queue = broker.create_queue("q", durability="journal", dead_letter=None)
            queue.put(b"%d" % turn, confirm="disk")
            assert [fields["body"] for fields in chain(disk, "q").values()] == [b"%d" % turn]
            if turn % 2:
                writer.snapshot("q", PATIENCE)
            broker.delete_queue("q")
        eventually(lambda: not catalog(disk.names()), "its files are gone")
    assert not [name for name in disk.names() if "q" in name]


@pytest.mark.prove
def test_files_that_are_gone_with_their_queue_are_no_failure(
    writer: ManualWriter, broker: shmq.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = writer.create()
    follower = writer.follow()
    queue.put(b"written")
    assert follower.step()
    queue.put(b"not yet")
    broker.delete_queue("q")
    for path in writer.disk.directory.iterdir():
        path.unlink()

    assert not follower.step()

    assert follower.error is None
    assert caplog.text == ""


def test_a_queue_that_cannot_be_kept_is_tried_again_and_not_all_the_time(
    broker: shmq.Broker, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_queue("q", durability="journal", dead_letter=None)
    tmp_path.chmod(0o700)
    damaged = tmp_path / snapshot_name("q")
    damaged.write_bytes(b"DMSQ")
    disk = CountingDisk(tmp_path)
    with writing(namespace, disk) as writer:
        eventually(lambda: "queue q is not kept on disk" in caplog.text, "it is said")
        began, before = time.monotonic(), disk.listed
        eventually(lambda: disk.listed >= before + 2, "it is tried again")
        assert time.monotonic() - began > RETRY
        damaged.unlink()
        eventually(lambda: writer.followed() == ["q"], "it is kept")
    assert caplog.text.count("is not kept on disk") == 1


def test_an_unexpected_error_ends_no_queue(
    broker: shmq.Broker, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create_queue("q", durability="journal", dead_letter=None)
    step, failures = JournalWriter.step, [ValueError("no such thing")]

    def fail_once(kept: JournalWriter) -> bool:
        if failures:
            raise failures.pop()
        return step(kept)

    monkeypatch.setattr(JournalWriter, "step", fail_once)
    with writing(namespace, Disk(tmp_path / "d")):
        eventually(lambda: not failures, "it has failed")
        queue.put(b"x")
        synced(queue)


class CountingDisk(StepwiseDisk):
    """Counts how often the queues are listed."""

    listed = 0

    def names(self) -> list[str]:
        self.listed += 1
        return super().names()


def test_a_second_writer_of_the_directory_is_refused(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    broker.create_queue("q", durability="journal")
    with writing(namespace, disk) as writer:
        eventually(lambda: len(writer.followed()) == 2, "the first one writes")
        directory = DataDirectory(namespace, Disk(tmp_path))
        with pytest.raises(shmq.ShmqError, match="writes there already"):
            Writer(namespace, directory).run()


def test_a_journal_that_moves_to_another_directory_is_whole_there(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    queue = broker.create_queue("q", durability="journal", dead_letter=None)
    with writing(namespace, Disk(tmp_path / "old")):
        queue.put_many([b"a", b"b"], confirm="disk")
        queue.get().ack()
        synced(queue)
    new = Disk(tmp_path / "new")

    with writing(namespace, new):
        queue.put(b"c", confirm="disk")

        assert sequences(new) == [2, 3]


def test_a_journal_whose_files_were_removed_is_written_anew(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    queue = broker.create_queue("q", durability="journal", dead_letter=None)
    disk = Disk(tmp_path)
    with writing(namespace, disk):
        queue.put_many([b"a", b"b"], confirm="disk")
    for name in catalog(disk.names())["q"].names():
        disk.unlink(name)

    with writing(namespace, disk):
        queue.put(b"c", confirm="disk")

        assert sequences(disk) == [1, 2, 3]


def test_a_journal_that_a_snapshot_covers_is_not_missed(
    broker: shmq.Broker, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = broker.create_queue("q", durability="journal", dead_letter=None)
    disk = Disk(tmp_path)
    with writing(namespace, disk) as writer:
        queue.put_many([b"a", b"b"], confirm="disk")
        writer.snapshot("q")

    with writing(namespace, disk):
        queue.put(b"c", confirm="disk")

        assert sequences(disk) == [1, 2, 3]
    assert "is not in" not in caplog.text


def test_a_disk_that_is_full_fails_what_waits_for_it_and_recovers_by_itself(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path, range(0), errno.ENOSPC)
    with writing(namespace, disk):
        queue = broker.create_queue("q", durability="journal")
        queue.put(b"before", confirm="disk")
        disk.failing = range(1 << 60)
        with pytest.raises(shmq.NotConfirmed) as caught:
            queue.put(b"while it is full", confirm="disk", timeout=PATIENCE)
        assert caught.value.sequence == 2
        assert "No space left" in str(queue.stats().journal_error)
        queue.put(b"in memory")
        assert queue.qsize() == 3
        disk.failing = range(0)
        synced(queue)
        assert queue.stats().journal_error is None
        queue.put(b"after", confirm="disk", timeout=PATIENCE)
    assert sequences(disk) == [1, 2, 3, 4]


def test_a_cut_has_what_all_queues_hold_at_one_moment(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path / "data")
    copies = Disk(tmp_path / "copies")
    copies.directory.mkdir()
    queue = broker.create_queue("q", durability="journal")
    with writing(namespace, disk) as writer:
        for number in range(3000):
            queue.put(b"%d" % number)
            if number == 2000:
                writer.snapshot("q", PATIENCE)
        queue.put(b"last", confirm="disk")
        for file in writer.cut(["q"], []):
            with os.fdopen(file.descriptor, "rb") as opened:
                copies.path(file.name).write_bytes(opened.read(file.bytes))
        queue.put(b"later", confirm="disk")
    assert sequences(copies) == list(range(1, 3002))


def write_until_killed(pipe: object, namespace: str, path: Path, sizes: WriteSizes) -> None:
    Writer(namespace, DataDirectory(namespace, Disk(path)), sizes).run()


def test_killed_writers_are_followed_by_others_and_nothing_is_lost_or_doubled(
    broker: shmq.Broker, namespace: str, tmp_path: Path, start: Start
) -> None:
    chance = random.Random(11)
    queue = broker.create_queue("q", durability="journal", retry_delay=0.0, max_deliveries=3)
    dead_letter_queue = broker.queue("q.dlq")
    live: set[int] = set()
    confirmed = 0
    for _ in range(12):
        child = start(write_until_killed, namespace, tmp_path, SMALL)
        for _ in range(chance.randint(1, 40)):
            for _ in range(chance.randint(1, 20)):
                live.add(queue.put(b"x" * chance.randint(0, 2000)).sequence)
            if chance.random() < 0.3:
                confirmed = queue.put(b"confirmed", confirm="disk", timeout=PATIENCE).sequence
                live.add(confirmed)
            for message in queue.get_many(chance.randint(1, 20), block=False):
                if chance.random() < 0.1:
                    message.reject()
                else:
                    message.ack()
                live.remove(message.sequence)
        child.signal(signal.SIGKILL)
        child.reap()
        child.kill()
    disk = Disk(tmp_path)
    moved = dead_letter_queue.stats().put
    with writing(namespace, disk):
        synced(queue)
        synced(dead_letter_queue)
    assert set(chain(disk, "q")) == live
    assert len(chain(disk, "q.dlq")) == dead_letter_queue.qsize() == moved > 0
    found = catalog(disk.names())["q"]
    assert confirmed and (found.segments or found.snapshot)


class _AboutToEnd(Writer):
    """It ends when nothing durable is in use; after its first look the child makes something."""

    looks = 0
    maker: Child

    def _in_use(self) -> bool:
        found = super()._in_use()
        self.looks += 1
        if self.looks == 1:
            self.maker.tell()
            self.maker.hear()
        return found


def _make(pipe: Connection, namespace: str, kind: str) -> None:
    with shmq.connect(namespace) as broker:
        pipe.send("connected")
        pipe.recv()
        made = getattr(broker, f"create_{kind}")("q", durability="journal")
        pipe.send("made")
        pipe.recv()
        made.close()


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_what_is_made_when_the_writer_is_about_to_end_keeps_it(
    kind: str, namespace: str, tmp_path: Path, start: Start
) -> None:
    maker = start(_make, namespace, kind)
    assert maker.hear() == "connected"
    directory = DataDirectory(namespace, Disk(tmp_path))
    with contextlib.closing(directory):
        writer = _AboutToEnd(namespace, directory, SMALL, idle=0.0)
        writer.maker = maker
        thread = threading.Thread(target=writer.run)
        thread.start()
        eventually(lambda: writer.looks > 2 or not thread.is_alive(), "it looks again, or ends")
        assert thread.is_alive(), "it ended, though something durable is open"
        maker.tell()
        maker.ends()
        writer.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


class _Interrupted(Writer):
    """It looks who uses its queues once one of them has been deleted; then it is stopped."""

    in_use: bool | None = None

    def __init__(self, broker: shmq.Broker, directory: DataDirectory) -> None:
        super().__init__(broker.namespace, directory, SMALL, idle=PATIENCE)
        self._broker = broker

    def _in_use(self) -> bool:
        if self.in_use is None and len(self.followed()) > 1:
            self._broker.delete_queue("gone")
            self.in_use = super()._in_use()
            self.stop()
        return super()._in_use()


def _hold_queue(pipe: Connection, namespace: str, name: str) -> None:
    with shmq.connect(namespace) as broker, contextlib.closing(broker.queue(name)):
        pipe.send("attached")
        pipe.recv()


@pytest.mark.parametrize("used", [True, False])
def test_a_queue_that_is_deleted_as_the_writer_looks_at_its_users_does_not_end_the_writer(
    used: bool, broker: shmq.Broker, namespace: str, tmp_path: Path, start: Start
) -> None:
    for name in ("gone", "stays"):
        broker.create_queue(name, durability="journal", dead_letter=None).close()
    user = start(_hold_queue, namespace, "stays" if used else "gone")
    assert user.hear() == "attached"
    directory = DataDirectory(namespace, Disk(tmp_path))
    with contextlib.closing(directory):
        writer = _Interrupted(broker, directory)
        writer.run()
    assert writer.in_use is used
    user.tell()
    user.ends()
    broker.delete_queue("stays")


def test_a_stream_that_is_deleted_as_its_transactions_are_reported_does_not_end_the_writer(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    stream = broker.create_stream("s", partitions=1, durability="journal")
    assert isinstance(stream, LocalStream)
    directory = DataDirectory(namespace, Disk(tmp_path / "data"))
    directory.claim(make=True)
    writer = Writer(namespace, directory, SMALL)
    transactions, part = writer._transactions, ("stream", "s", stream.identity)
    try:
        writer._streams.look_around()
        with broker.transaction() as transaction:
            transaction.append(stream, b"1")

        def has_happened() -> bool:
            transactions.mark()
            return bool(transactions.happened(part))

        eventually(has_happened, "the writer knows that the transaction was applied")
        stream.close()
        broker.delete_stream("s")
        writer._streams.note_groups()
        writer._streams.leave_deleted()
        transactions.mark()
        assert not transactions.open(part)
    finally:
        writer._streams.end()
        transactions.close()
        directory.close()


def test_a_file_that_is_removed_as_a_cut_opens_it_is_left_out(
    broker: shmq.Broker, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)

    def delete_listed(disk: Disk) -> list[str]:
        listed = others(disk)
        assert EXCHANGES in listed
        broker.delete_exchange("e")
        assert EXCHANGES not in disk.names()
        return listed

    with writing(namespace, disk) as running:
        queue = broker.create_queue("q", durability="journal", dead_letter=None)
        queue.put(b"1", confirm="disk")
        with contextlib.closing(Control(tmp_path, running)):
            broker.create_exchange("e").bind("q", key="q")
            monkeypatch.setattr(writer, "others", delete_listed)
            files = running.cut(["q"], [])
    for file in files:
        os.close(file.descriptor)
    assert {(file.kind, file.queue) for file in files} == {("queue", "q")}
