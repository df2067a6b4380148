"""What is promised where a file of a stream is damaged: an error of that partition and range.

Other levels: c/test_damage.c, unit/storage/test_stream_salvage.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.api import Stream
from tests.conformance.conftest import Connect
from tests.conformance.test_streams_on_disk import create, filled
from tests.conformance.tools import SOON
from tests.support.queue_files import flip
from tests.support.waiting import PATIENCE
from tests.support.writer_process import WriterProcess, running_writer

COUNT = 2000
#: The record of partition 0 that most tests damage.
AT = 100


@pytest.fixture
def writer_process(namespace: str) -> Iterator[WriterProcess]:
    """The namespace's persistence writer."""
    with running_writer(namespace) as writer_process:
        yield writer_process


@pytest.fixture
def values() -> list[bytes]:
    """What partition 0 has."""
    return [b"%d " % n * 20 for n in range(COUNT)]


@pytest.fixture
def stream(connect: Connect, writer_process: WriterProcess) -> Stream:
    """A stream of two partitions, the first of which has much more than its ring holds."""
    stream = create(connect(), partitions=2)
    filled(stream, COUNT)
    return stream


def files(writer_process: WriterProcess) -> list[Path]:
    """The files of partition 0, by their first offsets."""
    return sorted(path for path in writer_process.folder.rglob("*") if path.parent.name == "0")


@pytest.fixture
def damaged(stream: Stream, values: list[bytes], writer_process: WriterProcess) -> Path:
    """The file of partition 0 in which a bit of record 100 was flipped."""
    (path,) = [path for path in files(writer_process) if values[AT] in path.read_bytes()]
    flip(path, path.read_bytes().index(values[AT]))
    return path


def others(values: list[bytes], holes: Iterable[int] = (AT,)) -> list[bytes]:
    """All but those that cannot be read."""
    gone = set(holes)
    return [value for n, value in enumerate(values) if n not in gone]


def drained(found: Any) -> list[bytes]:
    return [bytes(record.value) for record in found]


def test_the_error_tells_the_partition_and_the_offsets(
    connect: Connect, stream: Stream, values: list[bytes], damaged: Path
) -> None:
    with pytest.raises(shmq.DamagedFile) as caught:
        connect().stream("s").read(0, AT)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.path, error.partition) == (str(damaged), 0)
    assert (error.first_offset, error.next_offset) == (AT, AT + 1)
    assert "offsets 100 to 100 cannot be read: go on at 101" in str(error)
    assert stream.read(0, error.next_offset, 50).values() == values[AT + 1 : AT + 51]


def test_what_stands_behind_in_the_same_file_is_read_from_anywhere(
    connect: Connect, stream: Stream, values: list[bytes], damaged: Path
) -> None:
    for first in (AT + 1, AT + 7, AT + 60):
        other = connect().stream("s")  # which has read nothing before it
        assert other.read(0, first, 5).values() == values[first : first + 5]


