"""One queue's journal, step by step: what is written, when, and what that sets free."""

from __future__ import annotations

import dataclasses
import errno

import pytest

import shmq
from shmq.disk.storage.paths import catalog, segment_name
from tests.support.failing_disk import ShortDisk
from tests.support.manual_writer import SMALL, ManualWriter, run_out
from tests.support.queue_chain import chain, record_types


def bodies(writer: ManualWriter, queue: str = "q") -> list[bytes]:
    return [fields["body"] for _, fields in sorted(chain(writer.disk, queue).items())]


def test_a_queue_has_a_file_before_anything_is_put(writer: ManualWriter) -> None:
    writer.create()
    assert not writer.follow().step()
    assert chain(writer.disk, "q") == {}


def test_what_was_put_is_on_disk_after_a_step_and_not_before(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    assert not journal_writer.step()

    put = queue.put(b"one")
    assert journal_writer.follower.synced == 0 and bodies(writer) == []

    assert journal_writer.step()
    assert journal_writer.follower.synced == put.sequence
    assert bodies(writer) == [b"one"]
    assert not journal_writer.step()


def test_what_gathered_goes_out_in_one_commit(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    journal_writer.step()
    queue.put_many([b"x"] * 50)

    assert journal_writer.step() and not journal_writer.step()

    kinds = record_types(writer.disk.path(segment_name("q", 1)).read_bytes())
    assert kinds == ["batch", *["put"] * 50]


def test_what_was_acknowledged_before_it_was_written_never_is(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    journal_writer.step()
    for _ in range(10):
        queue.put(b"gone")
        queue.get().ack()
    queue.put(b"stays")

    run_out(journal_writer)

    kinds = record_types(writer.disk.path(segment_name("q", 1)).read_bytes())
    assert kinds == ["batch", "put"]
    assert bodies(writer) == [b"stays"]
    assert journal_writer.follower.synced == 11


def test_a_slot_is_not_used_again_before_its_settlement_is_on_disk(writer: ManualWriter) -> None:
    queue = writer.create(capacity=2)
    journal_writer = writer.follow()
    queue.put_many([b"a", b"b"])
    run_out(journal_writer)

    queue.get().ack()
    assert queue.full()
    assert journal_writer.step()
    queue.put_nowait(b"c")
    run_out(journal_writer)
    assert bodies(writer) == [b"b", b"c"]


def test_more_than_a_commit_takes_follows_with_the_next(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put_many([bytes(1000)] * 30 + [bytes(100_000)])

    steps = 0
    while journal_writer.step():
        steps += 1
    assert steps >= 4
    assert [len(body) for body in bodies(writer)] == [1000] * 30 + [100_000]


def test_a_disk_that_writes_in_small_pieces_gets_it_all(writer: ManualWriter) -> None:
    writer.disk = ShortDisk(writer.disk.directory)
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put_many([b"abc" * 100] * 5)
    run_out(journal_writer)
    journal_writer.snapshot()
    queue.put(b"later")
    run_out(journal_writer)
    assert bodies(writer) == [b"abc" * 100] * 5 + [b"later"]


def test_a_segment_that_is_long_enough_is_closed_and_the_next_begun(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    for _ in range(20):
        queue.put(bytes(3000))
        run_out(journal_writer)

    segments = catalog(writer.disk.names())["q"].segments
    assert segments == list(range(1, len(segments) + 1)) and len(segments) > 2
    for number in segments[:-1]:
        kinds = record_types(writer.disk.path(segment_name("q", number)).read_bytes())
        assert kinds[-3:] == ["end", "index", "footer"]
    assert len(bodies(writer)) == 20


@pytest.mark.parametrize("ahead", [0, 4096, 1 << 20])
def test_zeros_are_written_ahead_of_small_commits_within_the_segment(
    writer: ManualWriter, ahead: int
) -> None:
    queue = writer.create()
    journal_writer = writer.follow(sizes=dataclasses.replace(SMALL, ahead=ahead))
    queue.put(b"small")
    run_out(journal_writer)

    length = writer.disk.path(segment_name("q", 1)).stat().st_size
    if ahead:
        assert journal_writer.journal.offset < length <= SMALL.segment
    else:
        assert length == journal_writer.journal.offset
    for _ in range(500):
        queue.put(b"small")
        run_out(journal_writer)
    assert len(bodies(writer)) == 501


def test_what_was_written_is_not_written_again_where_the_lock_cannot_be_had(
    writer: ManualWriter,
) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put(b"one")
    journal_writer.step()
    queue.get().ack()
    queue.put(b"two")
    journal_writer.handle.close()
    with pytest.raises(shmq.ShmqError, match="closed"):
        journal_writer.step()

    assert not journal_writer.pending
    assert journal_writer.follower.synced == 2 and bodies(writer) == [b"two"]


def test_a_commit_that_settles_nothing_takes_no_lock(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    journal_writer.step()
    queue.put(b"one")
    journal_writer.handle.close()  # its lock is refused from here on

    assert journal_writer.step()
    assert bodies(writer) == [b"one"]


def test_what_an_earlier_writer_failed_with_is_not_held_against_the_next(
    writer: ManualWriter,
) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    journal_writer.step()
    journal_writer.follower.fail(errno.ENOSPC)
    writer.kill(journal_writer)
    assert queue.stats().journal_error is not None

    assert not writer.follow().step()  # there is nothing to write, and never will be as it was
    assert queue.stats().journal_error is None


def test_a_delivery_that_failed_is_remembered(writer: ManualWriter) -> None:
    queue = writer.create(retry_delay=0.0)
    journal_writer = writer.follow()
    queue.put(b"hard")
    run_out(journal_writer)
    queue.get().nack()
    run_out(journal_writer)

    ((_, fields),) = chain(writer.disk, "q").items()
    assert fields["deliveries"] == 1


def test_a_purge_is_in_the_journal(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put_many([b"x"] * 10)
    run_out(journal_writer)
    queue.purge()
    run_out(journal_writer)
    assert bodies(writer) == []


def test_a_snapshot_takes_the_place_of_the_segments_before_it(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    for number in range(30):
        queue.put(bytes([number]) * 2000)
        run_out(journal_writer)
    queue.put(b"not on disk yet")

    journal_writer.snapshot()

    files = catalog(writer.disk.names())["q"]
    assert (files.snapshot, files.unfinished, files.segments) == (True, False, [])
    assert bodies(writer) == [bytes([number]) * 2000 for number in range(30)]
    run_out(journal_writer)
    assert bodies(writer)[-1] == b"not on disk yet"
    assert catalog(writer.disk.names())["q"].segments == [journal_writer.number]


def test_what_is_settled_while_a_snapshot_is_written_is_settled(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put_many([b"a", b"b", b"c"])
    run_out(journal_writer)
    message = queue.get()
    snapshot, scan = journal_writer._begin()
    message.ack()
    run_out(journal_writer)
    snapshot.write(scan, 4096)
    queue.get().ack()
    journal_writer._replace(snapshot)
    run_out(journal_writer)
    assert bodies(writer) == [b"c"]


def test_a_journal_is_due_for_a_snapshot_when_little_of_it_is_live(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    while journal_writer.journal.size <= 2 * SMALL.segment:
        assert not journal_writer.due
        queue.put(bytes(1000))
        run_out(journal_writer)
    assert not journal_writer.due, "half of it and more is live"
    while queue.qsize():
        queue.get().ack()
    run_out(journal_writer)
    assert journal_writer.due
    journal_writer.snapshot()
    assert not journal_writer.due
    assert journal_writer.journal.size == 0


def test_one_message_that_stays_pins_nothing(writer: ManualWriter) -> None:
    queue = writer.create()
    journal_writer = writer.follow()
    queue.put(b"stays", priority=0)
    for _ in range(200):
        queue.put_many([bytes(500)] * 10, priority=2)
        run_out(journal_writer)
        for message in queue.get_many(10):
            message.ack()
        run_out(journal_writer)
        if journal_writer.due:
            journal_writer.snapshot()
    assert journal_writer.journal.size < 4 * SMALL.segment
    assert sum(path.stat().st_size for path in writer.disk.directory.iterdir()) < 5 * SMALL.segment
    assert bodies(writer) == [b"stays"]
