"""Packed batches: many records in one buffer in, and one buffer out.

Other levels: c/test_packed_batch.c.
"""

from __future__ import annotations

import array
import ctypes
import itertools
import struct
import time
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE, eventually

from .tools import LATER, SOON, drain, getter_asleep, in_thread, outcome, putter_asleep

MIB = 1 << 20


def records_of(packed: shmq.Packed) -> list[bytes]:
    """The records, held against everything else that says where they are."""
    records = list(packed)
    assert len(packed) == len(records)
    assert b"".join(records) == packed.data
    assert list(packed.lengths) == [len(record) for record in records]
    assert list(packed.offsets) == [0, *itertools.accumulate(map(len, records))]
    assert (packed.lengths.format, packed.offsets.format) == ("I", "Q")
    assert packed.size is None or set(packed.lengths) <= {packed.size}
    return records


def take(queue: Queue, most: int = 65536) -> list[bytes]:
    """The records of the next packed batches, acknowledged."""
    packed = queue.get_packed(most, block=False)
    records = records_of(packed)
    assert packed.ack() == []
    return records


# ---- in and out ----


def test_records_of_one_size_come_out_as_they_went_in(queue: Queue) -> None:
    put = queue.put_packed(b"aaabbbccc", 3)

    packed = queue.get_packed()

    assert (put.sequence, put.duplicate) == (1, False)
    assert packed.size == 3
    assert records_of(packed) == [b"aaa", b"bbb", b"ccc"]


@pytest.mark.parametrize(
    "lengths",
    [
        [2, 0, 5, 1],
        (2, 0, 5, 1),
        array.array("I", [2, 0, 5, 1]),
        memoryview(array.array("I", [2, 0, 5, 1])),
        (ctypes.c_uint32 * 4)(2, 0, 5, 1),
        range(0),
    ],
    ids=["list", "tuple", "array", "memoryview", "ctypes", "range"],
)
def test_lengths_are_any_unsigned_32_bit_numbers(queue: Queue, lengths: Any) -> None:
    want = [b"ab", b"", b"cdefg", b"h"] if len(lengths) else []

    queue.put_packed(b"".join(want), lengths)

    packed = queue.get_packed()
    assert packed.size is None
    assert records_of(packed) == want
    assert len(packed.receipts) == 1


def test_lengths_may_come_from_an_iterator(queue: Queue) -> None:
    queue.put_packed(b"abbccc", (number for number in (1, 2, 3)))

    assert take(queue) == [b"a", b"bb", b"ccc"]


def test_lengths_that_are_all_alike_are_one_size(queue: Queue) -> None:
    queue.put_packed(b"aabbcc", [2, 2, 2])

    packed = queue.get_packed()

    assert packed.size == 2
    assert records_of(packed) == [b"aa", b"bb", b"cc"]


def test_lengths_need_not_be_next_to_each_other(queue: Queue) -> None:
    spread = memoryview(array.array("I", [1, 9, 2, 9, 3, 9]))[::2]

    queue.put_packed(b"abbccc", spread)

    assert take(queue) == [b"a", b"bb", b"ccc"]


@pytest.mark.parametrize(
    ("data", "lengths"), [(b"", 8), (b"", []), (b"", [0]), (b"", [0] * 1000)], ids=repr
)
def test_no_data_is_no_records_or_records_of_nothing(
    queue: Queue, data: bytes, lengths: Any
) -> None:
    queue.put_packed(data, lengths)

    packed = queue.get_packed()

    assert records_of(packed) == [b""] * (len(lengths) if isinstance(lengths, list) else 0)
    assert len(packed.receipts) == 1
    assert packed.ack() == []
    assert queue.stats().acked == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_the_data_is_any_buffer(queue: Queue, kind: type) -> None:
    queue.put_packed(kind(b"aabb"), 2)

    assert take(queue) == [b"aa", b"bb"]


def test_arrays_of_numpy_go_in_and_out(queue: Queue) -> None:
    numpy = pytest.importorskip("numpy")
    table = numpy.arange(3000, dtype=numpy.int64).reshape(1000, 3)
    words = [b"alpha", b"", b"omega minus"]

    queue.put_packed(table, table.strides[0])
    queue.put_packed(b"".join(words), numpy.array([5, 0, 11], dtype=numpy.uint32))

    first = queue.get_packed(1000)
    assert (numpy.frombuffer(first.data, dtype=numpy.int64).reshape(-1, 3) == table).all()
    second = queue.get_packed()
    assert records_of(second) == words
    assert numpy.asarray(second.lengths).dtype == numpy.uint32
    assert numpy.asarray(second.offsets).tolist() == [0, 5, 5, 16]


