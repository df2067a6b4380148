"""Numbers of NumPy, or of any numeric type, are accepted in place of an int or a float."""

from __future__ import annotations

import fractions
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmq
from shmq import Broker, Queue, Stream

from .tools import drain

INTS = [np.int64, np.uint8, np.array]
REALS = [np.int64, np.float32, np.float64, fractions.Fraction]

#: What takes a whole number.
WHOLE: dict[str, Callable[[Queue, Any], object]] = {
    "max": lambda queue, number: queue.get_many(number),
    "max of a batch": lambda queue, number: queue.get_batch(number),
    "max of packed batches": lambda queue, number: queue.get_packed(number),
    "prefetch": lambda queue, number: queue.consume(number),
    "limit of peek": lambda queue, number: queue.peek(number),
    "limit of redrive": lambda queue, number: queue.redrive(number),
    "priority": lambda queue, number: queue.put(b"", priority=number),
    "size of a loan": lambda queue, number: queue.loan(number),
    "size of a commit": lambda queue, number: queue.loan(8).commit(number),
    "lengths": lambda queue, number: queue.put_packed(b"1234", number),
}

#: What takes a number of seconds.
SECONDS: dict[str, Callable[[Queue, Any], object]] = {
    "timeout of a get": lambda queue, number: queue.get(timeout=number),
    "timeout of a put": lambda queue, number: queue.put(b"", timeout=number),
    "delay": lambda queue, number: queue.put(b"", delay=number),
    "ttl": lambda queue, number: queue.put(b"", ttl=number),
    "delay of a nack": lambda queue, number: queue.get().nack(number),
    "seconds": lambda queue, number: queue.get().extend(number),
}


#: What of a stream takes a whole number.
OF_STREAM: dict[str, Callable[[Stream, Any], object]] = {
    "partition of an append": lambda stream, number: stream.append(b"", partition=number),
    "producer": lambda stream, number: stream.append(b"", partition=0, producer=number, sequence=0),
    "sequence": lambda stream, number: stream.append(
        b"", partition=0, producer=1, sequence=number - number
    ),
    "partition of a read": lambda stream, number: stream.read(number, 0),
    "offset": lambda stream, number: stream.read(0, number),
    "limit": lambda stream, number: stream.read(0, 0, number),
    "partition of an end": lambda stream, number: stream.latest(number),
}


#: What of a stream takes a number of seconds.
SECONDS_OF_STREAM: dict[str, Callable[[Stream, Any], object]] = {
    "timeout of an append": lambda stream, number: stream.append(b"", timeout=number),
    "timeout of many": lambda stream, number: stream.append_many([b""], timeout=number),
    "timeout of a read": lambda stream, number: stream.read(0, 0, block=True, timeout=number),
    "timeout without a wait": lambda stream, number: stream.read(0, 0, timeout=number),
    "timeout of a reader": lambda stream, number: next(stream.reader(timeout=number)),
    "timestamp": lambda stream, number: stream.append(b"", timestamp=number),
    "time of an offset": lambda stream, number: stream.at(number, 0),
    "session_timeout": lambda stream, number: stream.group("g", session_timeout=number).summary(),
}


@pytest.mark.parametrize("kind", REALS)
@pytest.mark.parametrize("what", SECONDS_OF_STREAM)
def test_a_number_of_seconds_of_a_stream_may_be_of_any_type(
    broker: Broker, what: str, kind: Any
) -> None:
    stream = broker.create_stream("events", 1)
    stream.append(b"", timestamp=1)

    SECONDS_OF_STREAM[what](stream, kind(1))


@pytest.mark.parametrize("wrong", [True, np.True_, "1", np.ones(2)])
@pytest.mark.parametrize("what", SECONDS_OF_STREAM)
def test_what_is_no_number_of_seconds_is_refused_of_a_stream(
    broker: Broker, what: str, wrong: object
) -> None:
    stream = broker.create_stream("events", 1)
    stream.append(b"")

    with pytest.raises(TypeError, match="seconds"):
        SECONDS_OF_STREAM[what](stream, wrong)


