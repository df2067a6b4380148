"""The segment files of a stream's partition: what is written is read, and nothing else is."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_journal import Commit, StreamJournal
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import bases, segment_file
from shmq.disk.storage.stream_files import StreamFiles
from shmq.disk.storage.stream_segment import EVERYTHING, StreamSegment, salts_of
from shmq.errors import DamagedFile, DamagedSegment, FileError
from tests.support.failing_disk import FailingDisk
from tests.support.stream_entries import IDENTITY, TICK, commit, entry, read, value_of

SMALL = WriteSizes(segment=16 << 10, ahead=4 << 10)


def journal_of(disk: Disk, begin: int = 0, sizes: WriteSizes = SMALL) -> StreamJournal:
    return StreamJournal(disk, IDENTITY, 0, begin, sizes)


def written(disk: Disk, counts: list[int], size: int = 100) -> int:
    """Commits of so many records each; returns the offset behind them."""
    journal = journal_of(disk)
    for count in counts:
        journal.append(commit(journal.next, count, size, cut=count // 2 or None))
        if journal.is_long:
            journal.roll()
    journal.abandon()
    return journal.next


def everything(
    files: StreamFiles, start: int, until: int, most: int
) -> Iterator[tuple[int, bytes]]:
    """What the files have from ``start`` on, block by block."""
    while start < until:
        block = files.block(start, until, most)
        assert block is not None
        assert block.first <= start < block.next
        base = max(base for base in bases(files.disk.names()) if base <= start)
        salts = salts_of(StreamSegment(files.disk, base).header)
        yield from read(block, salts)
        start = block.next


@pytest.mark.parametrize("most", [1, 3000, 1 << 20])
@pytest.mark.parametrize("counts", [[1], [5, 1, 300, 2], [40] * 20])
def test_what_is_appended_is_read_from_any_offset_on(
    tmp_path: Path, counts: list[int], most: int
) -> None:
    disk = Disk(tmp_path)
    until = written(disk, counts)
    files = StreamFiles(disk)
    assert files.earliest() == 0
    for start in {0, 1, until // 2, until - 1} & set(range(until)):
        found = list(everything(files, start, until, most))
        assert found == [(offset, value_of(offset)) for offset in range(start, until)]


def test_nothing_is_read_that_is_not_published(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [10, 10])
    files = StreamFiles(disk)
    block = files.block(0, 7)
    assert block is not None
    assert block.next == 7
    assert files.block(7, 7) is None
    assert files.block(until, until) is None
    assert files.at(8 * TICK, 8) is None


def test_a_time_leads_to_the_first_record_that_is_not_older(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [40] * 20)
    files = StreamFiles(disk)
    assert len(bases(disk.names())) > 3
    for offset in range(0, until, 7):
        assert files.at(offset * TICK, until) == offset
        assert files.at(offset * TICK - 1, until) == offset
    assert files.at(until * TICK, until) is None
    assert files.at(-5, until) == 0


def test_records_of_one_time_are_found_by_the_first_of_them(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk)
    for first in range(0, 4000, 1000):
        data = b"".join(entry(n, b"x" * 60, time=5) for n in range(first, first + 1000))
        journal.append(Commit([memoryview(data)], first, first + 1000))
        journal.roll()
    files = StreamFiles(disk)
    assert files.at(5, 4000) == 0
    assert files.at(6, 4000) is None


def test_an_entry_of_many_offsets_is_found_by_each_of_them(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk)
    data = entry(0, b"a") + entry(1, b"many", count=9, time=TICK) + entry(10, b"b")
    journal.append(Commit([memoryview(data)], 0, 11))
    files = StreamFiles(disk)
    for offset in range(1, 10):
        block = files.block(offset, 11, 1)
        assert block is not None
        assert (block.first, block.next) == (1, 10)


def test_a_reader_sees_what_is_appended_to_the_file_that_it_reads(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk, sizes=WriteSizes(segment=1 << 20, ahead=4 << 10))
    files = StreamFiles(disk)
    for _ in range(20):
        start = journal.next
        journal.append(commit(start, 90))
        found = list(everything(files, start, journal.next, 1 << 20))
        assert found == [(n, value_of(n)) for n in range(start, journal.next)]
        assert files.at(start * TICK, journal.next) == start
    assert files.block(0, journal.next) is not None
    journal.roll()
    assert len(list(everything(files, 0, journal.next, 1 << 20))) == journal.next


def test_a_closed_segment_has_its_index_and_is_whole(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk, sizes=WriteSizes(segment=1 << 20, ahead=4 << 10))
    for _ in range(2):
        journal.append(commit(journal.next, 600, size=200))
    journal.roll()
    until = journal.next
    closed, last = (StreamSegment(disk, base) for base in bases(disk.names()))
    assert closed.closed
    assert not last.closed
    checked = closed.check()
    assert (checked.how, checked.offset, checked.closed) == ("end", until, True)
    assert checked.records == 1200
    assert closed.last() == (until, (until - 1) * TICK)
    assert last.last() == (until, None)


def test_a_writer_that_begins_goes_on_behind_what_was_published(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    first = journal_of(disk)
    first.append(commit(0, 10))
    first.append(commit(10, 10))
    # It died before it could publish the second commit.
    second = journal_of(disk, begin=10)
    second.append(commit(10, 5, size=30))
    found = dict(everything(StreamFiles(disk), 0, 15, 1 << 20))
    assert found == {n: value_of(n, 100 if n < 10 else 30) for n in range(15)}
    third = journal_of(disk, begin=15)
    third.begin()
    journal_of(disk, begin=15).append(commit(15, 1))
    assert bases(disk.names()) == [0, 10, 15]


@pytest.mark.parametrize("call", range(1, 12))
def test_what_fails_is_written_to_a_new_file(tmp_path: Path, call: int) -> None:
    disk = FailingDisk(tmp_path)
    journal = journal_of(disk)
    journal.append(commit(0, 3))
    disk.calls, disk.failing = 0, range(call, call + 1)
    while journal.next < 303:
        with contextlib.suppress(OSError):
            journal.append(commit(journal.next, 50))
            if journal.is_long:
                journal.roll()
    found = dict(everything(StreamFiles(disk), 0, journal.next, 1 << 20))
    assert found == {n: value_of(n) for n in range(303)}


def test_old_segments_go_by_their_size_and_the_last_one_stays(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk)
    for _ in range(40):
        journal.append(commit(journal.next, 30))
        if journal.is_long:
            journal.roll()
    before = journal.size
    assert journal.retain(before, None) == []
    journal.retain(40_000, None)
    assert 40_000 <= journal.size < 40_000 + 2 * SMALL.segment
    files = StreamFiles(disk)
    assert files.earliest() == journal.earliest > 0
    assert files.block(0, journal.next) is None
    journal.retain(0, None)
    assert bases(disk.names()) == [max(bases(disk.names()))]


def test_what_is_kept_by_size_counts_the_records_alone(tmp_path: Path) -> None:
    disk, kept, begin, least = Disk(tmp_path), 64 << 10, 0, 1 << 30
    record = len(entry(0, b"x" * 100))
    for life in range(5):  # the first ones closed, the others left as after a kill
        journal = StreamJournal(
            disk, IDENTITY, 0, begin, WriteSizes(segment=16 << 10, ahead=1 << 16)
        )
        for _ in range(250):
            journal.append(commit(journal.next, 1))
            if journal.is_long and life < 3:
                journal.roll()
            journal.retain(kept, None)
            least = min(least, (journal.next - journal.earliest) * record if begin else least)
        journal.abandon()
        begin = journal.next
        if life < 2:
            least = 1 << 30
    assert kept <= least
    assert (journal.next - journal.earliest) * record < kept + 2 * (64 << 10)


def test_a_segment_that_is_replaced_before_anything_is_published_is_read(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal_of(disk).begin()
    files = StreamFiles(disk)
    assert files.at(0, 0) is None
    until = written(disk, [3])  # by another writer, who starts again
    assert list(everything(files, 0, until, 1000)) == [(n, value_of(n)) for n in range(3)]


def test_only_of_a_closed_file_a_block_may_be_kept(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [100] * 3)
    files = StreamFiles(disk)
    begins = bases(disk.names())
    closed = []
    for base in begins:
        block = files.block(base, until)
        assert block is not None
        closed.append(block.closed)
    assert closed == [*[True] * (len(begins) - 1), False]


class Hindsight(Disk):
    """Lists the files that there were at first, of which some have gone since."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._then = super().names()

    def names(self) -> list[str]:
        return self._then