def test_lengths_of_numpy_may_be_one_number_or_an_array_of_one(queue: Queue) -> None:
    numpy = pytest.importorskip("numpy")

    for lengths in (numpy.int64(4), numpy.array([4], dtype=numpy.uint32), [numpy.int8(4)]):
        queue.put_packed(b"abcd", lengths)

    assert take(queue) == [b"abcd"] * 3


@pytest.mark.parametrize("kind", ["int32", "int64", "uint64", "float32", "uint16"])
def test_arrays_of_other_numbers_are_no_lengths(queue: Queue, kind: str) -> None:
    numpy = pytest.importorskip("numpy")

    with pytest.raises(TypeError, match="unsigned 32-bit"):
        queue.put_packed(b"aabb", numpy.array([2, 2], dtype=kind))


def test_every_second_number_of_an_array_will_do_as_lengths(queue: Queue) -> None:
    numpy = pytest.importorskip("numpy")

    queue.put_packed(b"abbccc", numpy.array([1, 9, 2, 9, 3, 9], dtype=numpy.uint32)[::2])

    assert take(queue) == [b"a", b"bb", b"ccc"]


def test_batches_and_single_messages_are_one_run_of_records(queue: Queue) -> None:
    queue.put_packed(b"aabb", 2)
    queue.put(b"single")
    queue.put_packed(b"cccd", [3, 1])
    queue.put("text")

    packed = queue.get_packed()

    assert records_of(packed) == [b"aa", b"bb", b"single", b"ccc", b"d", b"text"]
    assert packed.size is None
    assert len(packed.receipts) == 4
    assert packed.ack() == []
    assert queue.stats().acked == 4


def test_batches_of_one_size_are_one_size_together(queue: Queue) -> None:
    queue.put_packed(b"aabb", 2)
    queue.put_packed(b"cc", [2])
    queue.put(b"dd")

    packed = queue.get_packed()

    assert packed.size == 2
    assert records_of(packed) == [b"aa", b"bb", b"cc", b"dd"]


def test_a_batch_is_never_split(queue: Queue) -> None:
    for _ in range(3):
        queue.put_packed(b"x" * 100, 1)

    assert len(queue.get_packed(1)) == 100
    assert queue.stats().in_flight == 1
    assert len(queue.get_packed(100)) == 100
    assert queue.stats().in_flight == 2


def test_what_is_taken_ends_with_enough_records(queue: Queue) -> None:
    for _ in range(10):
        queue.put(b"xy")

    assert len(queue.get_packed(4)) == 4
    assert len(queue.get_packed(65536)) == 6


