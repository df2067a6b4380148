"""Producers of streams: batches, partitions, acknowledgements, and attempts that are repeated.

Other levels: system/persistence/test_producers.py, prove/crash/stream_runner.py.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq import Stream
from tests.support.waiting import eventually
from tests.support.writer_process import WriterProcess, running_writer

from .conftest import Connect
from .tools import LATER, in_thread, outcome

#: Lines that are much the same, as bytes.
LINES = [b"user %d has seen page %d of the catalogue" % (n % 7, n) for n in range(300)]


@pytest.fixture
def writer_process(namespace: str) -> Iterator[WriterProcess]:
    """A persistence writer of the test's namespace."""
    with running_writer(namespace) as writer_process:
        yield writer_process


@pytest.fixture
def stream(broker: shmq.Broker) -> Stream:
    return broker.create_stream("s", partitions=3)


def values(stream: Stream, partition: int) -> list[bytes]:
    return [bytes(each.value) for each in stream.read(partition, 0)]


def count(stream: Stream) -> int:
    return sum(each.latest for each in stream.offsets())


def test_without_linger_a_record_is_there_at_once(stream: Stream) -> None:
    with stream.producer() as producer:
        partition = producer.send(b"x", key="k", headers={"a": 1})

        assert partition == zlib.crc32(b"k") % 3
        (record,) = stream.read(partition, 0)
        assert (record.key, record.headers) == (b"k", {"a": 1})
    assert (producer.appended, producer.pending) == (1, 0)


def test_a_batch_goes_when_it_is_full_and_with_flush_and_close(stream: Stream) -> None:
    producer = stream.producer(batch_bytes=400, linger=LATER)
    for _ in range(3):
        producer.send(bytes(50), partition=1)
    assert (count(stream), producer.pending) == (0, 3)
    producer.send(bytes(200), partition=1)
    assert (count(stream), producer.pending) == (3, 1)
    producer.flush()
    assert (count(stream), producer.pending) == (4, 0)
    producer.send(b"last", partition=2)
    producer.close()
    producer.close()
    assert values(stream, 2) == [b"last"]
    with pytest.raises(shmq.ShmqError, match="closed"):
        producer.send(b"x")


def test_a_batch_goes_when_it_has_waited_for_long_enough(stream: Stream) -> None:
    with stream.producer(linger=0.01) as producer:
        producer.send(b"x", partition=0)
        eventually(lambda: count(stream) == 1, "the batch goes")
        producer.send(b"y", partition=0)
        eventually(lambda: count(stream) == 2, "the next one goes, too")


def test_the_partitioner_may_be_ones_own(stream: Stream) -> None:
    with stream.producer(partitioner=lambda key, n: len(key or b"") % n) as producer:
        assert [producer.send(b"x", key="k" * n) for n in range(4)] == [0, 1, 2, 0]
    with (
        stream.producer(partitioner=lambda _key, n: n) as producer,
        pytest.raises(shmq.InvalidOption, match="partition=3"),
    ):
        producer.send(b"x")


def test_without_a_key_a_batch_is_of_one_partition(stream: Stream) -> None:
    with stream.producer(linger=LATER, batch_bytes=1000) as producer:
        chosen = [producer.send(bytes(100)) for _ in range(60)]
    assert set(chosen) == {0, 1, 2}
    assert chosen[:3] == [chosen[0]] * 3


def test_what_can_never_go_in_raises_at_once_and_is_in_no_batch(stream: Stream) -> None:
    most = stream.options.max_record_bytes
    assert most is not None
    with stream.producer(linger=LATER) as producer:
        with pytest.raises(shmq.MessageTooLarge):
            producer.send(bytes(most + 1))
        with pytest.raises(TypeError):
            producer.send(object())
        assert producer.pending == 0


