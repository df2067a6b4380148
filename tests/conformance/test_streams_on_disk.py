"""What is promised of durable streams: the disk confirms, and reads go on from the files.

Other levels: unit/storage/test_stream_files.py, system/persistence/test_streams.py,
prove/powerloss/test_streams.py.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq.api import Stream
from tests.conformance.conftest import Connect
from tests.conformance.tools import SOON, in_thread
from tests.support.waiting import PATIENCE, eventually
from tests.support.writer_process import WriterProcess, running_writer

RING = 64 << 10


@pytest.fixture
def writer_process(namespace: str) -> Iterator[WriterProcess]:
    """The namespace's persistence writer."""
    with running_writer(namespace) as writer_process:
        yield writer_process


def create(broker: shmq.Broker, **options: Any) -> Stream:
    given = {"partitions": 1, "ring_bytes": RING, "segment_bytes": RING, "durability": "journal"}
    return broker.create_stream("s", **{**given, **options})


def filled(stream: Stream, count: int) -> list[bytes]:
    """Append and confirm many times what the ring holds."""
    values = [b"%d " % n * 20 for n in range(count)]
    for first in range(0, count, 200):
        stream.append_many(
            values[first : first + 200], partition=0, confirm="disk", timeout=PATIENCE
        )
    return values


def test_what_has_left_the_ring_is_read_from_the_files(
    connect: Connect, writer_process: WriterProcess
) -> None:
    broker = connect()
    stream = create(broker)
    values = filled(stream, 2000)
    assert stream.earliest(0) == 0
    found: list[bytes] = []
    while len(found) < 2000:
        records = stream.read(0, len(found), 300)
        assert [record.offset for record in records][:1] == [len(found)]
        found += [bytes(record.value) for record in records]
    assert found == values
    with stream.reader(timeout=0.0) as reader:
        assert [bytes(record.value) for record in reader] == values


def test_a_subscriber_that_blocks_begins_with_what_only_the_files_have(
    connect: Connect, writer_process: WriterProcess
) -> None:
    stream = create(connect(), overflow="block")
    values = filled(stream, 2000)
    with stream.subscribe("#", None, policy="block", timeout=0.0) as subscription:
        assert [bytes(record.value) for record in subscription] == values
        assert subscription.lost == 0


def test_a_block_that_is_read_from_the_files_is_appended_as_it_lies(
    connect: Connect, writer_process: WriterProcess
) -> None:
    broker = connect()
    stream = create(broker)
    values = filled(stream, 2000)  # many commits
    records = stream.read(0, 150, 400)
    target = broker.create_stream("target", 1)
    target.append_block(records.data, partition=0)
    assert target.read(0, 0).values() == values[150:550]
    assert [records[n].offset for n in (0, 60, -1)] == [150, 210, 549]


def test_those_of_the_files_that_are_meant_are_found(
    connect: Connect, writer_process: WriterProcess
) -> None:
    stream = create(connect())
    values = [b"%d " % n * 20 for n in range(2000)]
    for first in range(0, 2000, 20):
        lot = range(first, first + 20)
        stream.append_many(
            [values[n] for n in lot],
            headers=[{"kind": "odd" if n % 2 else "even"} for n in lot],
            partition=0,
            confirm="disk",
            timeout=PATIENCE,
        )
    records = stream.read(0, 95, 30, where="header.kind = 'odd'")
    assert records.values() == values[95:125:2]
    assert [record.offset for record in records] == list(range(95, 125, 2))
    assert records.next_offset == 125


def test_what_was_read_from_the_files_is_there_when_they_are_gone(
    connect: Connect, writer_process: WriterProcess
) -> None:
    broker = connect()
    stream = create(broker)
    values = filled(stream, 2000)
    records = stream.read(0, 0, 300)
    broker.delete_stream("s")
    filled(create(broker), 1000)  # the writer has removed them, to write these
    assert records.values() == values[:300]
    assert [bytes(record.value) for record in records] == values[:300]


def test_what_is_read_and_kept_of_a_file_that_grows_holds_no_descriptors(
    connect: Connect, writer_process: WriterProcess
) -> None:
    stream = create(connect(), segment_bytes=16 << 20)
    values = filled(stream, 2000)
    stream.read(0, 0, 5)
    before = len(os.listdir("/proc/self/fd"))
    kept = []
    for _ in range(30):
        stream.append(b"more", partition=0, confirm="disk", timeout=PATIENCE)
        kept.append(stream.read(0, 0, 5))
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    assert all(records.values() == values[:5] for records in kept)


def test_the_list_counts_what_is_in_the_files_too(
    connect: Connect, writer_process: WriterProcess
) -> None:
    broker = connect()
    stream = create(broker)
    filled(stream, 2000)
    (listed,) = broker.list_streams()
    offsets = stream.offsets()[0]
    assert offsets.earliest == 0
    assert listed.records == offsets.latest == 2000
    assert listed.bytes == offsets.bytes > RING


def test_a_time_that_has_left_the_ring_is_found(
    connect: Connect, writer_process: WriterProcess
) -> None:
    stream = create(connect())
    filled(stream, 2000)
    record = stream.read(0, 300, 1)[0]
    at = stream.at(record.timestamp, 0)
    assert at <= 300
    assert stream.read(0, at, 1)[0].timestamp == record.timestamp
    assert stream.at(0.0, 0) == 0