@pytest.mark.parametrize("timeout", [math.inf, 1e308, np.uint8(200), np.float16(1)])
def test_a_timeout_may_be_as_long_as_a_number_can_be(queue: Queue, timeout: Any) -> None:
    queue.put_many([b"1"] * 4, timeout=timeout)

    queue.get(timeout=timeout).ack()
    queue.get_many(1, timeout=timeout)[0].ack()
    queue.get_batch(1, timeout=timeout).ack()
    with queue.consume(timeout=timeout) as messages:
        next(messages).ack()
    assert queue.qsize() == 0


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
@pytest.mark.parametrize("what", OF_STREAM)
def test_a_whole_number_of_a_stream_may_be_of_any_type(
    broker: Broker, what: str, kind: Any
) -> None:
    stream = broker.create_stream("events", 2)
    stream.append(b"", partition=0)

    OF_STREAM[what](stream, kind(1))


@pytest.mark.parametrize("kind", INTS)
@pytest.mark.parametrize("what", WHOLE)
def test_a_whole_number_may_be_of_any_type(queue: Queue, what: str, kind: Any) -> None:
    queue.put(b"1")

    WHOLE[what](queue, kind(1))


@pytest.mark.parametrize("wrong", [True, np.True_, 1.0, np.float32(1), "1"])
@pytest.mark.parametrize("what", WHOLE)
def test_what_is_no_whole_number_is_none_of_numpys_either(
    queue: Queue, what: str, wrong: object
) -> None:
    queue.put(b"1")

    # A priority may be a text, but only one of three words.
    is_word = what == "priority" and isinstance(wrong, str)
    with pytest.raises(shmq.InvalidOption if is_word else TypeError):
        WHOLE[what](queue, wrong)


@pytest.mark.parametrize("kind", REALS)
@pytest.mark.parametrize("what", SECONDS)
def test_a_number_of_seconds_may_be_of_any_type(queue: Queue, what: str, kind: Any) -> None:
    queue.put(b"1")

    SECONDS[what](queue, kind(1))


@pytest.mark.parametrize("wrong", [True, np.True_, "1", np.ones(2)])
@pytest.mark.parametrize("what", SECONDS)
def test_what_is_no_number_of_seconds_is_refused(queue: Queue, what: str, wrong: object) -> None:
    queue.put(b"1")

    with pytest.raises(TypeError, match="seconds"):
        SECONDS[what](queue, wrong)


def test_a_time_may_be_of_any_type(queue: Queue) -> None:
    queue.put(b"1", deliver_at=np.float64(time.time()))

    assert drain(queue) == [b"1"]


def test_receipts_may_come_out_of_an_array(queue: Queue) -> None:
    queue.put_many([b"1", b"2", b"3"])
    first, *rest = np.array([message.receipt for message in queue.get_many(3)], np.uint64)

    queue.ack(first)

    assert queue.ack_many(rest) == []
    assert queue.stats().acked == 3


def test_options_are_stored_as_plain_numbers(broker: Broker) -> None:
    queue = broker.create_queue(
        "numbers",
        capacity=np.int64(10),  # type: ignore[arg-type]
        arena_bytes=np.uint32(65536),  # type: ignore[arg-type]
        max_deliveries=np.int8(3),  # type: ignore[arg-type]
        visibility_timeout=np.float32(5),  # type: ignore[arg-type]
        ttl=np.int64(60),  # type: ignore[arg-type]
    )
    same = broker.ensure_queue("numbers", capacity=10, arena_bytes=65536)

    assert queue.options == same.options
    assert {type(value) for value in queue.options.as_dict().values()} <= {
        bool,
        int,
        float,
        str,
        type(None),
    }


@pytest.mark.parametrize("lengths", ["11", 1.5, [1.5, 2.5], None, ["1"]])
def test_lengths_that_are_no_ints_are_named(queue: Queue, lengths: Any) -> None:
    with pytest.raises(TypeError, match="lengths"):
        queue.put_packed(b"1234", lengths)


@pytest.mark.parametrize("lengths", [[-1, 5], [1 << 32], 3, 0, -4, [1, 2]])
def test_lengths_that_do_not_fit_the_data_are_named(queue: Queue, lengths: Any) -> None:
    with pytest.raises(shmq.InvalidOption, match="length"):
        queue.put_packed(b"1234", lengths)
