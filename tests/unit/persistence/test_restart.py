"""Writers that are killed, and the next one, which goes on where the last one was."""

from __future__ import annotations

import random

import pytest

import shmq
from shmq.disk.persistence.journal_writer import JournalWriter
from shmq.disk.persistence.snapshot import SnapshotWriter
from shmq.disk.storage.paths import catalog, snapshot_name
from tests.support.manual_writer import ManualWriter, run_out
from tests.support.queue_chain import chain


def test_the_next_writer_goes_on_in_a_segment_of_its_own(writer: ManualWriter) -> None:
    queue = writer.create()
    first = writer.follow()
    queue.put_many([b"a", b"b"])
    run_out(first)
    writer.kill(first)
    queue.get().ack()
    queue.put(b"c")

    second = writer.follow()
    run_out(second)

    assert catalog(writer.disk.names())["q"].segments == [1, 2]
    assert [fields["body"] for _, fields in sorted(chain(writer.disk, "q").items())] == [b"b", b"c"]


def test_what_was_written_and_not_published_is_written_again(writer: ManualWriter) -> None:
    queue = writer.create()
    first = writer.follow()
    queue.put(b"a")
    run_out(first)
    queue.put_many([b"b", b"c"])
    write_unpublished(first)
    writer.kill(first)
    queue.get().ack()
    queue.get().ack()

    second = writer.follow()
    run_out(second)

    assert sorted(chain(writer.disk, "q")) == [3]
    assert queue.qsize() == 1


def test_a_segment_that_was_begun_and_never_used_makes_room(writer: ManualWriter) -> None:
    queue = writer.create()
    first = writer.follow()
    queue.put(b"a")
    run_out(first)
    first.journal.roll()
    first.journal.ready(2)
    writer.disk.path("q@0000000000000002.dmsq").write_bytes(b"torn")
    writer.kill(first)

    second = writer.follow()
    queue.put(b"b")
    run_out(second)

    assert catalog(writer.disk.names())["q"].segments == [1, 2]
    assert sorted(chain(writer.disk, "q")) == [1, 2]


def test_a_snapshot_that_was_not_whole_is_removed(writer: ManualWriter) -> None:
    queue = writer.create()
    first = writer.follow()
    queue.put(b"a")
    run_out(first)
    snapshot, scan = first._begin()
    snapshot.write(scan, 4096)
    writer.kill(first)

    second = writer.follow()
    run_out(second)
    files = catalog(writer.disk.names())["q"]
    assert (files.snapshot, files.unfinished) == (False, False)
    assert sorted(chain(writer.disk, "q")) == [1]


def test_a_restarted_writer_knows_what_the_snapshot_covers(writer: ManualWriter) -> None:
    queue = writer.create()
    first = writer.follow()
    queue.put(b"a")
    run_out(first)
    first.snapshot()
    queue.put(b"b")
    run_out(first)
    writer.kill(first)

    second = writer.follow()
    with second.held():
        parts = dict(second.parts())
    assert list(parts) == [snapshot_name("q"), "q@0000000000000002.dmsq"]
    second.snapshot()
    assert sorted(chain(writer.disk, "q")) == [1, 2]


def test_killed_at_random_moments_it_loses_and_doubles_nothing(writer: ManualWriter) -> None:
    chance = random.Random(7)
    queue = writer.create(retry_delay=0.0, capacity=200)
    journal_writer = writer.follow()
    live: set[int] = set()
    for _ in range(300):
        draw = chance.random()
        if draw < 0.7:
            use(queue, chance, draw, live)
        elif draw < 0.9:
            journal_writer.step()
        elif draw < 0.93:
            journal_writer.snapshot()
        else:
            if chance.random() < 0.5:
                write_unpublished(journal_writer)
            writer.kill(journal_writer)
            journal_writer = writer.follow()
    run_out(journal_writer)
    assert set(chain(writer.disk, "q")) == live
    assert queue.qsize() == len(live)


def use(queue: shmq.Queue, chance: random.Random, draw: float, live: set[int]) -> None:
    """Put, acknowledge, or return; ``live`` is what is in the queue."""
    if draw < 0.4 and len(live) < 50:
        live |= {queue.put(b"x" * 100).sequence for _ in range(chance.randint(1, 9))}
        return
    for message in queue.get_many(chance.randint(1, 9), block=False):
        if draw < 0.6:
            message.ack()
            live.remove(message.sequence)
        else:
            message.nack()


def write_unpublished(journal_writer: JournalWriter) -> None:
    """A commit gets to the disk, and the writer dies before it says so."""
    collected = journal_writer.follower.collect(
        1 << 16, journal_writer.journal.ready(journal_writer.follower.batch + 1)
    )
    if collected is not None and len(collected.data):
        journal_writer.journal.append(collected)


def test_files_of_another_queue_of_that_name_are_set_aside(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put(b"old")
    run_out(journal_writer)
    journal_writer.snapshot()
    key = journal_writer.identity.key
    writer.kill(journal_writer)
    (writer.disk.directory / "q.dmsq").rename(writer.disk.directory / "other")
    writer.broker.delete_queue("q")
    for path in writer.disk.directory.glob("*q*"):
        path.unlink()
    (writer.disk.directory / "other").rename(writer.disk.directory / "q.dmsq")

    writer.create()
    journal_writer = writer.follow()
    run_out(journal_writer)

    assert f"q.dmsq.{key:016x}" in writer.disk.names()
    assert chain(writer.disk, "q") == {}


def test_a_snapshot_that_ends_behind_its_queue_removes_no_segment_of_the_next_one(
    writer: ManualWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = writer.create(dead_letter=None)
    journal_writer = writer.follow()
    queue.put(b"old")
    run_out(journal_writer)
    written = SnapshotWriter.snapshot

    def overtaken(self: SnapshotWriter) -> None:
        """What other threads may do before the segments are removed."""
        monkeypatch.undo()
        written(self)
        writer.broker.delete_queue("q")
        self.close()
        writer.create(dead_letter=None).put(b"new")
        run_out(writer.follow())

    monkeypatch.setattr(SnapshotWriter, "snapshot", overtaken)
    journal_writer.snapshot()

    assert [fields["body"] for fields in chain(writer.disk, "q").values()] == [b"new"]


def test_the_files_of_a_deleted_queue_are_removed(
    writer: ManualWriter, broker: shmq.Broker
) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put(b"a")
    run_out(journal_writer)
    broker.delete_queue("q")
    assert journal_writer.deleted
    journal_writer.close()
    assert catalog(writer.disk.names()) == {}
