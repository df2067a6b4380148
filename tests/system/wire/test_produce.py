"""PRODUCE and PRODUCE_BATCH: what is taken, what is refused, and what is answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import S, T, item

MakeQueue = Callable[..., str]


def answer_of(payload: bytes) -> tuple[int, int]:
    """``accepted`` and the first sequence number."""
    assert len(payload) == 12
    return int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:], "big")


# --- PRODUCE ---------------------------------------------------------------------------


def test_a_produce_is_answered_with_its_sequence_number_and_these_rise(
    wire: Wire, queue: str
) -> None:
    numbers = [wire.put(queue, b"%d" % n) for n in range(10)]

    assert numbers == sorted(set(numbers))
    assert [each.sequence for each in wire.take_all(queue)] == numbers


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4095, 4096, 4097, 65_536, 1 << 20])
def test_a_body_of_any_size_comes_out_as_it_went_in(wire: Wire, queue: str, size: int) -> None:
    body = bytes(n * 7 & 0xFF for n in range(256)) * (size // 256 + 1)
    wire.put(queue, body[:size])
    wire.put(queue, body[:size], {"headers": {"with": "properties"}})

    for delivery in (wire.take_one(queue), wire.take_one(queue)):
        assert delivery.body == body[:size]


@pytest.mark.parametrize("flag", [0x04, 0x08, 0x10, 0x20, 0x40, 0x80])
@pytest.mark.parametrize("others", [0, 0x01])
def test_an_unknown_flag_of_a_produce_is_unsupported(
    wire: Wire, queue: str, flag: int, others: int
) -> None:
    properties: dict[str, object] | None = {} if others else None

    status = wire.status(T.PRODUCE, frames.produce(queue, b"b", properties, flag))

    assert status == S.UNSUPPORTED
    assert wire.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize("properties", [None, {"pri": 1}])
def test_the_flag_for_the_disk_is_unsupported_on_a_queue_that_keeps_no_journal(
    wire: Wire, queue: str, properties: dict[str, object] | None
) -> None:
    assert wire.status(T.PRODUCE, frames.produce(queue, b"b", properties, 0x02)) == S.UNSUPPORTED
    assert (
        wire.status(T.PRODUCE_BATCH, frames.batch(queue, item(b"b"), flags=0x02)) == S.UNSUPPORTED
    )
    assert wire.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x01",
        b"\x01\x00\x00\x00",
        b"\x01\x00\x00\x00\x01",
        b"\x01\xff\xff\xff\xff\x80",
        b"\x01\x00\x00\x00\x02\x80",
    ],
    ids=lambda rest: rest.hex() or "nothing",
)
def test_a_produce_that_is_cut_short_is_bad_request(wire: Wire, queue: str, rest: bytes) -> None:
    answer = wire.ask(T.PRODUCE, frames.name(queue) + rest)

    assert answer.status == S.BAD_REQUEST
    assert answer.payload.decode()
    assert wire.counts(queue) == (0, 0, 0)


def test_a_message_larger_than_the_queue_takes_is_too_large(
    wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(max_message_bytes=100)

    assert wire.status(T.PRODUCE, frames.produce(queue, bytes(101))) == S.TOO_LARGE

    assert wire.counts(queue) == (0, 0, 0)
    wire.put(queue, bytes(100))


@pytest.mark.parametrize("overflow", ["reject", "block"])
def test_a_full_queue_is_queue_full_and_takes_nothing(
    wire: Wire, make_queue: MakeQueue, overflow: str
) -> None:
    queue = make_queue(capacity=2, overflow=overflow)
    wire.put(queue, b"1")
    wire.put(queue, b"2")

    assert wire.status(T.PRODUCE, frames.produce(queue, b"3")) == S.QUEUE_FULL

    taken = wire.take_all(queue)
    assert [each.body for each in taken] == [b"1", b"2"]
    wire.settle(queue, taken[0].receipt)
    wire.put(queue, b"there is room again")


def test_a_full_queue_that_drops_its_oldest_takes_every_message(
    wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(capacity=2, overflow="drop-oldest")
    for n in range(5):
        wire.put(queue, b"%d" % n)

    assert [each.body for each in wire.take_all(queue)] == [b"3", b"4"]


def test_a_second_message_of_a_dedupe_id_is_duplicate_with_the_firsts_sequence_number(
    wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(dedupe_window=3600)
    first = wire.put(queue, b"1", {"dedupe": "a"})
    wire.put(queue, b"2", {"dedupe": "b"})

    answer = wire.ask(T.PRODUCE, frames.produce(queue, b"3", {"dedupe": "a"}))

    assert (answer.kind, answer.status) == (T.REPLY, S.DUPLICATE)
    assert answer.payload == frames.u64(first)
    assert [each.body for each in wire.take_all(queue)] == [b"1", b"2"]


def test_a_dedupe_id_is_known_though_its_message_is_gone(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(dedupe_window=3600)
    first = wire.put(queue, b"1", {"dedupe": "a"})
    wire.settle(queue, wire.take_one(queue).receipt)

    answer = wire.ask(T.PRODUCE, frames.produce(queue, b"1", {"dedupe": "a"}))

    assert (answer.status, answer.payload) == (S.DUPLICATE, frames.u64(first))
    assert wire.counts(queue) == (0, 0, 0)


# --- PRODUCE_BATCH ---------------------------------------------------------------------


def test_a_batch_is_answered_with_how_many_and_the_first_sequence_number(
    wire: Wire, queue: str
) -> None:
    items = [item(b"1"), item(b"", {"pri": 1}), item(b"3" * 5000), item(b"4", {"group": "g"})]

    accepted, first = answer_of(wire.ok(T.PRODUCE_BATCH, frames.batch(queue, *items)))

    assert accepted == 4
    taken = wire.take_all(queue)
    assert [each.body for each in taken] == [b"1", b"", b"3" * 5000, b"4"]
    assert taken[0].sequence == first
    assert [each.sequence for each in taken] == sorted({each.sequence for each in taken})
    assert [each.properties for each in taken] == [None, {"pri": 1}, None, {"group": "g"}]


def test_a_batch_may_have_thousands_of_messages(wire: Wire, queue: str) -> None:
    payload = frames.batch(queue, *(item(b"%d" % n) for n in range(10_000)))

    accepted, _ = answer_of(wire.ok(T.PRODUCE_BATCH, payload))

    assert accepted == 10_000
    assert [each.body for each in wire.take_all(queue)] == [b"%d" % n for n in range(10_000)]


def malformed(queue: str) -> dict[str, bytes]:
    whole = frames.batch(queue, item(b"one"), item(b"two", {"pri": 1}))
    return {
        "no flags": frames.name(queue),
        "half a count": frames.name(queue) + b"\x00\x00\x00",
        "a count of 0": frames.batch(queue),
        "a count of 0 and a message": frames.batch(queue, item(b"one"), count=0),
        "a count larger than the messages": frames.batch(queue, item(b"one"), count=2),
        "a count smaller than the messages": frames.batch(queue, item(b"1"), item(b"2"), count=1),
        "a count of 2^32-1": frames.batch(queue, item(b"one"), count=0xFFFFFFFF),
        "a byte too many": whole + b"\x00",
        "a body beyond the end": frames.batch(queue, item(b"1"), b"\x00" + frames.u32(5) + b"four"),
        "a body of 2^32-1": frames.batch(queue, item(b"1"), b"\x00" + frames.u32(0xFFFFFFFF)),
        "properties beyond the end": frames.batch(
            queue, item(b"1"), b"\x01" + frames.u32(0xFFFFFFFF) + b"\x80" + frames.u32(0)
        ),
        **{f"without its last {n}": whole[:-n] for n in range(1, len(whole) - len(queue) - 2)},
    }


@pytest.mark.parametrize("kind", malformed("q"))
def test_a_batch_that_is_malformed_takes_nothing(wire: Wire, queue: str, kind: str) -> None:
    answer = wire.ask(T.PRODUCE_BATCH, malformed(queue)[kind])

    assert (answer.kind, answer.status) == (T.REPLY, S.BAD_REQUEST)
    assert wire.counts(queue) == (0, 0, 0)
    assert wire.stats(queue)["put"] == 0


@pytest.mark.parametrize("flags", [0x01, 0x03, 0x04, 0x40, 0x80])
def test_the_outer_flags_of_a_batch_may_only_be_0x02(wire: Wire, queue: str, flags: int) -> None:
    payload = frames.batch(queue, item(b"one"), flags=flags)

    assert wire.status(T.PRODUCE_BATCH, payload) == S.UNSUPPORTED
    assert wire.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize("flags", [0x02, 0x04, 0x80])
@pytest.mark.parametrize("at", [0, 1])
def test_the_inner_flags_of_a_batch_may_only_be_0x01(
    wire: Wire, queue: str, flags: int, at: int
) -> None:
    items = [item(b"one"), item(b"two")]
    items[at] = item(b"bad", None, flags)

    assert wire.status(T.PRODUCE_BATCH, frames.batch(queue, *items)) == S.UNSUPPORTED
    assert wire.counts(queue) == (0, 0, 0)


def test_a_batch_to_a_queue_that_fills_up_stops_there(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(capacity=3)
    payload = frames.batch(queue, *(item(b"%d" % n) for n in range(5)))

    answer = wire.ask(T.PRODUCE_BATCH, payload)
    again = wire.ask(T.PRODUCE_BATCH, payload)

    assert (answer.kind, answer.status) == (T.REPLY, S.QUEUE_FULL)
    accepted, first = answer_of(answer.payload)
    taken = wire.take_all(queue)
    assert (accepted, first) == (3, taken[0].sequence)
    assert [each.body for each in taken] == [b"0", b"1", b"2"]
    assert again.status == S.QUEUE_FULL
    assert answer_of(again.payload) == (0, 0)


@pytest.mark.parametrize(
    ("bad", "status"),
    [(item(bytes(101)), S.TOO_LARGE), (item(bytes(200), {"pri": 0}), S.TOO_LARGE)],
)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_batch_stops_at_the_first_message_that_is_refused(
    wire: Wire, make_queue: MakeQueue, bad: bytes, status: S, at: int
) -> None:
    queue = make_queue(max_message_bytes=100)
    items = [item(b"%d" % n) for n in range(5)]
    items[at] = bad

    answer = wire.ask(T.PRODUCE_BATCH, frames.batch(queue, *items))

    assert (answer.kind, answer.status) == (T.REPLY, status)
    taken = wire.take_all(queue)
    assert [each.body for each in taken] == [b"%d" % n for n in range(at)]
    assert answer_of(answer.payload) == (at, taken[0].sequence if at else 0)


@pytest.mark.parametrize(
    "properties",
    [
        {"pri": 3},
        {"delay": -1},
        {"pri": "high"},
        {"headers": 5},
        b"\xc0",
        b"\x80\x80",
        b"\x81",
        b"\xc1",
        b"",
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 1, 99])
def test_a_batch_with_bad_properties_takes_nothing_and_says_why(
    wire: Wire, queue: str, properties: bytes | dict[str, object], at: int
) -> None:
    items = [item(b"good") for _ in range(100)]
    items[at] = item(b"bad", properties)

    answer = wire.ask(T.PRODUCE_BATCH, frames.batch(queue, *items))

    assert answer.status == S.BAD_REQUEST
    assert answer.payload.decode().isprintable()
    assert len(answer.payload) > 12, "the form of an OK would be 12 bytes"
    assert wire.take_all(queue) == []


def test_a_batch_counts_what_is_known_by_its_dedupe_id_as_accepted(
    wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(dedupe_window=3600)
    known = wire.put(queue, b"known", {"dedupe": "a"})
    items = [item(b"a", {"dedupe": "a"}), item(b"b", {"dedupe": "b"}), item(b"c", {"dedupe": "b"})]

    accepted, first = answer_of(wire.ok(T.PRODUCE_BATCH, frames.batch(queue, *items)))

    assert (accepted, first) == (3, known)
    assert [each.body for each in wire.take_all(queue)] == [b"known", b"b"]


def test_a_batch_that_was_sent_again_adds_nothing(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(dedupe_window=3600)
    payload = frames.batch(queue, *(item(b"%d" % n, {"dedupe": str(n)}) for n in range(100)))

    first = wire.ok(T.PRODUCE_BATCH, payload)
    assert wire.ok(T.PRODUCE_BATCH, payload) == first

    assert wire.counts(queue) == (100, 0, 0)


# --- the order of refusals: form, flags, queue, right, range ---------------------------

MISSING = "nobody.has.this"


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        (T.PRODUCE, frames.name(MISSING) + b"\x81\xff\xff\xff\xff"),
        (T.PRODUCE_BATCH, frames.name(MISSING) + b"\x80\x00\x00\x00"),
        (T.CONSUME, frames.name(MISSING) + frames.u32(1, 0)),
        (T.CONSUME, frames.consume(MISSING, flags=0x80) + b"\x00"),
        (T.SUBSCRIBE, frames.subscribe(MISSING, flags=0x80) + b"\x00"),
        (T.ACK, frames.receipts(MISSING, 1) + b"\x00"),
        (T.NACK, frames.timed(MISSING, 1, 2)[:-1]),
        (T.REJECT, frames.receipts(MISSING, 1)[:-7]),
        (T.EXTEND, frames.name(MISSING) + b"\x00\x00\x00"),
    ],
)
def test_a_bad_form_is_refused_before_flags_and_queue(wire: Wire, type: T, payload: bytes) -> None:
    assert wire.status(type, payload) == S.BAD_REQUEST


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        (T.PRODUCE, frames.produce(MISSING, b"b", None, 0x80)),
        (T.PRODUCE_BATCH, frames.batch(MISSING, item(b"b"), flags=0x80)),
        (T.PRODUCE_BATCH, frames.batch(MISSING, item(b"b", None, 0x80))),
        (T.CONSUME, frames.consume(MISSING, flags=0x02)),
        (T.SUBSCRIBE, frames.subscribe(MISSING, flags=0x02)),
    ],
)
def test_an_unknown_flag_is_refused_before_the_queue(wire: Wire, type: T, payload: bytes) -> None:
    assert wire.status(type, payload) == S.UNSUPPORTED


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        (T.PRODUCE, frames.produce(MISSING, b"b", {"pri": 1000})),
        (T.PRODUCE, frames.produce(MISSING, bytes(8 << 20))),
        (T.PRODUCE_BATCH, frames.batch(MISSING, item(b"b", {"pri": 1000}))),
        (T.ACK, frames.receipts(MISSING, 0)),
    ],
)
def test_a_missing_queue_is_refused_before_a_range(wire: Wire, type: T, payload: bytes) -> None:
    assert wire.status(type, payload) == S.NO_QUEUE


@pytest.mark.parametrize(
    ("type", "payload"),
    [(T.CONSUME, lambda q: frames.consume(q, 0)), (T.SUBSCRIBE, lambda q: frames.subscribe(q, 0))],
)
def test_a_count_of_0_where_1_is_the_least_is_bad_request(
    wire: Wire, queue: str, type: T, payload: Callable[[str], bytes]
) -> None:
    wire.put(queue)

    assert wire.status(type, payload(queue)) == S.BAD_REQUEST

    assert wire.counts(queue) == (1, 0, 0)


def test_what_one_connection_puts_is_there_for_every_other_one(
    address: Address, wire: Wire, queue: str
) -> None:
    others = [Wire(address) for _ in range(8)]
    for each in others:
        wire.put(queue, b"for all")
        assert each.take_one(queue).body == b"for all"
        each.close()