@pytest.mark.parametrize("size", [1, 64, 4096, 16_000, 17_000, 100_000, 3 * MIB])
def test_a_batch_may_be_small_or_large(queue: Queue, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    lengths = [size // 2, size - size // 2]

    queue.put_packed(data[:size], lengths)
    queue.put_packed(data[:size], size)

    assert take(queue, 2) == [data[: lengths[0]], data[lengths[0] : size]]
    assert take(queue) == [data[:size]]


def test_a_million_records_are_one_message(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=16 * MIB, max_message_bytes=9 * MIB)
    queue.put_packed(bytes(8 * MIB), 8)

    packed = queue.get_packed()

    assert (len(packed), packed.size, len(packed.data)) == (MIB, 8, 8 * MIB)
    assert queue.stats().in_flight == 1


def test_many_records_with_lengths_of_their_own_come_out_as_they_went_in(queue: Queue) -> None:
    lengths = [number % 97 for number in range(5000)]
    records = [number.to_bytes(8, "big") * 13 for number in range(5000)]
    records = [record[:length] for record, length in zip(records, lengths, strict=True)]
    for start in range(0, 5000, 500):
        part = records[start : start + 500]
        queue.put_packed(b"".join(part), [len(record) for record in part])

    assert take(queue, 5000) == records


# ---- one message ----


def test_get_sees_a_list_of_records(queue: Queue) -> None:
    queue.put_packed(b"aabbb", [2, 3])
    queue.put_packed(b"aabb", 2)

    messages = queue.get_many(2)

    assert [message.body for message in messages] == [[b"aa", b"bbb"], [b"aa", b"bb"]]
    assert {message.codec for message in messages} == {"packed"}
    assert bytes(messages[1].view) == b"aabb" + struct.pack("<II", 2, 2)


def test_consume_and_peek_see_a_list_of_records(queue: Queue) -> None:
    queue.put_packed(b"aabbb", [2, 3])

    assert queue.peek()[0].body == [b"aa", b"bbb"]
    with queue.consume(block=False) as consumer:
        assert [message.body for message in consumer] == [[b"aa", b"bbb"]]


def test_records_put_one_by_one_with_the_codec_are_a_packed_batch(queue: Queue) -> None:
    queue.put([b"aa", bytearray(b"bbb"), b""], codec="packed")
    queue.put_many([[b"c"], [b"dd", b"ee"]], codec="packed")

    assert take(queue) == [b"aa", b"bbb", b"", b"c", b"dd", b"ee"]


@pytest.mark.parametrize("body", [5, ["text"], [5], None], ids=repr)
def test_what_is_no_list_of_records_cannot_be_put_as_packed(queue: Queue, body: Any) -> None:
    with pytest.raises(TypeError, match="codec 'packed' takes the records as buffers"):
        queue.put(body, codec="packed")


def test_a_batch_has_priority_group_and_headers_as_any_message(queue: Queue) -> None:
    queue.put_packed(b"plain", 5)
    queue.put_packed(b"aabb", 2, priority=shmq.HIGH, headers={"k": "v"})
    queue.put_packed(b"cc", 2, group="g")
    queue.put_packed(b"dd", 2, group="g")

    first = queue.get()
    assert (first.body, first.priority, dict(first.headers)) == (
        [b"aa", b"bb"],
        shmq.HIGH,
        {"k": "v"},
    )
    assert take(queue) == [b"plain", b"cc"]
    assert take(queue) == [b"dd"]


def test_a_batch_may_be_delayed_and_may_expire(broker: Broker) -> None:
    queue = broker.create_queue("jobs", on_expired="drop")
    queue.put_packed(b"aabb", 2, delay=LATER)
    queue.put_packed(b"aabb", 2, ttl=SOON)

    eventually(lambda: queue.stats().dropped == 1, "the batch expires")

    assert queue.stats().delayed == 1
    assert take(queue) == []


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_batch_is_put_once_by_its_id(broker: Broker, size: int) -> None:
    queue = broker.create_queue("jobs", dedupe_window=LATER)

    first = queue.put_packed(bytes(size), size, dedupe_id="id")
    second = queue.put_packed(bytes(size), size, dedupe_id="id")

    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.sequence == second.sequence
    assert take(queue) == [bytes(size)]


def test_a_full_queue_refuses_a_batch_or_waits(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put(b"in the way")
    with pytest.raises(shmq.Full):
        queue.put_packed(b"aabb", 2)
    with pytest.raises(shmq.Full):
        queue.put_packed(b"aabb", 2, timeout=SOON)
    waiting = in_thread(queue.put_packed, b"aabb", 2, True)
    putter_asleep(queue)

    queue.get().ack()

    assert outcome(waiting).sequence == 2
    assert take(queue) == [b"aa", b"bb"]


def test_a_batch_must_fit_with_its_lengths(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_message_bytes=1000)
    queue.put_packed(bytes(992), 31)

    with pytest.raises(shmq.MessageTooLarge, match="a body of 1001 bytes"):
        queue.put_packed(bytes(993), 993)
    with pytest.raises(shmq.MessageTooLarge, match="a body of 1004 bytes"):
        queue.put_packed(bytes(988), [988, 0])
    assert queue.qsize() == 1


def test_a_batch_beyond_its_deliveries_is_a_dead_letter_and_can_be_redriven(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=1)
    queue.put_packed(b"aabbb", [2, 3])
    queue.get_packed().nack()
    dead = broker.queue("jobs.dlq")
    letter = dead.peek()[0]
    assert letter.dead is not None
    assert (letter.body, letter.codec, letter.dead.reason) == (
        [b"aa", b"bbb"],
        "packed",
        "max_deliveries",
    )
    assert records_of(dead.get_packed()) == [b"aa", b"bbb"]
    dead.close()

    assert broker.queue("jobs.dlq").redrive() == 1

    assert take(queue) == [b"aa", b"bbb"]


# ---- waiting and settling ----


def test_an_empty_queue_gives_nothing_once_the_time_is_up(queue: Queue) -> None:
    start = time.monotonic()

    packed = queue.get_packed(timeout=SOON)

    assert time.monotonic() - start >= SOON
    assert (records_of(packed), packed.data, packed.receipts) == ([], b"", [])
    assert packed.ack() == []


def test_get_packed_waits_for_the_first_message(queue: Queue, other: Queue) -> None:
    waiting = in_thread(lambda: records_of(queue.get_packed(timeout=PATIENCE)))
    getter_asleep(other)

    other.put_packed(b"aabb", 2)

    assert outcome(waiting) == [b"aa", b"bb"]


def test_the_block_acknowledges_or_returns_all(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=0)
    queue.put_packed(b"aabb", 2)

    with pytest.raises(RuntimeError), queue.get_packed() as packed:
        raise RuntimeError
    assert packed.settled
    with queue.get_packed() as packed:
        assert records_of(packed) == [b"aa", b"bb"]

    assert (queue.stats().nacked, queue.stats().acked) == (1, 1)
    assert records_of(packed) == [b"aa", b"bb"]


def test_a_lease_that_ran_out_is_refused(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=LATER)
    queue.put_packed(b"aabb", 2)
    packed = queue.get_packed()
    receipts = packed.receipts
    queue.extend(receipts[0], SOON)

    eventually(lambda: queue.stats().expired == 1, "the lease runs out")

    assert packed.ack() == receipts
    assert take(queue) == [b"aa", b"bb"]


# ---- what is refused ----


@pytest.mark.parametrize(
    ("data", "lengths"),
    [
        (b"aabb", 3),
        (b"aabb", 0),
        (b"", 0),
        (b"aabb", -1),
        (b"aabb", 5),
        (b"aabb", 1 << 32),
        (b"aabb", (1 << 32) - 1),
        (b"aabb", 1 << 70),
        (b"aabb", []),
        (b"aabb", [2, 1]),
        (b"aabb", [2, 3]),
        (b"aabb", [4, -1, 1]),
        (b"aabb", [4, 1 << 32]),
        (b"aabb", [2, (1 << 32) - 1, 3]),
        (b"", [1]),
    ],
    ids=repr,
)
def test_lengths_that_do_not_add_up_to_the_data_are_refused(
    queue: Queue, data: bytes, lengths: Any
) -> None:
    with pytest.raises(shmq.InvalidOption, match="length"):
        queue.put_packed(data, lengths)

    assert queue.empty()


@pytest.mark.parametrize(
    "lengths",
    [True, None, 2.0, "2", "22", b"\2\2", [2.0, 2.0], ["2"], [None], array.array("i", [2, 2]),
     array.array("Q", [2, 2]), array.array("f", [2, 2]), memoryview(bytes(16)).cast("I", (2, 2))],
    ids=repr,
)  # fmt: skip
def test_lengths_of_the_wrong_type_are_refused(queue: Queue, lengths: Any) -> None:
    with pytest.raises(TypeError):
        queue.put_packed(b"aabb", lengths)

    assert queue.empty()


@pytest.mark.parametrize("data", ["text", 5, None, [b"aa", b"bb"]], ids=repr)
@pytest.mark.parametrize("properties", [{}, {"headers": {"k": "v"}}], ids=["plain", "headers"])
def test_data_that_is_no_buffer_is_refused(
    queue: Queue, data: Any, properties: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=r"buffer|bytes-like"):
        queue.put_packed(data, 2, **properties)

    assert queue.empty()


def test_data_in_pieces_is_refused(queue: Queue) -> None:
    with pytest.raises(BufferError):
        queue.put_packed(memoryview(b"a-b-c-")[::2], 1)

    assert queue.empty()


@pytest.mark.parametrize(
    ("name", "value"), [("priority", 99), ("ttl", -1), ("delay", -1), ("timeout", -1)]
)
def test_properties_out_of_range_are_refused(queue: Queue, name: str, value: Any) -> None:
    with pytest.raises(shmq.InvalidOption, match=f"{name}={value}"):
        queue.put_packed(b"aabb", 2, **{name: value})

    assert queue.empty()


# ---- what is malformed ----

MALFORMED = {
    "too short": b"x" * 7,
    "no trailer": b"x" * 20,
    "size does not divide": b"abc" + struct.pack("<II", 2, 2),
    "lengths beyond the body": b"abc" + struct.pack("<II", 99, 0xFFFFFFFF),
    "lengths do not add up": b"abc" + struct.pack("<IIII", 1, 1, 2, 0xFFFFFFFF),
    "billions of empty records": struct.pack("<II", 0xFFFFFFFF, 0),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_batch_is_one_record_and_no_body(queue: Queue, body: bytes) -> None:
    with queue.loan(len(body), codec="packed") as view:
        view[:] = body

    packed = queue.get_packed()
    assert records_of(packed) == [body]
    packed.nack(delay=0)
    message = queue.get()
    with pytest.raises(shmq.ShmqError, match="the body is not packed"):
        _ = message.body
    assert bytes(message.view) == body
    message.reject()
    assert drain_views(queue) == []


def drain_views(queue: Queue) -> list[bytes]:
    return [bytes(message.view) for message in queue.get_many(10, block=False)]


def test_records_are_drained_beside_other_messages(queue: Queue) -> None:
    queue.put_packed(b"aabb", 2)
    queue.put(b"x")

    assert drain(queue) == [[b"aa", b"bb"], b"x"]
