"""Producers that repeat themselves after a reboot: what is on disk is not appended again."""

from __future__ import annotations

from typing import Any

import pytest

import shmq
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import PRODUCERS, bases, partition_directory
from shmq.disk.storage.stream_producers import producers_before
from tests.support.memory_loss import bring_back, lose_memory
from tests.support.waiting import PATIENCE
from tests.support.writer_process import WriterProcess

pytestmark = pytest.mark.prove

RING = 64 << 10


def create(broker: shmq.Broker, **options: Any) -> Any:
    given = {"ring_bytes": RING, "durability": "journal", "segment_bytes": RING, **options}
    return broker.create_stream("s", 1, **given)


def append(stream: Any, sequence: int, *values: bytes, producer: int = 7) -> Any:
    (made,) = stream.append_many(
        list(values), partition=0, producer=producer, sequence=sequence, confirm="disk",
        timeout=PATIENCE,
    )  # fmt: skip
    return made


def reboot(writer_process: WriterProcess, broker: shmq.Broker) -> Any:
    writer_process.stop()
    lose_memory(broker.namespace)
    bring_back(broker.namespace, writer_process.folder)
    writer_process.start()
    return broker.stream("s")


def values(stream: Any, start: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while start < stream.latest(0):
        records = stream.read(0, start)
        found += records.values()
        start = records.next_offset
    return found


def test_what_is_repeated_after_a_reboot_is_there_once_and_keeps_its_offset(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    append(stream, 0, b"a", b"b")
    append(stream, 0, b"other", producer=8)
    append(stream, 2, b"c")
    stream = reboot(writer_process, broker)

    again = append(stream, 2, b"c")
    assert (again.first, again.duplicate) == (3, True)
    assert append(stream, 0, b"other", producer=8).first == 2
    append(stream, 3, b"d")
    assert values(stream) == [b"a", b"b", b"other", b"c", b"d"]
    with pytest.raises(shmq.OutOfSequence):
        append(stream, 9, b"x")


def test_of_a_batch_that_is_on_disk_in_part_the_rest_is_appended(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    append(stream, 0, b"a", b"b")  # as a commit that ended within a batch leaves it
    stream = reboot(writer_process, broker)

    append(stream, 0, b"a", b"b", b"c", b"d")
    append(stream, 4, b"e")
    assert values(stream) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_producer_whose_last_records_went_with_the_memory_may_go_on(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    append(stream, 0, b"a")
    stream = reboot(writer_process, broker)

    append(stream, 5, b"f")
    append(stream, 6, b"g")
    assert values(stream) == [b"a", b"f", b"g"]
    with pytest.raises(shmq.OutOfSequence):
        append(stream, 8, b"i")


def test_a_producer_is_known_when_its_records_are_gone_and_all_restarts(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker, retention_bytes=RING)
    append(stream, 0, b"first")
    for number in range(40):
        append(stream, number * 10, *[b"x" * 1000] * 10, producer=8)
    stream = reboot(writer_process, broker)
    stream = reboot(writer_process, broker)

    assert stream.earliest(0) > 0
    assert append(stream, 0, b"first").duplicate
    assert stream.latest(0) == 401


def test_without_what_was_written_down_the_last_segments_tell(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = create(broker)
    for number in range(30):
        append(stream, number * 10, *[b"x" * 1000] * 10)
    writer_process.stop()
    disk = Disk(writer_process.folder / partition_directory("s", stream.identity, 0))
    assert len(bases(disk.names())) > 3
    known = producers_before(disk, 300)
    raw = disk.path(PRODUCERS).read_bytes()
    assert disk.path(PRODUCERS).stat().st_mode & 0o777 == 0o600

    for left in (b"", raw[:-1], raw[:-1] + bytes([raw[-1] ^ 1])):
        disk.path(PRODUCERS).write_bytes(left)
        (last,) = producers_before(disk, 300).values()
        assert sum(last[::2]) == 300
        assert last[0] - last[1] == 0
    disk.unlink(PRODUCERS)
    assert producers_before(disk, 300).keys() == known.keys()
    segment = disk.path(f"{bases(disk.names())[-1]:020d}.dmsq")
    data = bytearray(segment.read_bytes())
    data[1500] ^= 1
    segment.write_bytes(data)
    assert producers_before(disk, 300) == {}
