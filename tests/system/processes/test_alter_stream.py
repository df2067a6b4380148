"""A ring that grows while processes append to it and read from it."""

from __future__ import annotations

from multiprocessing.connection import Connection

import pytest

import shmq
from tests.support.processes import Start
from tests.support.waiting import eventually

RING = 64 << 10
RECORDS = 6000


def append(pipe: Connection, namespace: str, producer: int) -> None:
    """Append numbered records to a stream that is full most of the time."""
    with shmq.connect(namespace) as broker, broker.stream("clicks") as stream:
        pipe.send("attached")
        pipe.recv()
        for number in range(RECORDS):
            value = b"%d %d " % (producer, number) + b"x" * (number * 37 % 3000)
            if number % 5:
                stream.append(value, partition=0, block=True)
            else:
                stream.append_many([value], partition=0, block=True)
        pipe.send("done")
        pipe.recv()


def read(pipe: Connection, namespace: str, producers: int) -> None:
    """Read each record of a group once, in its producer's order."""
    with shmq.connect(namespace) as broker, broker.stream("clicks") as stream:
        following = [0] * producers
        with stream.group("readers").join() as member:
            pipe.send("attached")
            while min(following) < RECORDS:
                for records in member.poll(timeout=30):
                    for record in records:
                        producer, number, rest = bytes(record.value).split(b" ")
                        assert int(number) == following[int(producer)]
                        assert rest == b"x" * (int(number) * 37 % 3000)
                        following[int(producer)] += 1
                member.commit()
        pipe.send(following)
        pipe.recv()


def test_a_ring_grows_under_its_writers_and_readers(namespace: str, start: Start) -> None:
    with shmq.connect(namespace) as broker:
        stream = broker.create_stream("clicks", 1, ring_bytes=RING, overflow="block")
        reader = start(read, namespace, 2)
        assert reader.hear() == "attached"
        writers = [start(append, namespace, producer) for producer in range(2)]
        assert [writer.hear() for writer in writers] == ["attached", "attached"]
        for writer in writers:
            writer.tell()
        ring = RING
        for step in range(1, 16):
            reached = step * 2 * RECORDS // 20
            eventually(lambda: stream.offsets()[0].latest >= reached, "they append")  # noqa: B023
            ring += RING
            assert broker.alter_stream("clicks", ring_bytes=ring).ring_bytes == ring
        assert reader.hear() == [RECORDS, RECORDS]
        assert [writer.hear() for writer in writers] == ["done", "done"]


def test_a_ring_grows_beyond_what_shared_memory_has(namespace: str) -> None:
    """The room is paid for as it is used: an append is refused, and no process is killed."""
    with shmq.connect(namespace) as broker:
        stream = broker.create_stream("clicks", 1, ring_bytes=4 << 30, max_record_bytes=1 << 20)
        assert broker.alter_stream("clicks", ring_bytes=16 << 30).ring_bytes == 16 << 30
        stream.append(b"x" * 1000)
        with pytest.raises(shmq.InvalidOption, match="ring_bytes"):
            broker.alter_stream("clicks", ring_bytes=1 << 37)