def test_a_segment_that_goes_while_it_is_looked_at_is_passed_over(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [100] * 6)
    begins = bases(disk.names())
    assert len(begins) > 2
    seen = Hindsight(tmp_path)
    disk.unlink(segment_file(begins[0]))
    files = StreamFiles(seen)
    assert files.at(0, until) == begins[1]
    assert files.first_time(until) == begins[1] * TICK
    assert files.last_time(until) == (until - 1) * TICK
    for base in begins[1:]:
        disk.unlink(segment_file(base))
    files = StreamFiles(seen)
    assert files.first_time(until) is None
    assert files.last_time(until) is None


def test_old_segments_go_by_the_age_of_their_records(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk)
    for _ in range(20):
        journal.append(commit(journal.next, 100))
        if journal.is_long:
            journal.roll()
    journal.retain(None, 1000 * TICK)
    assert 800 < journal.earliest <= 1000
    assert StreamFiles(disk).at(0, journal.next) == journal.earliest
    journal.retain(None, 5000 * TICK)
    assert bases(disk.names()) == [2000]
    assert journal_of(disk, begin=2000).earliest == 2000


@pytest.mark.parametrize("early", [1, 1 << 20])
def test_what_is_not_as_the_commit_says_does_not_count(tmp_path: Path, early: int) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk, sizes=WriteSizes(early=early))
    good = commit(0, 3)
    with pytest.raises(DamagedSegment, match="up to 3, and says up to 4"):
        journal.append(Commit(good.pieces, 0, 4))
    with pytest.raises(DamagedSegment, match="no record where that of offset 0 should be"):
        journal.append(Commit(commit(1, 2).pieces, 0, 2))
    journal.append(good)
    assert journal.next == 3
    checked = StreamSegment(disk, 0).check()
    assert (checked.how, checked.offset, checked.commits) == ("end", 3, 1)