class Failing:
    """Appends, and then says that it could not."""

    def __init__(self, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
        self._append, self.times = stream.append_block, 1
        monkeypatch.setattr(stream, "append_block", self, raising=False)

    def __call__(self, what: Any, **how: Any) -> Any:
        found = self._append(what, **how)
        if self.times:
            self.times -= 1
            raise shmq.ConnectionLost("whether it was appended is unknown")
        return found


def test_a_batch_that_is_tried_again_is_not_there_twice(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(stream, monkeypatch)
    producer = stream.producer()
    producer.send(b"one", partition=0)  # it may be there: `send` has taken it
    assert producer.pending == 1
    producer.send(b"two", partition=0)

    assert values(stream, 0) == [b"one", b"two"]
    assert (producer.appended, producer.pending) == (2, 0)


def test_without_acknowledgements_what_fails_is_dropped_and_counted(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(stream, monkeypatch)
    with stream.producer(acks="none", idempotent=False) as producer:
        producer.send(b"one", partition=0)
        producer.send(b"two", partition=0)
    assert (producer.failed, producer.appended) == (1, 1)


def test_what_is_dropped_keeps_its_numbers(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    Failing(stream, monkeypatch)
    with stream.producer(acks="none") as producer:
        for value in (b"perhaps", b"two", b"three"):
            producer.send(value, partition=0)
    assert (producer.failed, producer.appended) == (1, 2)
    assert values(stream, 0) == [b"perhaps", b"two", b"three"]


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_without_acknowledgements_what_finds_no_room_is_dropped_and_counted(
    broker: shmq.Broker, compression: Any
) -> None:
    stream = broker.create_stream("full", 1, ring_bytes=64 << 10, overflow="block")
    stream.group("g")  # which reads nothing
    with stream.producer(acks="none", compression=compression) as producer:

        def send() -> None:
            for n in range(100):
                producer.send(bytes([n]) + random.Random(n).randbytes(999) + bytes(1000))

        outcome(in_thread(send))
        assert producer.failed > 0
        assert producer.appended == stream.latest(0) > 0
        assert (producer.appended + producer.failed, producer.pending) == (100, 0)

        stream.delete_group("g")
        producer.send(b"there is room")
    assert stream.read(0, producer.appended - 1).values() == [b"there is room"]


def test_of_a_batch_that_is_dropped_what_went_in_is_not_counted(broker: shmq.Broker) -> None:
    stream = broker.create_stream("full", 1, ring_bytes=64 << 10, overflow="block")
    stream.group("g")
    producer = stream.producer(acks="none", linger=LATER, batch_bytes=1 << 20)
    for _ in range(100):
        producer.send(bytes(1000))
    outcome(in_thread(producer.close))
    assert producer.appended == stream.latest(0) > 0
    assert producer.appended + producer.failed == 100


def test_how_many_wait_is_known_while_an_append_waits_for_room(broker: shmq.Broker) -> None:
    stream = broker.create_stream("full", 1, ring_bytes=64 << 10, overflow="block")
    stream.group("g")
    with pytest.raises(shmq.Full):
        for _ in range(100):
            stream.append(bytes(1000), block=False)
    producer = stream.producer()
    sending = in_thread(producer.send, bytes(1000))
    eventually(lambda: outcome(in_thread(lambda: producer.pending)) == 1, "the record waits")
    stream.delete_group("g")
    outcome(sending)
    assert (producer.pending, producer.appended) == (0, 1)


def test_a_record_that_is_too_large_with_its_key_is_in_no_batch(stream: Stream) -> None:
    most = stream.options.max_record_bytes
    assert most is not None
    with stream.producer(linger=LATER) as producer:
        with pytest.raises(shmq.MessageTooLarge):
            producer.send(bytes(most - 2), key="key")
        producer.send(bytes(most - 3), key="key", partition=0)
    assert stream.latest(0) == 1


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_batch_is_compressed_and_read_one_by_one(
    connect: Connect, stream: Stream, compression: Any
) -> None:
    with stream.producer(linger=LATER, compression=compression) as producer:
        for n, line in enumerate(LINES):
            producer.send(line, key=f"user {n % 7}", headers={"n": n}, partition=0)

    (held,) = [it.bytes for it in stream.offsets() if it.partition == 0]
    assert held < sum(map(len, LINES))
    records = connect().stream("s").read(0, 0)
    assert records.values() == LINES
    assert [it.offset for it in records] == list(range(300))
    assert (records[9].key, records[9].headers) == (b"user 2", {"n": 9})
    assert [it.value for it in stream.read(0, 150, 3)] == LINES[150:153]
    assert [it.value for it in stream.reader({0: 298}, [0], timeout=0)] == LINES[298:]
    assert [it.offset for it in stream.read(0, 0, where="header.n > 297")] == [298, 299]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_batch_that_gets_no_smaller_is_appended_as_it_is(
    stream: Stream, compression: Any
) -> None:
    with stream.producer(compression=compression) as producer:
        producer.send(b"x", partition=0)
    assert values(stream, 0) == [b"x"]
    with stream.producer(linger=LATER, compression=compression) as producer:
        for number in range(3):
            producer.send(bytes([number]), partition=1)
    plain = stream.append(b"x", partition=2)
    found = {it.partition: it.bytes for it in stream.offsets()}
    assert plain.offset == 0
    assert found[0] <= found[2] + 16  # and the numbers of the producer


def test_a_batch_that_is_too_large_for_one_piece_is_appended_as_it_is(broker: shmq.Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10)
    with stream.producer(linger=LATER, batch_bytes=40 << 10, compression="lz4") as producer:
        for _ in range(38):
            producer.send(bytes(1000))
    assert stream.latest(0) == 38


def test_a_compressed_batch_that_is_tried_again_is_not_there_twice(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(stream, monkeypatch)
    producer = stream.producer(linger=LATER, compression="zstd")
    for line in LINES[:100]:
        producer.send(line, partition=0)
    with pytest.raises(shmq.ConnectionLost):
        producer.flush()
    producer.send(LINES[100], partition=0)
    producer.flush()
    assert values(stream, 0) == LINES[:101]
    assert producer.appended == 101


def test_a_compression_that_there_is_not_is_refused(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(shmq.InvalidOption, match="brotli"):
        stream.producer(compression="brotli")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(shmq.Unsupported, match=r"shmq\[compression\]"):
        stream.producer(compression="zstd")


def test_what_is_not_compressed_as_it_says_is_refused(stream: Stream) -> None:
    for count, raw_bytes in ((0, 480), (11, 480), (None, 480), (1, None)):
        with pytest.raises((shmq.InvalidOption, TypeError)):
            stream.append_block(
                b"junk", partition=0, count=count, compression="lz4", raw_bytes=raw_bytes
            )
    with pytest.raises(shmq.ShmqError):
        stream.append_block(b"j", partition=0, count=1, compression="lz4", raw_bytes=1 << 31)
    assert stream.latest(0) == 0


def test_with_disk_a_batch_is_over_once_it_is_there(
    broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    stream = broker.create_stream("kept", 1, durability="journal")
    with stream.producer(acks="disk", linger=LATER, compression="lz4") as producer:
        for line in LINES[:100]:
            producer.send(line)
    assert producer.appended == 100

    writer_process.fail(errno.ENOSPC)
    producer = stream.producer(acks="disk")
    producer.send(LINES[100])
    with pytest.raises(shmq.NotConfirmed, match=r"1 records .* partition 0: "):
        producer.flush()
    assert (producer.appended, producer.pending) == (0, 1)
    writer_process.mend()
    eventually(lambda: confirms(producer), "the disk works again")
    assert (producer.appended, producer.pending) == (1, 0)
    assert stream.read(0, 0).values() == LINES[:101]


def confirms(producer: shmq.Producer) -> bool:
    try:
        producer.flush()
    except shmq.NotConfirmed:
        return False
    return True


#: Every way in which a record waits for others, or does not.
WAYS: dict[str, dict[str, Any]] = {
    "each at once": {},
    "full at once": {"linger": LATER, "batch_bytes": 1},
    "in batches": {"linger": LATER, "batch_bytes": 400},
    "in large batches": {"linger": LATER, "batch_bytes": 1 << 20},
    "compressed": {"linger": LATER, "batch_bytes": 400, "compression": "lz4"},
    "not idempotent": {"idempotent": False},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_send_that_raises_full_has_not_taken_the_record(
    broker: shmq.Broker, namespace: str, way: str
) -> None:
    stream = broker.create_stream("full", 1, ring_bytes=64 << 10, durability="journal")
    sent = [random.Random(n).randbytes(600) for n in range(200)]
    refused = 0
    with contextlib.ExitStack() as started, stream.producer(**WAYS[way]) as producer:
        for value in sent:
            try:
                producer.send(value)
            except shmq.Full:
                refused += 1
                if refused == 1:
                    started.enter_context(running_writer(namespace))  # which makes room
                eventually(functools.partial(is_taken, producer, value), "there is room")
        flushed(producer)
        assert (producer.pending, producer.appended) == (0, 200)
        assert [it.value for it in stream.reader("earliest", timeout=0)] == sent
    assert refused


def is_taken(producer: shmq.Producer, value: bytes) -> bool:
    try:
        producer.send(value)
    except (shmq.Full, shmq.NotConfirmed):
        return False
    return True


def flushed(producer: shmq.Producer) -> None:
    """What finds no room yet finds some later."""

    def is_over() -> bool:
        with contextlib.suppress(shmq.Full):
            producer.flush()
        return not producer.pending

    eventually(is_over, "there is room for all")


@pytest.mark.parametrize("way", WAYS)
def test_a_send_that_is_refused_has_not_taken_the_record(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    append, refusals = stream.append_block, [shmq.LockTimeout("held"), shmq.NoSpace("none")]

    def refuse(*what: Any, **how: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return append(*what, **how)

    monkeypatch.setattr(stream, "append_block", refuse, raising=False)
    with stream.producer(**WAYS[way]) as producer:
        for line in LINES[:20]:
            before = producer.pending
            while True:
                try:
                    producer.send(line, partition=0)
                    break
                except (shmq.LockTimeout, shmq.NoSpace):
                    assert producer.pending == before
        while refusals:
            with pytest.raises((shmq.LockTimeout, shmq.NoSpace), match="20 records"):
                producer.flush()
    assert values(stream, 0) == LINES[:20]
    assert (producer.pending, producer.appended) == (0, 20)


@pytest.mark.parametrize("way", WAYS)
def test_a_send_to_a_deleted_stream_has_not_taken_the_record(
    connect: Connect, stream: Stream, way: str
) -> None:
    producer = stream.producer(**WAYS[way])
    connect().delete_stream(stream.name)
    taken = 0
    for line in LINES[:20]:
        with contextlib.suppress(shmq.StreamDeleted):
            producer.send(line, partition=0)
            taken += 1
        assert producer.pending == taken
    if not taken:
        producer.close()
        return
    with pytest.raises(shmq.StreamDeleted, match=f"{taken} records .* partition 0: "):
        producer.flush()
    with pytest.raises(shmq.StreamDeleted, match=f"{taken} records"):
        producer.close()
    producer.close()


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_repeated_append_after_a_failed_disk_doubles_nothing(
    broker: shmq.Broker, writer_process: WriterProcess, idempotent: bool
) -> None:
    stream = broker.create_stream("kept", 1, durability="journal")
    stream.append(LINES[0], confirm="disk")
    writer_process.fail(errno.ENOSPC)
    producer = stream.producer(acks="disk", idempotent=idempotent)
    producer.send(LINES[1])
    with pytest.raises(shmq.NotConfirmed):
        producer.send(LINES[2])
    writer_process.mend()
    eventually(functools.partial(is_taken, producer, LINES[2]), "the disk works again")
    eventually(lambda: confirms(producer), "the disk works again")
    producer.close()
    assert stream.read(0, 0).values() == LINES[:3]


def test_an_error_of_an_earlier_record_is_raised_by_flush_with_what_is_left(
    broker: shmq.Broker,
) -> None:
    stream = broker.create_stream("s", 2)
    with stream.producer(linger=LATER) as producer:
        for partition in (0, 1, 1):
            producer.send(b"x", partition=partition)
        with pytest.MonkeyPatch.context() as patch:

            def lost(*_: Any, **__: Any) -> None:
                raise shmq.ConnectionLost("no server")

            patch.setattr(stream, "append_block", lost, raising=False)
            with pytest.raises(
                shmq.ConnectionLost, match=r"3 records .* partitions 0, 1: no server"
            ):
                producer.flush()
    assert [values(stream, 0), values(stream, 1)] == [[b"x"], [b"x", b"x"]]


def test_a_stream_without_a_journal_has_no_acknowledgements_of_the_disk(stream: Stream) -> None:
    with pytest.raises(shmq.InvalidOption, match="journal"):
        stream.producer(acks="disk")


def test_options_out_of_range_are_refused(stream: Stream) -> None:
    for wrong in ({"acks": "all"}, {"batch_bytes": 0}, {"linger": -1}):
        with pytest.raises(shmq.InvalidOption):
            stream.producer(**wrong)
