"""One queue's journal, step by step: what is written, when, and what that sets free."""

from __future__ import annotations

import dataclasses
import errno

import pytest

import shmq
from shmq.storage.paths import catalog, segment_name
from tests.support.failing_disk import ShortDisk
from tests.support.manual_writer import SMALL, Desk, run_out
from tests.support.queue_chain import chain, record_types


def bodies(desk: Desk, queue: str = "q") -> list[bytes]:
    return [fields["body"] for _, fields in sorted(chain(desk.disk, queue).items())]


def test_a_queue_has_a_file_before_anything_is_put(desk: Desk) -> None:
    desk.create()
    assert not desk.keep().step()
    assert chain(desk.disk, "q") == {}


def test_what_was_put_is_on_disk_after_a_step_and_not_before(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    assert not kept.step()

    put = queue.put(b"one")
    assert kept.follower.synced == 0 and bodies(desk) == []

    assert kept.step()
    assert kept.follower.synced == put.sequence
    assert bodies(desk) == [b"one"]
    assert not kept.step()


def test_what_gathered_goes_out_in_one_commit(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    kept.step()
    queue.put_many([b"x"] * 50)

    assert kept.step() and not kept.step()

    kinds = record_types(desk.disk.path(segment_name("q", 1)).read_bytes())
    assert kinds == ["batch", *["put"] * 50]


def test_what_was_acknowledged_before_it_was_written_never_is(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    kept.step()
    for _ in range(10):
        queue.put(b"gone")
        queue.get().ack()
    queue.put(b"stays")

    run_out(kept)

    kinds = record_types(desk.disk.path(segment_name("q", 1)).read_bytes())
    assert kinds == ["batch", "put"]
    assert bodies(desk) == [b"stays"]
    assert kept.follower.synced == 11


def test_a_slot_is_not_used_again_before_its_settlement_is_on_disk(desk: Desk) -> None:
    queue = desk.create(capacity=2)
    kept = desk.keep()
    queue.put_many([b"a", b"b"])
    run_out(kept)

    queue.get().ack()
    assert queue.full()
    assert kept.step()
    queue.put_nowait(b"c")
    run_out(kept)
    assert bodies(desk) == [b"b", b"c"]


def test_more_than_a_commit_takes_follows_with_the_next(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    queue.put_many([bytes(1000)] * 30 + [bytes(100_000)])

    steps = 0
    while kept.step():
        steps += 1
    assert steps >= 4
    assert [len(body) for body in bodies(desk)] == [1000] * 30 + [100_000]


def test_a_disk_that_writes_in_small_pieces_gets_it_all(desk: Desk) -> None:
    desk.disk = ShortDisk(desk.disk.directory)
    queue = desk.create()
    kept = desk.keep()
    queue.put_many([b"abc" * 100] * 5)
    run_out(kept)
    kept.snapshot()
    queue.put(b"later")
    run_out(kept)
    assert bodies(desk) == [b"abc" * 100] * 5 + [b"later"]


def test_a_segment_that_is_long_enough_is_closed_and_the_next_begun(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    for _ in range(20):
        queue.put(bytes(3000))
        run_out(kept)

    segments = catalog(desk.disk.names())["q"].segments
    assert segments == list(range(1, len(segments) + 1)) and len(segments) > 2
    for number in segments[:-1]:
        kinds = record_types(desk.disk.path(segment_name("q", number)).read_bytes())
        assert kinds[-3:] == ["end", "index", "footer"]
    assert len(bodies(desk)) == 20


@pytest.mark.parametrize("ahead", [0, 4096, 1 << 20])
def test_zeros_are_written_ahead_of_small_commits_within_the_segment(
    desk: Desk, ahead: int
) -> None:
    queue = desk.create()
    kept = desk.keep(sizes=dataclasses.replace(SMALL, ahead=ahead))
    queue.put(b"small")
    run_out(kept)

    length = desk.disk.path(segment_name("q", 1)).stat().st_size
    if ahead:
        assert kept.journal.offset < length <= SMALL.segment
    else:
        assert length == kept.journal.offset
    for _ in range(500):
        queue.put(b"small")
        run_out(kept)
    assert len(bodies(desk)) == 501


def test_what_was_written_is_not_written_again_where_the_lock_cannot_be_had(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    kept.step()
    queue.put(b"one")
    kept.handle.close()
    with pytest.raises(shmq.ShmqError, match="closed"):
        kept.step()

    assert not kept.pending
    assert kept.follower.synced == 1 and bodies(desk) == [b"one"]


def test_what_an_earlier_writer_failed_with_is_not_held_against_the_next(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    kept.step()
    kept.follower.fail(errno.ENOSPC)
    desk.lose(kept)
    assert queue.stats().journal_error is not None

    assert not desk.keep().step()  # there is nothing to write, and never will be as it was
    assert queue.stats().journal_error is None


def test_a_delivery_that_failed_is_remembered(desk: Desk) -> None:
    queue = desk.create(retry_delay=0.0)
    kept = desk.keep()
    queue.put(b"hard")
    run_out(kept)
    queue.get().nack()
    run_out(kept)

    ((_, fields),) = chain(desk.disk, "q").items()
    assert fields["deliveries"] == 1


def test_a_purge_is_in_the_journal(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    queue.put_many([b"x"] * 10)
    run_out(kept)
    queue.purge()
    run_out(kept)
    assert bodies(desk) == []


def test_a_snapshot_takes_the_place_of_the_segments_before_it(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    for number in range(30):
        queue.put(bytes([number]) * 2000)
        run_out(kept)
    queue.put(b"not on disk yet")

    kept.snapshot()

    files = catalog(desk.disk.names())["q"]
    assert (files.snapshot, files.unfinished, files.segments) == (True, False, [])
    assert bodies(desk) == [bytes([number]) * 2000 for number in range(30)]
    run_out(kept)
    assert bodies(desk)[-1] == b"not on disk yet"
    assert catalog(desk.disk.names())["q"].segments == [kept.number]


def test_what_is_settled_while_a_snapshot_is_written_is_settled(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    queue.put_many([b"a", b"b", b"c"])
    run_out(kept)
    message = queue.get()
    snapshot, scan = kept._begin()
    message.ack()
    run_out(kept)
    snapshot.write(scan, 4096)
    queue.get().ack()
    kept._replace(snapshot)
    run_out(kept)
    assert bodies(desk) == [b"c"]


def test_a_journal_is_due_for_a_snapshot_when_little_of_it_is_live(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    while kept.journal.bytes <= 2 * SMALL.segment:
        assert not kept.due
        queue.put(bytes(1000))
        run_out(kept)
    assert not kept.due, "half of it and more is live"
    while queue.qsize():
        queue.get().ack()
    run_out(kept)
    assert kept.due
    kept.snapshot()
    assert not kept.due
    assert kept.journal.bytes == 0


def test_one_message_that_stays_pins_nothing(desk: Desk) -> None:
    queue = desk.create()
    kept = desk.keep()
    queue.put(b"stays", priority=0)
    for _ in range(200):
        queue.put_many([bytes(500)] * 10, priority=2)
        run_out(kept)
        for message in queue.get_many(10):
            message.ack()
        run_out(kept)
        if kept.due:
            kept.snapshot()
    assert kept.journal.bytes < 4 * SMALL.segment
    assert sum(path.stat().st_size for path in desk.disk.directory.iterdir()) < 5 * SMALL.segment
    assert bodies(desk) == [b"stays"]
