"""Records that are read where they lie in a stream's files, other records between them."""

from __future__ import annotations

import itertools
import mmap
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_journal import Commit, StreamJournal
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.stream_files import StreamFiles
from shmq.model.codec.compression import compressor
from shmq.native import _arrow, _file, _stream
from tests.support.stream_entries import IDENTITY, TICK, commit, entry, value_of

#: Records of each commit, and of all of them.
COMMITS = (3, 1, 40, 6)
COUNT = sum(COMMITS)


def written(disk: Disk, *commits: Commit) -> None:
    journal = StreamJournal(disk, IDENTITY, 0, commits[0].first, WriteSizes())
    for each in commits:
        journal.append(each)
    journal.abandon()


@pytest.fixture
def block(tmp_path: Path) -> memoryview:
    """What a file has of a few commits, their BATCH records among it."""
    disk = Disk(tmp_path)
    firsts = itertools.accumulate(COMMITS, initial=0)
    written(disk, *(commit(first, count) for first, count in zip(firsts, COMMITS, strict=False)))
    return block_of(disk, COUNT)


def block_of(disk: Disk, until: int, offset: int = 0) -> memoryview:
    found = StreamFiles(disk).block(offset, until)
    assert found is not None
    return found.data


def records_in(data: Any, offset: int = 0, limit: int = 1000, **options: Any) -> _stream.Records:
    return _stream.records_of(data, 3, offset, limit, in_place=True, **options)


def told(records: Any) -> list[tuple[int, int, bytes]]:
    return [(each.partition, each.offset, each.value) for each in records]


def expected(start: int, end: int) -> list[tuple[int, int, bytes]]:
    return [(3, offset, value_of(offset)) for offset in range(start, end)]


def test_records_of_other_types_between_the_entries_are_passed_over(block: memoryview) -> None:
    records = records_in(block)

    assert len(records) == COUNT
    assert records.next_offset == COUNT
    assert records.values() == [value_of(offset) for offset in range(COUNT)]
    assert told(records) == expected(0, COUNT)
    assert told([records[n] for n in range(COUNT)]) == expected(0, COUNT)
    assert told(records[-3:]) == expected(COUNT - 3, COUNT)
    with pytest.raises(IndexError):
        records[COUNT]


def test_the_data_are_the_entries_alone(block: memoryview) -> None:
    records = records_in(block)
    data = _file.entries(block)

    assert records.data == data
    assert len(data) < len(block)
    assert records.sealed(IDENTITY.salt) == data
    columns = _arrow.columns_of(records.data, 0, COUNT)
    assert columns is not None
    assert columns.count == COUNT
    assert _stream.count_records(records.data) == COUNT


def test_those_that_are_selected_are_the_entries_alone(block: memoryview) -> None:
    records = records_in(block)
    chosen = records.select([each.offset in (0, 3, 4, COUNT - 1) for each in records])

    assert [each.offset for each in chosen] == [0, 3, 4, COUNT - 1]
    assert chosen.data == b"".join(
        entry(offset, value_of(offset)) for offset in (0, 3, 4, COUNT - 1)
    )
    assert chosen.next_offset == COUNT


@pytest.mark.parametrize("offset", range(6))
@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
@pytest.mark.parametrize("end", [None, 3, 4, 5])
def test_no_more_of_a_block_is_taken_than_was_asked_for(
    block: memoryview, offset: int, limit: int, end: int | None
) -> None:
    records = records_in(block, offset, limit, end=end)
    stop = max(offset, min(COUNT, offset + limit, COUNT if end is None else end))

    assert told(records) == expected(offset, stop)
    assert records.values() == [value_of(n) for n in range(offset, stop)]
    assert records.next_offset == stop
    assert records.data == b"".join(entry(n, value_of(n)) for n in range(offset, stop))


def test_what_was_compressed_together_is_read_one_by_one(tmp_path: Path) -> None:
    together = _stream.pack_records([b"b", b"c"])
    value = compressor("lz4")(together)
    disk = Disk(tmp_path)
    packed = entry(1, value, count=2, time=TICK, compression=1, raw=len(together))
    written(disk, commit(0, 1), Commit([memoryview(packed)], 1, 3), commit(3, 2))
    records = records_in(block_of(disk, 5))

    assert records.values() == [value_of(0), b"b", b"c", value_of(3), value_of(4)]
    assert [each.offset for each in records] == list(range(5))
    assert _stream.count_records(records.data) == 5
    assert records_in(block_of(disk, 5), 2, 2).values() == [b"c", value_of(3)]


def test_a_file_stays_mapped_as_long_as_there_are_records_of_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    written(disk, commit(0, 20))
    block = block_of(disk, 20)
    assert isinstance(block.obj, mmap.mmap)
    mapping = weakref.ref(block.obj)
    records = records_in(block)
    block.release()
    del block
    for path in tmp_path.iterdir():
        path.unlink()

    each = iter(records)
    assert records.values() == [value_of(offset) for offset in range(20)]
    del records
    values = [record.value for record in each]
    assert mapping() is not None
    del each
    assert mapping() is None
    assert values == [value_of(offset) for offset in range(20)]


def test_nothing_is_copied_but_the_values(block: memoryview) -> None:
    memory = bytearray(block)
    records = records_in(memory)

    with pytest.raises(BufferError):  # it is in use
        memory.append(0)
    del records
    memory.append(0)


_Use = Callable[[_stream.Records], Any]
_USES: dict[str, _Use] = {
    "values": lambda records: records.values(),
    "data": lambda records: records.data,
    "sealed": lambda records: records.sealed(0),
    "iteration": list,
    "index": lambda records: [records[n] for n in reversed(range(len(records)))],
    "select": lambda records: records.select([True] * len(records)),
}


@pytest.mark.parametrize("use", _USES.values(), ids=_USES)
def test_what_a_file_says_is_checked_whenever_it_is_used(use: _Use, tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    written(disk, commit(0, 2, 10), commit(2, 2, 10))
    whole = bytes(block_of(disk, 4))
    refused = 0
    for at in range(len(whole)):
        for value in (0, 1, 0x7F, 0xFF):
            memory = bytearray(whole)
            records = records_in(memory)
            memory[at] = value
            for _ in range(2):  # the second time it knows no more than the first
                try:
                    use(records)
                except shmq.ShmqError:
                    refused += 1
    assert refused


def test_entries_that_have_become_fewer_are_refused_each_time(block: memoryview) -> None:
    memory = bytearray(block)
    records = records_in(memory)
    memory[memory.index(entry(1, value_of(1))) + 8] = 99  # its type

    for use in _USES.values():
        for _ in range(2):
            with pytest.raises(shmq.ShmqError, match="contradict"):
                use(records)