def test_a_reader_that_skips_goes_on_behind_and_counts(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    with stream.reader(timeout=SOON, on_damage="skip") as reader:
        assert drained(reader) == others(values)
        assert (reader.damaged, reader.lost) == (1, 0)


def test_the_error_comes_again_while_the_other_partition_is_never_at_rest(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    reader = stream.reader({0: AT}, timeout=0.0)
    seen = []
    for n in range(4):
        stream.append(b"%d" % n, partition=1)
        with pytest.raises(shmq.DamagedFile):
            seen += [bytes(next(reader).value)]
            next(reader)
    assert seen == [b"0", b"1", b"2", b"3"]
    reader.seek({0: AT + 1})
    assert drained(itertools.islice(reader, 3)) == values[AT + 1 : AT + 4]


def test_a_file_without_a_header_is_passed_over_as_a_whole(
    connect: Connect, stream: Stream, values: list[bytes], writer_process: WriterProcess
) -> None:
    first, second = files(writer_process)[:2]
    flip(first, 0)  # then it is not a file of this kind
    other = connect().stream("s")
    with pytest.raises(shmq.DamagedFile) as caught:
        other.read(0, 0)
    behind = caught.value.next_offset
    assert behind is not None
    assert values[behind] in second.read_bytes()
    assert [found.earliest for found in other.offsets()] == [0, 0]
    with other.reader(timeout=SOON, on_damage="skip") as reader:
        assert drained(reader) == values[behind:]
        assert reader.damaged == behind


def test_a_bit_of_what_frames_the_records_costs_none_of_them(
    stream: Stream, values: list[bytes], writer_process: WriterProcess
) -> None:
    path = files(writer_process)[0]
    raw = path.read_bytes()
    flip(path, raw.index(values[0]) - 48 - 16)  # of the commit's own record
    flip(path, len(raw.rstrip(b"\0")) - 60)  # of the index
    with stream.reader(timeout=SOON) as reader:
        assert drained(reader) == values


def test_zeros_in_the_middle_of_a_file_are_damage(
    connect: Connect, stream: Stream, values: list[bytes], writer_process: WriterProcess
) -> None:
    path = files(writer_process)[0]
    raw = path.read_bytes()
    begin, end = raw.index(values[AT]) - 48, raw.index(values[AT + 20]) - 48
    path.write_bytes(raw[:begin] + bytes(end - begin) + raw[end:])
    with pytest.raises(shmq.DamagedFile) as caught:
        connect().stream("s").read(0, AT + 3)
    assert (caught.value.first_offset, caught.value.next_offset) == (AT, AT + 20)


def test_times_are_told_and_found_around_damage(
    connect: Connect, stream: Stream, values: list[bytes], writer_process: WriterProcess
) -> None:
    path = files(writer_process)[0]
    times = [stream.read(0, n, 1)[0].timestamp for n in (0, AT, AT + 500)]
    flip(path, path.read_bytes().index(values[0]))
    other = connect().stream("s")
    assert other.offsets()[0].earliest == other.earliest(0) == 0
    assert other.at(times[0] - 1, 0) == 0  # the first one may be meant, which cannot be read
    assert other.at(times[2], 0) == stream.at(times[2], 0)


def test_an_awaited_reader_raises_and_skips(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    asyncio.run(awaits(stream, values))


async def awaits(stream: Stream, values: list[bytes]) -> None:
    stream.append(b"other", partition=1)
    reader = stream.areader({0: AT - 1, 1: 0}, timeout=0.0)
    assert {bytes((await anext(reader)).value) for _ in range(2)} == {values[AT - 1], b"other"}
    for _ in range(2):
        with pytest.raises(shmq.DamagedFile):
            await anext(reader)
    await reader.aclose()
    async with stream.areader({0: AT - 1}, [0], timeout=0.0, on_damage="skip") as reader:
        found = [bytes(record.value) async for record in reader]
        assert found == others(values)[AT - 1 :]
        assert (reader.damaged, reader.lost) == (1, 0)


# ---- groups ----


def test_a_member_is_told_while_its_other_partitions_go_on(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    with stream.group("g").join() as member:
        (records,) = member.poll(timeout=PATIENCE)
        assert records.values() == values[:AT]
        member.commit()
        for n in range(3):
            stream.append(b"%d" % n, partition=1)
            (records,) = member.poll(timeout=PATIENCE)
            assert (records.partition, records.values()) == (1, [b"%d" % n])
            for _ in range(2):
                with pytest.raises(shmq.DamagedFile) as caught:
                    member.poll(timeout=PATIENCE)
                assert (caught.value.partition, caught.value.first_offset) == (0, AT)
            member.commit()
        assert member.committed() == {0: AT, 1: 3}
        member.seek(0, AT + 1)
        (records,) = member.poll(limit=10)
        assert records.values() == values[AT + 1 : AT + 11]


def test_a_member_that_skips_commits_across_the_hole(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    group = stream.group("g")
    with group.join(timeout=SOON, on_damage="skip") as member:
        found = drained(itertools.islice(member, AT + 10))
        assert found == others(values)[: AT + 10]
        member.commit()
        assert member.damaged == 1
    assert group.committed()[0] == AT + 11
    with group.join(timeout=SOON, on_damage="skip") as member:
        assert drained(member) == values[AT + 11 :]
        member.commit()
    assert group.lag() == {0: 0, 1: 0}


# ---- groups that share ----


def test_a_share_is_told_while_other_partitions_are_lent(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    with stream.share("g", max_deliveries=2) as share:
        assert drained(share.get_many(COUNT)) == values[:AT]
        for n in range(3):
            stream.append(b"%d" % n, partition=1)
            (record,) = share.get_many(10)
            assert record.value == b"%d" % n
            record.ack()
            for _ in range(2):
                with pytest.raises(shmq.DamagedFile) as caught:
                    share.get_many(10, timeout=PATIENCE)
                assert (caught.value.partition, caught.value.first_offset) == (0, AT)
    (summary,) = stream.groups()
    assert (summary.acked, summary.held, summary.skipped) == (3, AT, 0)


def test_a_share_that_skips_is_lent_what_is_behind(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    with stream.share("g", on_damage="skip") as share:
        found = []
        with contextlib.suppress(shmq.Empty):
            while True:
                record = share.get(timeout=SOON)
                found.append(record.value)
                record.ack()
        assert found == others(values)
        assert share.damaged == 1
    (summary,) = stream.groups()
    assert (summary.acked, summary.skipped, summary.lag) == (COUNT - 1, 1, 0)


def test_a_record_that_is_damaged_after_it_was_lent_is_no_trap(
    connect: Connect, stream: Stream, values: list[bytes], writer_process: WriterProcess
) -> None:
    with stream.share("g", max_deliveries=2) as share:
        share.get_many(AT + 3)[AT].nack()
        (path,) = [path for path in files(writer_process) if values[AT] in path.read_bytes()]
        flip(path, path.read_bytes().index(values[AT]))
        with pytest.raises(shmq.DamagedFile):
            share.get(timeout=PATIENCE)
        assert share.get(timeout=PATIENCE).value == values[AT + 3]
        (summary,) = stream.groups()
        assert (summary.dropped, summary.held) == (1, AT + 3)


# ---- subscriptions ----


def test_a_subscription_raises_or_skips_and_counts(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    with stream.subscribe(history=None, timeout=0.0) as subscription:
        assert drained(itertools.islice(subscription, AT)) == values[:AT]
        for n in range(3):
            stream.append(b"%d" % n, partition=1)
            assert next(subscription).value == b"%d" % n
            with pytest.raises(shmq.DamagedFile):
                next(subscription)
    with stream.subscribe(history=None, timeout=0.0, on_damage="skip") as subscription:
        found = [bytes(record.value) for record in subscription if record.partition == 0]
        assert found == others(values)
        assert subscription.damaged == 1


def test_a_history_that_cannot_be_read_is_an_error_or_counted(
    stream: Stream, values: list[bytes], damaged: Path
) -> None:
    with pytest.raises(shmq.DamagedFile):
        stream.subscribe(history=COUNT)
    with stream.subscribe(history=10) as subscription:
        assert drained(subscription.poll()) == values[-10:]
    with stream.subscribe(history=COUNT, on_damage="skip") as subscription:
        assert drained(subscription.poll()) == others(values)
        assert subscription.damaged == 1


@pytest.mark.parametrize("word", ["no", "", "SKIP"])
def test_nothing_else_is_taken_for_what_is_to_be_done(connect: Connect, word: Any) -> None:
    stream = connect().create_stream("t")
    for call in (
        lambda: stream.reader(on_damage=word),
        lambda: stream.areader(on_damage=word),
        lambda: stream.subscribe(on_damage=word),
        lambda: stream.group("g").join(on_damage=word),
        lambda: stream.share("h", on_damage=word),
    ):
        with pytest.raises(shmq.InvalidOption, match="on_damage"):
            call()