def test_commits_of_many_bytes_are_read_like_others(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    journal = journal_of(disk, sizes=WriteSizes(early=1))
    large = 3 << 18  # bytes: more than is pushed to the disk at a time
    for first in range(0, 12, 3):
        journal.append(commit(first, 3, size=large))
    checked = StreamSegment(disk, 0).check()
    assert (checked.how, checked.offset, checked.commits) == ("end", 12, 4)


def test_every_flipped_bit_of_what_was_published_is_found(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    written(disk, [4, 5, 3], size=24)
    path = tmp_path / segment_file(0)
    sound = path.read_bytes()
    end = StreamSegment(disk, 0).check().end
    for at in range(0, end, 3):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :])
        try:
            checked = StreamSegment(disk, 0).check()
        except FileError:
            continue
        # In the last commit, damage looks like a write that was cut short.
        assert (checked.how, checked.offset) == ("torn", 9)


def test_a_torn_tail_is_cut_and_damage_before_it_is_told(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    written(disk, [4, 5, 3], size=24)
    path = tmp_path / segment_file(0)
    sound = path.read_bytes()
    end = StreamSegment(disk, 0).check().end
    path.write_bytes(sound[: end - 1])
    torn = StreamSegment(disk, 0).check()
    assert (torn.how, torn.offset) == ("torn", 9)
    path.write_bytes(sound[: end - 10] + b"\xff" + sound[end - 9 :])
    assert StreamSegment(disk, 0).check().offset == 9
    middle = StreamSegment(disk, 0).start + 56 + 10
    path.write_bytes(sound[:middle] + b"\xff" + sound[middle + 1 :])
    with pytest.raises(DamagedFile, match="at byte"):
        StreamSegment(disk, 0).check()
    with pytest.raises(DamagedFile):
        StreamFiles(disk).block(0, 12)


def test_random_bytes_are_never_taken_for_records(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    written(disk, [30, 30, 30], size=50)
    path = tmp_path / segment_file(0)
    sound, chance = path.read_bytes(), random.Random(7)
    start = StreamSegment(disk, 0).start
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 9)):
            at = chance.randrange(start, len(data) - 8)
            data[at : at + 8] = chance.choice((os.urandom(8), b"\xff" * 8, bytes(8)))
        path.write_bytes(data)
        files = StreamFiles(disk)
        try:
            found = list(everything(files, chance.randrange(90), 90, 1 << 20))
        except (DamagedFile, AssertionError):
            continue
        assert all(value == value_of(offset, 50) for offset, value in found)


