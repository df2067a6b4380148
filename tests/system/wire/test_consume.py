"""CONSUME and SUBSCRIBE: when they are answered, with how much, and how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import FOREVER, Frame, S, T

MakeQueue = Callable[..., str]

SETTLED = 0x01

# --- CONSUME ---------------------------------------------------------------------------


def test_a_deliver_has_the_payload_of_the_contract_byte_for_byte(wire: Wire, queue: str) -> None:
    properties = frames.pack({"pri": 2})
    sequence = wire.put(queue, b"abc", {"pri": 2})

    answer = wire.ask(T.CONSUME, frames.consume(queue))

    assert (answer.kind, answer.status) == (T.DELIVER, S.OK)
    receipt = answer.payload[8:16]
    wanted = frames.u64(sequence) + receipt + bytes.fromhex("0001 02 01")
    assert answer.payload == wanted + frames.u32(len(properties)) + properties + b"abc"


def test_a_deliver_without_properties_has_none(wire: Wire, queue: str) -> None:
    sequence = wire.put(queue, b"abc")

    payload = wire.ask(T.CONSUME, frames.consume(queue)).payload

    assert payload[:8] == frames.u64(sequence)
    assert payload[16:] == bytes.fromhex("0001 01 00") + b"abc"


@pytest.mark.parametrize("most", [1, 2, 3, 1000, 0xFFFFFFFF])
def test_consume_gives_at_most_as_many_as_asked_for_and_more_on_all_but_the_last(
    wire: Wire, queue: str, most: int
) -> None:
    for n in range(5):
        wire.put(queue, b"%d" % n)
    found: list[bytes] = []
    while len(found) < 5:
        wire.post(T.CONSUME, frames.consume(queue, most), 9)
        statuses: list[int] = []
        while not statuses or statuses[-1] == frames.MORE:
            answer = wire.receive()
            assert (answer.kind, answer.id) == (T.DELIVER, 9)
            statuses.append(answer.status)
            found.append(frames.read_delivery(answer.payload).body)
        assert len(statuses) <= most
        assert statuses == [frames.MORE] * (len(statuses) - 1) + [S.OK]
    assert found == [b"%d" % n for n in range(5)]
    wire.still_answers()


def test_consume_without_a_wait_is_queue_empty_at_once(wire: Wire, queue: str) -> None:
    answer = wire.ask(T.CONSUME, frames.consume(queue, 1, 0))

    assert (answer.kind, answer.status) == (T.REPLY, S.QUEUE_EMPTY)


def test_a_bounded_wait_ends_as_queue_empty_and_not_before(wire: Wire, queue: str) -> None:
    began = time.monotonic()

    answer = wire.ask(T.CONSUME, frames.consume(queue, 1, 300))

    assert (answer.kind, answer.status) == (T.REPLY, S.QUEUE_EMPTY)
    assert time.monotonic() - began >= 0.299


@pytest.mark.prove
def test_waits_of_many_lengths_end_in_the_order_of_their_times(wire: Wire, queue: str) -> None:
    for wait in (700, 100, 400):
        wire.post(T.CONSUME, frames.consume(queue, 1, wait), wait)

    assert [wire.receive().id for _ in range(3)] == [100, 400, 700]


def test_a_wait_is_answered_as_soon_as_there_is_one_message(
    address: Address, wire: Wire, queue: str
) -> None:
    waiting = wire.post(T.CONSUME, frames.consume(queue, 100, FOREVER))
    with Wire(address) as another:
        another.put(queue, b"one")

        (delivery,) = wire.taken(waiting)

        assert delivery.body == b"one"


def test_a_wait_is_ended_by_a_message_that_is_put_locally(
    wire: Wire, queue: str, broker: object
) -> None:
    waiting = wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))
    wire.still_answers()
    with broker.queue(queue) as local:  # type: ignore[attr-defined]
        local.put(b"from next door")

    assert [each.body for each in wire.taken(waiting)] == [b"from next door"]


def test_a_wait_is_ended_by_a_delay_that_is_over(wire: Wire, queue: str) -> None:
    wire.put(queue, b"due", {"delay": 200})
    assert wire.take_one(queue, FOREVER).body == b"due"


def test_a_wait_is_ended_by_a_lease_that_runs_out(
    address: Address, wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(visibility_timeout=0.2)
    with Wire(address) as another:
        another.put(queue, b"left")
        another.take_one(queue)

        assert wire.take_one(queue, FOREVER).deliveries == 2


def test_many_connections_that_wait_for_one_queue_get_a_message_each(
    address: Address, wire: Wire, queue: str
) -> None:
    waiting = [Wire(address) for _ in range(50)]
    ids = [each.post(T.CONSUME, frames.consume(queue, 1, FOREVER)) for each in waiting]

    for n in range(50):
        wire.post(T.PRODUCE, frames.produce(queue, b"%d" % n), 0)

    got = [each.taken(n)[0].body for each, n in zip(waiting, ids, strict=True)]
    assert sorted(got, key=int) == [b"%d" % n for n in range(50)]
    for each in waiting:
        each.close()


def test_one_connection_waits_on_many_queues(wire: Wire, make_queue: MakeQueue) -> None:
    queues = [make_queue() for _ in range(5)]
    ids = {wire.post(T.CONSUME, frames.consume(q, 1, FOREVER)): q for q in queues}
    for queue in queues:
        wire.post(T.PRODUCE, frames.produce(queue, queue.encode()), 0)

    answers = [wire.receive() for _ in queues]

    got = {each.id: frames.read_delivery(each.payload).body.decode() for each in answers}
    assert got == ids


def test_what_is_settled_on_delivery_is_gone(
    address: Address, wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(visibility_timeout=0.05)
    for n in range(3):
        wire.put(queue, b"%d" % n)

    found: list[frames.Delivery] = []
    while len(found) < 3:
        found += wire.take(queue, 3, 0, SETTLED)

    assert [each.body for each in found] == [b"0", b"1", b"2"]
    wire.close()
    with Wire(address) as another:
        assert another.counts(queue) == (0, 0, 0)
        assert another.take(queue, 1, 200) == []


@pytest.mark.parametrize("flags", [0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x81])
@pytest.mark.parametrize("type", [T.CONSUME, T.SUBSCRIBE])
def test_an_unknown_flag_of_consume_and_subscribe_is_unsupported(
    wire: Wire, queue: str, type: T, flags: int
) -> None:
    payload = frames.consume if type == T.CONSUME else frames.subscribe
    wire.put(queue)

    assert wire.status(type, payload(queue, flags=flags)) == S.UNSUPPORTED

    assert wire.counts(queue) == (1, 0, 0)


@pytest.mark.parametrize("type", [T.CONSUME, T.SUBSCRIBE])
def test_a_consume_or_subscribe_of_another_length_is_bad_request(
    wire: Wire, queue: str, type: T
) -> None:
    payload = (frames.consume if type == T.CONSUME else frames.subscribe)(queue)
    wire.put(queue)
    for at in range(len(frames.name(queue)), len(payload)):
        assert wire.status(type, payload[:at]) == S.BAD_REQUEST
    assert wire.status(type, payload + b"\x00") == S.BAD_REQUEST

    assert wire.counts(queue) == (1, 0, 0)


# --- SUBSCRIBE -------------------------------------------------------------------------


def test_a_subscription_is_answered_and_then_delivers_as_messages_come(
    address: Address, wire: Wire, queue: str
) -> None:
    subscription = wire.subscribe(queue, 1000)
    with Wire(address) as another:
        for n in range(100):
            another.put(queue, b"%d" % n)

    assert [wire.delivered(subscription).body for _ in range(100)] == [
        b"%d" % n for n in range(100)
    ]


def test_a_subscription_delivers_what_is_there_already(wire: Wire, queue: str) -> None:
    for n in range(3):
        wire.put(queue, b"%d" % n)

    subscription = wire.subscribe(queue, 10)

    assert [wire.delivered(subscription).body for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("credit", [1, 2, 7])
def test_at_most_credit_messages_are_unsettled_at_a_time(
    wire: Wire, queue: str, credit: int
) -> None:
    for n in range(20):
        wire.put(queue, b"%d" % n)

    subscription = wire.subscribe(queue, credit)
    held = [wire.delivered(subscription) for _ in range(credit)]
    assert wire.counts(queue) == (20 - credit, 0, credit)

    got = [each.body for each in held]
    while len(got) < 20:
        wire.post(T.ACK, frames.receipts(queue, held.pop(0).receipt), 0)
        held.append(wire.delivered(subscription))
        got.append(held[-1].body)
        assert wire.counts(queue)[2] == credit
    assert got == [b"%d" % n for n in range(20)]


def settlements(queue: str, receipt: int) -> dict[str, tuple[T, bytes]]:
    return {
        "ack": (T.ACK, frames.receipts(queue, receipt)),
        "reject": (T.REJECT, frames.receipts(queue, receipt)),
        "nack": (T.NACK, frames.timed(queue, 60_000, receipt)),
        "end": (T.EXTEND, frames.timed(queue, 0, receipt)),
    }


@pytest.mark.parametrize("way", settlements("q", 1))
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_whatever_settles_a_message_gives_its_credit_back(
    address: Address, wire: Wire, make_queue: MakeQueue, way: str, elsewhere: bool
) -> None:
    queue = make_queue(visibility_timeout=3600)
    wire.put(queue, b"first")
    wire.put(queue, b"second")
    subscription = wire.subscribe(queue, 1)
    first = wire.delivered(subscription)
    wire.still_answers()

    kind, payload = settlements(queue, first.receipt)[way]
    if elsewhere:
        with Wire(address) as another:
            another.ok(kind, payload)
    else:
        wire.post(kind, payload, 0)

    again = wire.delivered(subscription)
    assert again.body == (b"first" if way == "end" else b"second")


def test_a_lease_that_expires_gives_its_credit_back(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout=0.2, max_deliveries=None)
    wire.put(queue, b"slow work")
    subscription = wire.subscribe(queue, 1)

    assert [wire.delivered(subscription).deliveries for _ in range(3)] == [1, 2, 3]


def test_what_is_settled_on_delivery_is_not_bound_by_credit(wire: Wire, queue: str) -> None:
    subscription = wire.subscribe(queue, 1, SETTLED)
    for n in range(50):
        wire.post(T.PRODUCE, frames.produce(queue, b"%d" % n), 0)

    assert [wire.delivered(subscription).body for _ in range(50)] == [b"%d" % n for n in range(50)]
    assert wire.counts(queue) == (0, 0, 0)


def test_after_unsubscribes_answer_nothing_is_delivered_and_what_is_unsettled_stays_leased(
    wire: Wire, queue: str
) -> None:
    for n in range(5):
        wire.put(queue, b"%d" % n)
    subscription = wire.subscribe(queue, 2)
    held = [wire.delivered(subscription) for _ in range(2)]

    assert wire.ok(T.UNSUBSCRIBE, frames.u32(subscription)) == b""

    assert wire.settle(queue, held[0].receipt) == []
    wire.put(queue, b"more")
    assert wire.counts(queue) == (4, 0, 1)
    assert wire.settle(queue, held[1].receipt) == []


def test_deliveries_stop_at_the_answer_to_unsubscribe_under_load(
    address: Address, wire: Wire, queue: str
) -> None:
    ended = threading.Event()

    def produce() -> None:
        with Wire(address) as another:
            while not ended.is_set():
                another.ask(T.PRODUCE, frames.produce(queue, b"x"))

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for _ in range(20):
            subscription = wire.subscribe(queue, 10_000, SETTLED)
            wire.delivered(subscription)
            ending = wire.post(T.UNSUBSCRIBE, frames.u32(subscription))
            while (answer := wire.receive()).id == subscription:
                assert answer.kind == T.DELIVER
            assert answer == Frame(T.REPLY, S.OK, ending, b"")
            wire.still_answers()
    finally:
        ended.set()
        thread.join()


def test_a_message_id_that_is_a_live_subscriptions_is_bad_request(wire: Wire, queue: str) -> None:
    subscription = wire.subscribe(queue, 1)

    payload = frames.subscribe(queue, 1)
    assert wire.status(T.SUBSCRIBE, payload, subscription) == S.BAD_REQUEST

    wire.put(queue, b"still alive")
    assert wire.delivered(subscription).body == b"still alive"


def test_a_message_id_may_be_used_again_after_unsubscribe(wire: Wire, queue: str) -> None:
    for n in range(5):
        wire.post(T.SUBSCRIBE, frames.subscribe(queue), 500)
        assert wire.receive() == Frame(T.REPLY, S.OK, 500, b"")
        wire.post(T.PRODUCE, frames.produce(queue, b"%d" % n), 0)
        delivery = wire.delivered(500)
        assert delivery.body == b"%d" % n
        wire.ok(T.UNSUBSCRIBE, frames.u32(500))
        wire.settle(queue, delivery.receipt)


@pytest.mark.parametrize(
    "payload", [frames.u32(77), frames.u32(0), b"", b"\x00\x00\x01", b"\x00\x00\x00\x00\x01"]
)
def test_an_unsubscribe_of_what_is_no_subscription_is_bad_request(
    wire: Wire, payload: bytes
) -> None:
    assert wire.status(T.UNSUBSCRIBE, payload) == S.BAD_REQUEST


def test_an_unsubscribe_counts_once(wire: Wire, queue: str) -> None:
    subscription = wire.subscribe(queue)
    wire.ok(T.UNSUBSCRIBE, frames.u32(subscription))

    assert wire.status(T.UNSUBSCRIBE, frames.u32(subscription)) == S.BAD_REQUEST


def test_a_subscription_belongs_to_its_connection(address: Address, wire: Wire, queue: str) -> None:
    wire.post(T.SUBSCRIBE, frames.subscribe(queue), 700)
    assert wire.receive().status == S.OK
    with Wire(address) as another:
        assert another.status(T.UNSUBSCRIBE, frames.u32(700)) == S.BAD_REQUEST


def test_several_subscriptions_of_a_connection_have_their_own_ids_and_credits(
    wire: Wire, make_queue: MakeQueue
) -> None:
    one, two = make_queue(), make_queue()
    ids = {wire.subscribe(one, 1): b"1", wire.subscribe(two, 2): b"2"}
    for _ in range(3):
        wire.post(T.PRODUCE, frames.produce(one, b"1"), 0)
        wire.post(T.PRODUCE, frames.produce(two, b"2"), 0)

    found = [wire.receive() for _ in range(3)]

    assert all(frames.read_delivery(each.payload).body == ids[each.id] for each in found)
    assert sorted(ids[each.id] for each in found) == [b"1", b"2", b"2"]
    wire.still_answers()


def test_subscriptions_of_two_connections_share_a_queue(
    address: Address, wire: Wire, queue: str
) -> None:
    with Wire(address) as another:
        ids = [(each, each.subscribe(queue, 1)) for each in (wire, another)]
        with Wire(address) as producer:
            producer.put(queue, b"1")
            producer.put(queue, b"2")

            found = {each.delivered(n).body for each, n in ids}

    assert found == {b"1", b"2"}