def test_without_a_writer_nothing_is_confirmed_or_gives_way(connect: Connect) -> None:
    stream = create(connect())
    with pytest.raises(shmq.NotConfirmed):
        stream.append(b"x", partition=0, confirm="disk", timeout=0.05)
    with pytest.raises(shmq.Full):
        for _ in range(2000):
            stream.append(b"x" * 100, partition=0, block=False)
    assert stream.earliest(0) == 0
    assert bytes(stream.read(0, 0, 1)[0].value) == b"x"


def test_a_disk_that_fails_from_the_start_is_told_and_written_to_once_it_works(
    connect: Connect, writer_process: WriterProcess
) -> None:
    writer_process.fail(errno.ENOSPC)
    stream = create(connect())
    with pytest.raises(shmq.NotConfirmed, match="No space left on device"):
        in_thread(stream.append, b"x", partition=0, confirm="disk").result(PATIENCE)
    writer_process.mend()
    stream.append(b"y", partition=0)
    eventually(lambda: is_confirmed(stream), "it is written")
    assert stream.read(0, 0, 2).values() == [b"x", b"y"]


def is_confirmed(stream: Stream) -> bool:
    with contextlib.suppress(shmq.NotConfirmed):
        return bool(stream.append(b"z", partition=0, confirm="disk", timeout=PATIENCE))
    return False


def test_records_that_are_kept_no_longer_are_out_of_range(
    connect: Connect, writer_process: WriterProcess
) -> None:
    stream = create(connect(), retention_bytes=RING)
    filled(stream, 3000)
    while not (earliest := stream.earliest(0)):  # the writer looks now and then
        stream.append(b"more", partition=0, confirm="disk", timeout=PATIENCE)
    with pytest.raises(shmq.OffsetOutOfRange) as caught:
        stream.read(0, 0)
    assert caught.value.earliest >= earliest

    def is_read() -> bool:
        with contextlib.suppress(shmq.OffsetOutOfRange):  # more has gone meanwhile
            return bool(stream.read(0, stream.earliest(0), 1)[0].value)
        return False

    eventually(is_read, "what is kept is read")


def test_a_deleted_stream_is_another_one_when_it_is_made_again(
    connect: Connect, writer_process: WriterProcess
) -> None:
    broker = connect()
    filled(create(broker), 1000)
    broker.delete_stream("s")
    again = create(broker)
    values = filled(again, 10)
    assert [bytes(record.value) for record in again.read(0, 0)] == values


def test_what_new_partitions_have_is_confirmed_and_read_from_the_files(
    connect: Connect, writer_process: WriterProcess
) -> None:
    stream = create(connect())
    old = filled(stream, 1000)
    assert stream.repartition(2) == range(1, 3)
    values = [b"%d " % n * 20 for n in range(1500)]
    for first in range(0, 1500, 250):
        stream.append_many(
            values[first : first + 250], partition=2, confirm="disk", timeout=PATIENCE
        )
    with connect().stream("s").reader(timeout=SOON) as reader:
        found = [(record.partition, bytes(record.value)) for record in reader]
    assert found == [(0, value) for value in old] + [(2, value) for value in values]


def test_nothing_of_new_partitions_is_confirmed_without_a_writer(
    connect: Connect, namespace: str
) -> None:
    stream = create(connect(), partitions=2)
    stream.append(b"old", partition=1)
    stream.repartition(3)
    with pytest.raises(shmq.NotConfirmed):
        stream.append(b"new", partition=3, confirm="disk", timeout=0.05)
    stream.repartition(4)
    with pytest.raises(shmq.Full):
        for _ in range(2000):
            stream.append(b"x" * 100, partition=6, block=False)
    with running_writer(namespace):
        for partition in range(5, 9):
            stream.append(b"x", partition=partition, confirm="disk", timeout=PATIENCE)
        assert [found.earliest for found in stream.offsets()] == [0] * 9


def test_a_flipped_bit_is_an_error_of_its_partition_alone(
    connect: Connect, writer_process: WriterProcess
) -> None:
    stream = create(connect(), partitions=2)
    values = filled(stream, 2000)
    paths = [path for path in writer_process.folder.rglob("*") if path.parent.name == "0"]
    (path,) = [path for path in paths if values[100] in path.read_bytes()]
    at = path.read_bytes().index(values[100])
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([values[100][0] ^ 1]))

    other = connect().stream("s")
    assert other.read(0, 0, 2000).values() == values[:100]
    with pytest.raises(shmq.DamagedFile, match=f"{path} is damaged at byte") as caught:
        other.read(0, 100)
    assert (caught.value.path, caught.value.offset) == (str(path), at - 48)
    assert other.read(0, 1900).values() == values[1900:]

    reader = other.reader(timeout=0.0)
    assert [record.value for record in itertools.islice(reader, 100)] == values[:100]
    for n in range(3):
        with pytest.raises(shmq.DamagedFile):
            next(reader)
        stream.append(b"%d" % n, partition=1)
        assert next(reader).value == b"%d" % n
    reader.seek({0: 1900})
    assert [record.value for record in reader] == values[1900:]