def around_damage(files: StreamFiles, until: int) -> tuple[list[tuple[int, bytes]], list[int]]:
    """What can be read, and the offsets that cannot."""
    found: list[tuple[int, bytes]] = []
    gone: list[int] = []
    start = 0
    while start < until:
        try:
            for one in everything(files, start, until, 1 << 20):
                found.append(one)
                start = one[0] + 1
        except DamagedFile as error:
            first, behind = error.first_offset, error.next_offset
            behind = files.next_whole(start, until) if behind is None else behind
            assert first is not None and first <= start < behind
            gone += range(start, behind)
            start = behind
    return found, gone


def test_all_that_is_whole_is_read_around_flipped_bits(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [30, 30, 30] * 4, size=50)
    assert len(bases(disk.names())) > 2
    paths = [tmp_path / segment_file(base) for base in bases(disk.names()) if base < until]
    sound, chance = [path.read_bytes() for path in paths], random.Random(7)
    start, lost = StreamSegment(disk, 0).start, 0
    for _ in range(100):
        for path, data in zip(paths, sound, strict=True):
            raw = bytearray(data)
            for _ in range(chance.randrange(3)):
                raw[chance.randrange(start, len(raw))] ^= 1 << chance.randrange(8)
            path.write_bytes(raw)
        found, gone = around_damage(StreamFiles(disk), until)
        assert found == [(n, value_of(n, 50)) for n in range(until) if n not in gone]
        assert len(gone) <= 2 * len(paths)
        lost += len(gone)
    assert lost


def test_a_segment_without_a_header_is_one_hole(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [40] * 20)
    first, second, *_ = bases(disk.names())
    path = tmp_path / segment_file(first)
    sound = path.read_bytes()
    for at in range(StreamSegment(disk, first).start):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        found, gone = around_damage(StreamFiles(disk), until)
        assert gone == list(range(second))
        assert [offset for offset, _ in found] == list(range(second, until))


def test_a_last_segment_that_was_cut_off_is_damaged_up_to_what_was_published(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [10, 10])
    path = tmp_path / segment_file(0)
    path.write_bytes(path.read_bytes()[:1500])
    found, gone = around_damage(StreamFiles(disk), until)
    assert found
    assert gone == list(range(found[-1][0] + 1, until))


@pytest.mark.watchdog(60)
def test_a_record_that_claims_to_be_many_is_damage_and_not_read_for_ever(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    until = written(disk, [10], size=50)
    path = tmp_path / segment_file(0)
    raw = bytearray(path.read_bytes())
    count = raw.index(value_of(4, 50)) - 48 + 12
    raw[count + 3] ^= 0x40
    path.write_bytes(raw)
    found, gone = around_damage(StreamFiles(disk), until)
    assert gone == [4]
    assert [offset for offset, _ in found] == [0, 1, 2, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("at", [0, 1000], ids=["header", "record"])
def test_what_is_old_goes_though_it_is_damaged(tmp_path: Path, at: int) -> None:
    """Otherwise the writer of the partition would fail as with a broken disk, again and again."""
    disk = Disk(tmp_path)
    until = written(disk, [40] * 20)
    first, second, third, *_ = bases(disk.names())
    path = tmp_path / segment_file(second)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    journal = journal_of(disk, until)
    assert journal.retain(None, (second + 1) * TICK) == [first]
    assert journal.retain(None, (third + 1) * TICK) == [second]


def test_a_file_that_says_another_base_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    written(disk, [4])
    (tmp_path / segment_file(0)).rename(tmp_path / segment_file(9))
    with pytest.raises(DamagedFile, match="begins with 0"):
        StreamFiles(disk).block(10, EVERYTHING)
