"""What is intact in a stream's damaged files is kept, and what is lost is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_journal import StreamJournal
from shmq.disk.persistence.stream_recovery import stored_stream
from shmq.disk.persistence.stream_salvage import salvage_stream
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import StreamIdentity
from shmq.disk.storage.paths import CARD, bases, partition_directory, segment_file
from shmq.disk.storage.stream_meta import StreamCard, eras_of, read_card, write_card
from shmq.disk.storage.stream_segment import EVERYTHING, StreamSegment, salts_of
from shmq.errors import DamagedFile
from tests.support.stream_entries import IDENTITY, commit, read, value_of

NAME, ID = IDENTITY.name, IDENTITY.identity
COUNT = 300


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A stream with one partition: three segments of 100 records, and an empty one."""
    made = Disk(tmp_path)
    below = made.under(partition_directory(NAME, ID, 0))
    below.make()
    whose = StreamIdentity(NAME, 7, ID, {"partitions": 1, "segment_bytes": 1 << 20})
    journal = StreamJournal(below, whose, 0, 0, WriteSizes(ahead=4 << 10))
    for first in range(0, COUNT, 100):
        journal.append(commit(first, 50))
        journal.append(commit(first + 50, 40))
        journal.append(commit(first + 90, 10))
        if first < 200:
            journal.roll()
    journal.abandon()
    own = below.under("..")
    write_card(
        own, whose, StreamCard({"g": {"options": {}, "committed": [120]}}, eras_of([(1, 0)]))
    )
    return made


def partition(disk: Disk) -> Disk:
    return disk.under(partition_directory(NAME, ID, 0))


def flip(disk: Disk, base: int, at: int) -> None:
    path = partition(disk).path(segment_file(base))
    raw = bytearray(path.read_bytes())
    raw[at] ^= 4
    path.write_bytes(raw)


def held(disk: Disk) -> Iterator[tuple[int, bytes]]:
    """The records of all segments, each as far as it counts."""
    below = partition(disk)
    there = bases(below.names())
    for base, limit in zip(there, [*there[1:], EVERYTHING], strict=True):
        segment = StreamSegment(below, base)
        block = segment.block(base, limit, 1 << 30, 0)
        if block is not None:
            yield from read(block, salts_of(segment.header))


def end(disk: Disk) -> int:
    stored = stored_stream(disk, NAME, ID)
    assert stored is not None
    if stored.error is not None:
        raise stored.error
    return stored.ends[0].next


@pytest.mark.parametrize("base", [0, 100, 200])
@pytest.mark.parametrize("at", [0, 40, 300, 2000, 9000])
def test_all_but_the_damaged_records_is_kept_with_its_offsets(
    disk: Disk, base: int, at: int
) -> None:
    flip(disk, base, at)
    damaged = partition(disk).path(segment_file(base)).read_bytes()

    problems = salvage_stream(disk, NAME, ID)

    found = dict(held(disk))
    lost = set(range(COUNT)) - found.keys()
    assert found == {offset: value_of(offset) for offset in found}
    assert len(lost) <= 1
    assert len(problems) == 1
    assert str(partition(disk).path(segment_file(base))) in problems[0]
    told = re.search(r"the offsets (\d+) to (\d+) of partition 0", problems[0])
    assert bool(lost) == (told is not None)
    if told is not None:
        assert set(range(int(told[1]), int(told[2]) + 1)) == lost
    assert end(disk) == COUNT
    kept = partition(disk).path(f"{segment_file(base)}.damaged")
    assert kept.read_bytes() == damaged
    files = partition(disk).names()
    salvage_stream(disk, NAME, ID)
    assert partition(disk).names() == files


def test_a_salvage_that_is_cut_off_is_finished_by_the_next_one(disk: Disk) -> None:
    flip(disk, 200, 2000)

    class Cut(Disk):
        left = 1

        def rename(self, old: str, new: str) -> None:
            if old.startswith(".salvage/"):
                if not Cut.left:
                    raise OSError(5, "cut off")
                Cut.left -= 1
            super().rename(old, new)

    with pytest.raises(OSError, match="cut off"):
        salvage_stream(Cut(disk.directory), NAME, ID)
    with pytest.raises(DamagedFile):
        StreamSegment(partition(disk), 200).check(1 << 40)

    salvage_stream(disk, NAME, ID)
    assert len(dict(held(disk))) == COUNT - 1
    assert end(disk) == COUNT


def test_where_the_last_file_has_nothing_intact_the_offsets_go_on_behind_what_groups_did(
    disk: Disk,
) -> None:
    path = partition(disk).path(segment_file(100))
    partition(disk).unlink(segment_file(200))
    path.write_bytes(b"\xff" * 5000)

    (problem,) = salvage_stream(disk, NAME, ID)

    assert "what was behind offset 99 of partition 0" in problem
    assert dict(held(disk)).keys() == set(range(100))
    assert end(disk) == 120


def test_a_file_that_is_missing_is_told_and_what_follows_counts(disk: Disk) -> None:
    below = partition(disk)
    whose = StreamIdentity(NAME, 7, ID, {"partitions": 1})
    StreamJournal(below, whose, 0, COUNT, WriteSizes()).begin()
    below.unlink(segment_file(200))
    with pytest.raises(DamagedFile):
        end(disk)

    (problem,) = salvage_stream(disk, NAME, ID)

    assert "the offsets 200 to 299 of partition 0" in problem
    assert end(disk) == COUNT


def test_a_damaged_card_is_made_anew_from_the_segments_without_groups(disk: Disk) -> None:
    path = partition(disk).path("..") / CARD
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)

    (problem,) = salvage_stream(disk, NAME, ID)

    assert "groups are lost" in problem
    found = read_card(partition(disk).under(".."))
    assert found is not None
    assert (found[1].groups, found[1].eras) == ({}, eras_of([(1, 0)]))
    assert end(disk) == COUNT


def test_how_far_one_large_segment_is_gets_reported(tmp_path: Path) -> None:
    large = Disk(tmp_path / "large")
    below = large.under(partition_directory(NAME, ID, 0))
    below.make()
    whose = StreamIdentity(NAME, 7, ID, {"partitions": 1, "segment_bytes": 1 << 30})
    journal = StreamJournal(below, whose, 0, 0, WriteSizes(ahead=4 << 10))
    for first in range(0, 600, 100):
        journal.append(commit(first, 100, 30 << 10))
    journal.abandon()
    write_card(below.under(".."), whose, StreamCard({}, eras_of([(1, 0)])))
    seen: list[tuple[str, int, int]] = []

    stored_stream(large, NAME, ID, lambda *step: seen.append(step), "reading")
    assert salvage_stream(large, NAME, ID, lambda *step: seen.append(step)) == []

    for name in ("reading", "salvaging stream 's'"):
        steps = [(at, total) for step, at, total in seen if step == name]
        assert len({at for at, total in steps if 0 < at < total}) > 1, name
        assert steps == sorted(steps)
        assert (steps[0][0], steps[-1][0]) == (0, steps[-1][1])
