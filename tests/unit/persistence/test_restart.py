"""Writers that are killed, and the next one, which goes on where the last one was."""

from __future__ import annotations

import random

import pytest

import shmq
from shmq.persistence.journal_writer import JournalWriter
from shmq.persistence.snapshot import SnapshotWriter
from shmq.storage.paths import catalog, snapshot_name
from tests.support.manual_writer import Desk, run_out
from tests.support.queue_chain import chain


def test_the_next_writer_goes_on_in_a_segment_of_its_own(desk: Desk) -> None:
    queue = desk.create()
    first = desk.keep()
    queue.put_many([b"a", b"b"])
    run_out(first)
    desk.lose(first)
    queue.get().ack()
    queue.put(b"c")

    second = desk.keep()
    run_out(second)

    assert catalog(desk.disk.names())["q"].segments == [1, 2]
    assert [fields["body"] for _, fields in sorted(chain(desk.disk, "q").items())] == [b"b", b"c"]


def test_what_was_written_and_not_published_is_written_again(desk: Desk) -> None:
    queue = desk.create()
    first = desk.keep()
    queue.put(b"a")
    run_out(first)
    queue.put_many([b"b", b"c"])
    write_unpublished(first)
    desk.lose(first)
    queue.get().ack()
    queue.get().ack()

    second = desk.keep()
    run_out(second)

    assert sorted(chain(desk.disk, "q")) == [3]
    assert queue.qsize() == 1


def test_a_segment_that_was_begun_and_never_used_makes_room(desk: Desk) -> None:
    queue = desk.create()
    first = desk.keep()
    queue.put(b"a")
    run_out(first)
    first.journal.roll()
    first.journal.ready(2)
    desk.disk.path("q@0000000000000002.dmsq").write_bytes(b"torn")
    desk.lose(first)

    second = desk.keep()
    queue.put(b"b")
    run_out(second)

    assert catalog(desk.disk.names())["q"].segments == [1, 2]
    assert sorted(chain(desk.disk, "q")) == [1, 2]


def test_a_snapshot_that_was_not_whole_is_removed(desk: Desk) -> None:
    queue = desk.create()
    first = desk.keep()
    queue.put(b"a")
    run_out(first)
    snapshot, scan = first._begin()
    snapshot.write(scan, 4096)
    desk.lose(first)

    second = desk.keep()
    run_out(second)
    files = catalog(desk.disk.names())["q"]
    assert (files.snapshot, files.unfinished) == (False, False)
    assert sorted(chain(desk.disk, "q")) == [1]


def test_a_restarted_writer_knows_what_the_snapshot_covers(desk: Desk) -> None:
    queue = desk.create()
    first = desk.keep()
    queue.put(b"a")
    run_out(first)
    first.snapshot()
    queue.put(b"b")
    run_out(first)
    desk.lose(first)

    second = desk.keep()
    with second.held():
        parts = dict(second.parts())
    assert list(parts) == [snapshot_name("q"), "q@0000000000000002.dmsq"]
    second.snapshot()
    assert sorted(chain(desk.disk, "q")) == [1, 2]


def test_killed_at_random_moments_it_loses_and_doubles_nothing(desk: Desk) -> None:
    chance = random.Random(7)
    queue = desk.create(retry_delay=0.0, capacity=200)
    kept = desk.keep()
    live: set[int] = set()
    for _ in range(300):
        deed = chance.random()
        if deed < 0.7:
            use(queue, chance, deed, live)
        elif deed < 0.9:
            kept.step()
        elif deed < 0.93:
            kept.snapshot()
        else:
            if chance.random() < 0.5:
                write_unpublished(kept)
            desk.lose(kept)
            kept = desk.keep()
    run_out(kept)
    assert set(chain(desk.disk, "q")) == live
    assert queue.qsize() == len(live)


def use(queue: shmq.Queue, chance: random.Random, deed: float, live: set[int]) -> None:
    """Put, acknowledge, or return; ``live`` is what is in the queue."""
    if deed < 0.4 and len(live) < 50:
        live |= {queue.put(b"x" * 100).sequence for _ in range(chance.randint(1, 9))}
        return
    for message in queue.get_many(chance.randint(1, 9), block=False):
        if deed < 0.6:
            message.ack()
            live.remove(message.sequence)
        else:
            message.nack()


def write_unpublished(kept: JournalWriter) -> None:
    """A commit gets to the disk, and nobody is told."""
    collected = kept.follower.collect(1 << 16, kept.journal.ready(kept.follower.batch + 1))
    if collected is not None and len(collected.data):
        kept.journal.append(collected)


def test_files_of_another_queue_of_that_name_are_set_aside(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    queue.put(b"old")
    run_out(kept)
    kept.snapshot()
    key = kept.identity.hash_key
    desk.lose(kept)
    (desk.disk.directory / "q.dmsq").rename(desk.disk.directory / "other")
    desk.broker.delete_queue("q")
    for path in desk.disk.directory.glob("*q*"):
        path.unlink()
    (desk.disk.directory / "other").rename(desk.disk.directory / "q.dmsq")

    desk.create()
    kept = desk.keep()
    run_out(kept)

    assert f"q.dmsq.{key:016x}" in desk.disk.names()
    assert chain(desk.disk, "q") == {}


def test_a_snapshot_that_ends_behind_its_queue_removes_no_segment_of_the_next_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = desk.create(dead_letter=None)
    kept = desk.keep()
    queue.put(b"old")
    run_out(kept)
    written = SnapshotWriter.snapshot

    def overtaken(self: SnapshotWriter) -> None:
        """What other threads may do before the segments are removed."""
        monkeypatch.undo()
        written(self)
        desk.broker.delete_queue("q")
        self.close()
        desk.create(dead_letter=None).put(b"new")
        run_out(desk.keep())

    monkeypatch.setattr(SnapshotWriter, "snapshot", overtaken)
    kept.snapshot()

    assert [fields["body"] for fields in chain(desk.disk, "q").values()] == [b"new"]


def test_the_files_of_a_deleted_queue_are_removed(desk: Desk, broker: shmq.Broker) -> None:
    queue = desk.create()
    kept = desk.keep()
    queue.put(b"a")
    run_out(kept)
    broker.delete_queue("q")
    assert kept.deleted
    kept.close()
    assert catalog(desk.disk.names()) == {}
