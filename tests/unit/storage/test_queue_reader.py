"""A queue's files are read while their writer goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from shmq.disk.storage.disk import ReadOnly
from shmq.disk.storage.paths import segment_name, snapshot_name
from shmq.disk.storage.queue_files import QueueFiles
from shmq.disk.storage.queue_reader import open_parts, open_queue
from shmq.errors import DamagedFile, FileError
from tests.support.queue_files import WALL, Building, put, settle

FOREVER = (1 << 63) - 1


def segment(number: int, *puts: int, **fields: int) -> Building:
    return Building(number=number, **fields).batch(*[put(seq) for seq in puts])


@pytest.fixture
def disk(tmp_path: Path) -> ReadOnly:
    return ReadOnly(tmp_path)


def write(disk: ReadOnly, name: str, data: object) -> Path:
    path = disk.path(name)
    path.write_bytes(bytes(data))  # type: ignore[call-overload]
    return path


def numbers(chain: QueueFiles) -> list[int]:
    with chain:
        return [fields["seq"] for fields in chain]


def test_a_queue_is_read_from_its_snapshot_and_its_segments(disk: ReadOnly) -> None:
    write(disk, snapshot_name("q"), Building.snapshot(2).batch(put(1), put(2)).close())
    write(disk, segment_name("q", 2), segment(2, 3).batch(settle(1)))

    chain, parts = open_queue(disk, "q")

    assert numbers(chain) == [2, 3]
    assert [part.name for part in parts] == [snapshot_name("q"), segment_name("q", 2)]


def test_files_that_may_only_be_read_are_read(disk: ReadOnly) -> None:
    write(disk, segment_name("q", 1), segment(1, 1)).chmod(0o400)
    disk.directory.chmod(0o500)
    try:
        assert numbers(open_queue(disk, "q")[0]) == [1]
    finally:
        disk.directory.chmod(0o700)


def test_what_is_written_later_is_not_in_what_was_looked_at(disk: ReadOnly) -> None:
    growing = segment(1, 1, 2)
    write(disk, segment_name("q", 1), growing)
    chain, parts = open_queue(disk, "q")
    chain.close()

    write(disk, segment_name("q", 1), growing.batch(put(3), settle(1)).close())
    again = open_parts(disk, parts)

    assert again is not None
    assert numbers(again) == [1, 2]
    assert numbers(open_queue(disk, "q")[0]) == [2, 3]


def test_a_chain_stays_readable_when_its_last_segment_is_cut_off(disk: ReadOnly) -> None:
    path = write(disk, segment_name("q", 1), bytes(segment(1, 1, 2)) + bytes(1 << 20))
    chain, _ = open_queue(disk, "q")

    with path.open("r+b") as file:
        file.truncate(0)

    assert numbers(chain) == [1, 2]


def test_a_torn_tail_is_not_in_what_was_looked_at(disk: ReadOnly) -> None:
    file = segment(1, 1).batch(put(2))
    write(disk, segment_name("q", 1), bytes(file)[:-8])
    chain, parts = open_queue(disk, "q")

    assert numbers(chain) == [1]
    assert parts[0].size == file.ends[1]
    write(disk, segment_name("q", 1), file)
    again = open_parts(disk, parts)
    assert again is not None
    assert numbers(again) == [1]


@pytest.mark.parametrize("change", ["gone", "another", "shorter"])
def test_files_that_are_no_longer_there_are_told(disk: ReadOnly, change: str) -> None:
    path = write(disk, segment_name("q", 1), segment(1, 1, 2))
    chain, parts = open_queue(disk, "q")
    chain.close()

    if change == "gone":
        path.unlink()
    elif change == "another":
        write(disk, segment_name("q", 1), segment(1, 1, 2, created=WALL + 1))
    else:
        write(disk, segment_name("q", 1), bytes(segment(1, 1, 2))[:-8])

    assert open_parts(disk, parts) is None


def test_a_queue_without_files_is_an_error(disk: ReadOnly) -> None:
    with pytest.raises(FileError, match="no files of queue 'q'"):
        open_queue(disk, "q")


def test_damage_is_told_with_file_and_offset(disk: ReadOnly) -> None:
    file = segment(1, 1).batch(put(2)).batch(put(3))
    data = bytearray(bytes(file))
    data[file.ends[1] + 70] ^= 1
    path = write(disk, segment_name("q", 1), data)

    with pytest.raises(DamagedFile) as found:
        open_queue(disk, "q")
    assert found.value.path == str(path)
    assert file.ends[1] <= found.value.offset < file.ends[2]

    chain, _ = open_queue(disk, "q", salvage=True)
    assert [skipped.path for skipped in chain.skipped] == [str(path)]
    assert numbers(chain) == [1, 3]


def test_what_takes_the_place_of_the_files_meanwhile_is_read(disk: ReadOnly) -> None:
    """A writer makes snapshots and removes what they cover as fast as it can."""
    stop = threading.Event()
    live = list(range(1, 51))
    last = segment(1, *live)
    write(disk, segment_name("q", 1), last)

    def churn(last: Building) -> None:
        while not stop.is_set():
            number = last.header.number + 1
            last = Building(number=number, previous_end=last.ends[-1])
            write(disk, segment_name("q", number), last)
            made = Building.snapshot(number).batch(*[put(seq) for seq in live]).close()
            write(disk, ".q.dmsq.tmp", made)
            disk.rename(".q.dmsq.tmp", snapshot_name("q"))
            disk.path(segment_name("q", number - 1)).unlink()

    writer = threading.Thread(target=churn, args=[last])
    writer.start()
    try:
        for _ in range(200):
            assert numbers(open_queue(disk, "q")[0]) == live
    finally:
        stop.set()
        writer.join()


def test_only_the_numbers_asked_for_are_kept(disk: ReadOnly) -> None:
    file = segment(1, *range(1, 101)).batch(settle(10, 50), put(101))
    write(disk, segment_name("q", 1), file)

    found = []
    for first, last in ((0, 9), (10, 50), (51, FOREVER)):
        chain, _ = open_queue(disk, "q", numbers=(first, last))
        assert chain.last_seq == 101
        part = numbers(chain)
        assert all(first <= seq <= last for seq in part)
        found += part

    assert found == [seq for seq in range(1, 102) if seq not in {10, 50}]


def test_the_spread_says_where_the_bytes_are(disk: ReadOnly) -> None:
    file = Building().batch(*[put(seq, b"x" * 1000) for seq in range(1001, 1011)])
    write(disk, segment_name("q", 1), file.batch(*[put(seq, b"") for seq in range(1011, 1101)]))
    chain, _ = open_queue(disk, "q")

    with chain:
        least, width, sums = chain.spread(10)
        assert (least, width) == (1001, 10)
        assert sum(sums) == chain.bytes
        assert sums[0] > sums[1] == sums[9] > 0


def test_nothing_has_no_spread(disk: ReadOnly) -> None:
    write(disk, segment_name("q", 1), segment(1, 1).batch(settle(1)))
    with open_queue(disk, "q")[0] as chain:
        assert chain.spread(10) == (0, 1, [])
