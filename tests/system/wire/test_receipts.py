"""ACK, NACK, REJECT, EXTEND: what a receipt is good for, once; and what leases do."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import FOREVER, S, T

MakeQueue = Callable[..., str]

#: Each settlement as a payload of a queue and receipts.
WAYS: dict[T, Callable[..., bytes]] = {
    T.ACK: frames.receipts,
    T.REJECT: frames.receipts,
    T.NACK: lambda queue, *receipts: frames.timed(queue, 0, *receipts),
    T.EXTEND: lambda queue, *receipts: frames.timed(queue, 3_600_000, *receipts),
}

every_way = pytest.mark.parametrize("type", WAYS)


@every_way
def test_no_receipts_are_ok(wire: Wire, queue: str, type: T) -> None:
    assert wire.ok(type, WAYS[type](queue)) == b""


@every_way
def test_a_good_receipt_is_answered_with_an_empty_reply(wire: Wire, queue: str, type: T) -> None:
    wire.put(queue)
    assert wire.ok(type, WAYS[type](queue, wire.take_one(queue).receipt)) == b""


@pytest.mark.parametrize("payload", [frames.receipts, lambda q, r: frames.timed(q, 0, r)])
def test_a_return_counts_no_delivery(
    wire: Wire, make_queue: MakeQueue, payload: Callable[[str, int], bytes]
) -> None:
    queue = make_queue(max_deliveries=1)
    wire.put(queue)
    for _ in range(2):
        delivered = wire.take_one(queue)
        assert delivered.deliveries == 1
        assert wire.ok(T.RETURN, payload(queue, delivered.receipt)) == b""
    assert wire.counts(queue) == (1, 0, 0)


def test_a_return_may_have_a_delay(wire: Wire, queue: str) -> None:
    wire.put(queue)
    returned = frames.timed(queue, 60_000, wire.take_one(queue).receipt)
    assert wire.ok(T.RETURN, returned) == b""
    assert wire.counts(queue) == (0, 1, 0)


def test_what_a_supervised_client_held_waits_for_the_report_of_its_death(
    wire: Wire, address: Address, queue: str
) -> None:
    wire.put(queue, b"reported")
    wire.put(queue, b"not reported")
    with Wire(address) as dies:
        dies.ok(T.HELLO, frames.pack({"client": "dies", "supervised": True}))
        taken = dies.take(queue, 2)
        dies.reset()

    error = frames.pack({"line": "killed by signal 9"})
    head = struct.pack(">BIH", 0, 0, len(error)) + error
    assert wire.ok(T.FAIL, frames.name(queue) + head + struct.pack(">Q", taken[0].receipt)) == b""
    reported = wire.take_one(queue)
    assert (reported.body, reported.deliveries) == (b"reported", 2)
    assert reported.properties == {"error": {"line": "killed by signal 9"}}

    (other,) = wire.take(queue, wait=FOREVER)
    assert (other.body, other.deliveries) == (b"not reported", 2)
    assert "error" not in (other.properties or {})
    assert wire.status(T.ACK, frames.receipts(queue, taken[1].receipt)) == S.LEASE_EXPIRED


@pytest.mark.parametrize("value", [1, "yes", None, []])
def test_a_client_is_supervised_or_not(wire: Wire, value: object) -> None:
    payload = frames.pack({"client": "a test", "supervised": value})
    assert wire.status(T.HELLO, payload) == S.BAD_REQUEST
    wire.still_answers()


@pytest.mark.parametrize("rest", [1, 3, 5, 7, 9, 11])
def test_a_return_of_neither_receipts_nor_a_delay_and_receipts_is_refused(
    wire: Wire, queue: str, rest: int
) -> None:
    assert wire.status(T.RETURN, frames.name(queue) + bytes(rest)) == S.BAD_REQUEST


@every_way
def test_receipts_cut_short_are_bad_request_and_settle_nothing(
    wire: Wire, queue: str, type: T
) -> None:
    wire.put(queue)
    receipt = wire.take_one(queue).receipt
    for more in range(1, 8):
        payload = WAYS[type](queue, receipt) + bytes(more)
        assert wire.status(type, payload) == S.BAD_REQUEST

    assert wire.counts(queue) == (0, 0, 1)
    assert wire.settle(queue, receipt) == []


@every_way
@pytest.mark.parametrize("receipt", [0, 1, 0xFFFFFF, 1 << 24, 1 << 63, 0xFFFFFFFFFFFFFFFF])
def test_a_number_that_never_was_a_receipt_is_refused(
    wire: Wire, queue: str, type: T, receipt: int
) -> None:
    wire.put(queue)
    held = wire.take_one(queue).receipt

    answer = wire.ask(type, WAYS[type](queue, receipt))

    assert (answer.kind, answer.status) == (T.REPLY, S.LEASE_EXPIRED)
    assert answer.payload == frames.u64(receipt)
    assert wire.settle(queue, held) == []


@every_way
def test_receipts_near_a_good_one_are_refused(wire: Wire, queue: str, type: T) -> None:
    wire.put(queue)
    held = wire.take_one(queue).receipt
    near = [held ^ 1 << bit for bit in range(64)]

    answer = wire.ask(type, WAYS[type](queue, *near))

    assert answer.status == S.LEASE_EXPIRED
    assert frames.read_u64s(answer.payload) == near
    assert wire.settle(queue, held) == []


@pytest.mark.parametrize("type", [T.ACK, T.REJECT, T.NACK])
@pytest.mark.parametrize("then", WAYS)
def test_a_receipt_is_good_for_one_settlement(wire: Wire, queue: str, type: T, then: T) -> None:
    wire.put(queue)
    receipt = wire.take_one(queue).receipt
    wire.ok(type, WAYS[type](queue, receipt))
    before = wire.counts(queue)

    answer = wire.ask(then, WAYS[then](queue, receipt))

    assert (answer.status, answer.payload) == (S.LEASE_EXPIRED, frames.u64(receipt))
    assert wire.counts(queue) == before


@pytest.mark.parametrize("type", [T.ACK, T.REJECT, T.NACK])
def test_a_receipt_twice_in_a_request_is_refused_once(wire: Wire, queue: str, type: T) -> None:
    wire.put(queue)
    receipt = wire.take_one(queue).receipt

    answer = wire.ask(type, WAYS[type](queue, receipt, receipt))

    assert (answer.status, answer.payload) == (S.LEASE_EXPIRED, frames.u64(receipt))


@every_way
def test_good_receipts_are_settled_and_refused_ones_come_back_in_the_order_of_the_request(
    wire: Wire, queue: str, type: T
) -> None:
    for _ in range(50):
        wire.put(queue)
    held = [each.receipt for each in wire.take_all(queue)]
    spent, good = held[::2], held[1::2]
    wire.settle(queue, *spent)
    mixed = [receipt for pair in zip(reversed(spent), good, strict=True) for receipt in pair]

    answer = wire.ask(type, WAYS[type](queue, *mixed))

    assert answer.status == S.LEASE_EXPIRED
    assert frames.read_u64s(answer.payload) == spent[::-1]
    left = {T.NACK: (25, 0, 0), T.EXTEND: (0, 0, 25)}.get(type, (0, 0, 0))
    assert wire.counts(queue) == left


def test_thousands_of_receipts_are_settled_by_one_request(wire: Wire, queue: str) -> None:
    payload = frames.batch(queue, *(frames.item(b"%d" % n) for n in range(10_000)))
    wire.ok(T.PRODUCE_BATCH, payload)
    held = [each.receipt for each in wire.take_all(queue)]

    assert len(set(held)) == 10_000
    assert wire.settle(queue, *held) == []
    assert wire.settle(queue, *held) == held
    assert wire.counts(queue) == (0, 0, 0)


@every_way
def test_a_receipt_under_another_queues_name_is_refused_and_settles_nothing(
    wire: Wire, make_queue: MakeQueue, type: T
) -> None:
    one, two = make_queue(), make_queue()
    for queue in (one, two):
        wire.put(queue)
    here, there = wire.take_one(one).receipt, wire.take_one(two).receipt

    answer = wire.ask(type, WAYS[type](two, here))

    assert (answer.status, answer.payload) == (S.LEASE_EXPIRED, frames.u64(here))
    assert wire.counts(one) == wire.counts(two) == (0, 0, 1)
    assert wire.settle(one, here) == wire.settle(two, there) == []


@every_way
def test_a_receipt_is_refused_by_a_later_queue_of_the_same_name(
    wire: Wire, name: str, type: T
) -> None:
    old: list[int] = []
    for _ in range(20):
        wire.create(name, dead_letter=None)
        wire.put(name)
        fresh = wire.take_one(name).receipt
        assert fresh not in old
        if old:
            answer = wire.ask(type, WAYS[type](name, *old))
            assert (answer.status, frames.read_u64s(answer.payload)) == (S.LEASE_EXPIRED, old)
            assert wire.counts(name) == (0, 0, 1)
        old.append(fresh)
        wire.ok(T.DELETE, frames.name(name))


@every_way
def test_any_connection_may_settle_a_receipt(
    address: Address, wire: Wire, queue: str, type: T
) -> None:
    for _ in range(8):
        wire.put(queue)
    held = [each.receipt for each in wire.take_all(queue)]

    for receipt in held:
        with Wire(address) as another:
            assert another.ok(type, WAYS[type](queue, receipt)) == b""


@every_way
def test_a_lease_ends_by_the_clock_and_not_when_it_is_noticed(
    wire: Wire, make_queue: MakeQueue, type: T
) -> None:
    queue = make_queue(visibility_timeout=0.1)
    wire.put(queue)
    receipt = wire.take_one(queue).receipt
    time.sleep(0.15)

    answer = wire.ask(type, WAYS[type](queue, receipt))

    assert (answer.status, answer.payload) == (S.LEASE_EXPIRED, frames.u64(receipt))


@every_way
def test_after_another_delivery_the_old_receipt_settles_nothing(
    wire: Wire, queue: str, type: T
) -> None:
    wire.put(queue)
    old = wire.take_one(queue).receipt
    wire.ok(T.NACK, frames.timed(queue, 0, old))
    new = wire.take_one(queue).receipt

    answer = wire.ask(type, WAYS[type](queue, old))

    assert (new != old, answer.status, answer.payload) == (True, S.LEASE_EXPIRED, frames.u64(old))
    assert wire.settle(queue, new) == []


# --- NACK, REJECT, EXTEND --------------------------------------------------------------


def test_a_nack_without_delay_brings_the_message_back_at_once_as_redelivered(
    wire: Wire, queue: str
) -> None:
    sequence = wire.put(queue, b"again")
    for n in range(1, 5):
        delivery = wire.take_one(queue, 0)
        assert (delivery.sequence, delivery.deliveries) == (sequence, n)
        assert bool(delivery.flags & 0x02) is (n > 1)
        wire.ok(T.NACK, frames.timed(queue, 0, delivery.receipt))


def test_a_nack_with_a_delay_hides_the_message_that_long(wire: Wire, queue: str) -> None:
    wire.put(queue)
    wire.ok(T.NACK, frames.timed(queue, 3_600_000, wire.take_one(queue).receipt))
    assert wire.counts(queue) == (0, 1, 0)

    wire.put(queue)
    began = time.monotonic()
    wire.ok(T.NACK, frames.timed(queue, 200, wire.take_one(queue).receipt))
    assert wire.take_one(queue).deliveries == 2
    assert time.monotonic() - began >= 0.2


def test_a_nack_may_leave_the_delay_to_the_queue(wire: Wire, make_queue: MakeQueue) -> None:
    at_once, later = make_queue(retry_delay=0), make_queue(retry_delay=1000, retry_delay_max=1000)
    for queue, wanted in ((at_once, (1, 0, 0)), (later, (0, 1, 0))):
        wire.put(queue)
        wire.ok(T.NACK, frames.timed(queue, FOREVER, wire.take_one(queue).receipt))
        assert wire.counts(queue) == wanted


def test_a_message_that_comes_back_keeps_its_place(wire: Wire, queue: str) -> None:
    for n in range(5):
        wire.put(queue, b"%d" % n)
    held = wire.take_all(queue)
    wire.ok(T.NACK, frames.timed(queue, 0, held[3].receipt, held[1].receipt))
    wire.put(queue, b"later")
    wire.ok(T.NACK, frames.timed(queue, 0, held[2].receipt))

    assert [each.body for each in wire.take_all(queue)] == [b"1", b"2", b"3", b"later"]


def test_a_reject_sends_the_message_to_the_dead_letter_queue_at_once(
    wire: Wire, queue: str
) -> None:
    began = time.time()
    wire.put(queue, b"bad", {"headers": {"a": 1}, "x": "kept", "pri": 2, "ttl": 90_000})

    wire.ok(T.REJECT, frames.receipts(queue, wire.take_one(queue).receipt))

    dead = wire.take_one(f"{queue}.dlq")
    assert dead.body == b"bad"
    assert dead.properties is not None
    found = dead.properties["dead"]
    assert (found["reason"], found["queue"], found["deliveries"]) == ("rejected", queue, 1)
    assert began * 1000 - 1000 <= found["at"] <= time.time() * 1000 + 1000
    assert isinstance(found["at"], int)
    assert (dead.properties["headers"], dead.properties["x"]) == ({"a": 1}, "kept")
    assert wire.counts(queue) == (0, 0, 0)


def test_a_message_at_the_delivery_limit_is_dead_lettered(
    wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(max_deliveries=3)
    wire.put(queue, b"worn out")
    for _ in range(3):
        wire.ok(T.NACK, frames.timed(queue, 0, wire.take_one(queue).receipt))

    dead = wire.take_one(f"{queue}.dlq")

    assert dead.properties is not None
    assert dead.properties["dead"]["reason"] == "max_deliveries"
    assert dead.properties["dead"]["deliveries"] == 3


def test_a_dead_letters_own_ttl_delay_dedupe_and_group_no_longer_act(
    wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(dedupe_window=60)
    for n in range(2):
        properties = {"ttl": 1000, "group": "g", "dedupe": str(n), "delay": 1}
        wire.put(queue, b"%d" % n, properties)
        wire.ok(T.REJECT, frames.receipts(queue, wire.take_one(queue).receipt))
    time.sleep(1.1)

    dead = wire.take_all(f"{queue}.dlq")

    assert [each.body for each in dead] == [b"0", b"1"]
    assert dead[0].properties is not None
    assert dead[0].properties["dead"]["reason"] == "rejected"


def test_dead_letters_of_a_queue_without_a_dead_letter_queue_are_dropped(
    wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(dead_letter=None)
    wire.put(queue)

    wire.ok(T.REJECT, frames.receipts(queue, wire.take_one(queue).receipt))

    assert wire.counts(queue) == (0, 0, 0)
    assert f"{queue}.dlq" not in wire.names()


def test_extend_prolongs_the_lease(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout=0.2, max_deliveries=None)
    wire.put(queue)
    status = S.LEASE_EXPIRED
    while status == S.LEASE_EXPIRED:  # it came after the end of the lease
        receipt = wire.take_one(queue, FOREVER).receipt
        status = wire.status(T.EXTEND, frames.timed(queue, 3_600_000, receipt))
    assert status == S.OK
    time.sleep(0.3)

    assert wire.take(queue) == []
    assert wire.settle(queue, receipt) == []


def test_extend_may_end_the_lease_earlier(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout=3600)
    wire.put(queue)
    delivery = wire.take_one(queue)
    began = time.monotonic()

    wire.ok(T.EXTEND, frames.timed(queue, 200, delivery.receipt))

    assert wire.take_one(queue).sequence == delivery.sequence
    assert time.monotonic() - began >= 0.2
    assert wire.settle(queue, delivery.receipt) == [delivery.receipt]


def test_extend_by_0_ends_the_lease_at_once(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout=3600)
    wire.put(queue)
    receipt = wire.take_one(queue).receipt

    wire.ok(T.EXTEND, frames.timed(queue, 0, receipt))

    assert wire.settle(queue, receipt) == [receipt]
    assert wire.take_one(queue, 0).deliveries == 2


# --- leases belong to connections ------------------------------------------------------

_CHILD = """
import sys, time
from tests.system.wire.client import Wire
wire = Wire((sys.argv[1], int(sys.argv[2])))
held = []
while len(held) < 3:
    held += wire.take(sys.argv[3], 3)
print("held", flush=True)
time.sleep(600)
"""


def ends(address: Address) -> dict[str, Callable[[Wire], object]]:
    def fatal(wire: Wire) -> None:
        wire.send(frames.frame(T.PING, version=9))
        wire.rest()

    def within_a_frame(wire: Wire) -> None:
        wire.send(frames.frame(T.PING, b"not all of it")[:-4])
        wire.close()

    return {
        "close": Wire.close,
        "reset": Wire.reset,
        "half-close": Wire.finish,
        "fatal": fatal,
        "within a frame": within_a_frame,
    }


@pytest.mark.parametrize("how", ends(("", 0)))
@pytest.mark.parametrize("subscribed", [False, True], ids=["consume", "subscribe"])
def test_what_a_connection_held_is_back_at_once_however_it_ends(
    address: Address, make_queue: MakeQueue, how: str, subscribed: bool
) -> None:
    queue = make_queue(visibility_timeout=3600)
    with Wire(address) as holder, Wire(address) as another:
        for n in range(3):
            holder.put(queue, b"%d" % n)
        if subscribed:
            subscription = holder.subscribe(queue, 10)
            for _ in range(3):
                holder.delivered(subscription)
        else:
            assert len(holder.take_all(queue)) == 3

        ends(address)[how](holder)

        found: list[tuple[bytes, int]] = []
        while len(found) < 3:
            taken = another.take(queue, 3, 10_000)
            assert taken
            found += [(each.body, each.deliveries) for each in taken]
        assert sorted(found) == [(b"0", 2), (b"1", 2), (b"2", 2)]


def test_what_a_killed_process_held_is_back_at_once(
    address: Address, wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(visibility_timeout=3600)
    for n in range(3):
        wire.put(queue, b"%d" % n)
    command = [sys.executable, "-c", _CHILD, address[0], str(address[1]), queue]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        os.kill(child.pid, signal.SIGKILL)

    found: list[bytes] = []
    while len(found) < 3:
        found += [each.body for each in wire.take(queue, 3, 10_000)]
    assert sorted(found) == [b"0", b"1", b"2"]


def test_what_another_connection_settled_does_not_come_back_when_its_holder_ends(
    address: Address, make_queue: MakeQueue
) -> None:
    queue = make_queue(visibility_timeout=3600)
    with Wire(address) as holder, Wire(address) as another:
        holder.put(queue, b"done")
        holder.put(queue, b"not done")
        done = holder.take_one(queue)
        holder.take_one(queue)
        another.settle(queue, done.receipt)
        holder.close()

        assert another.take_one(queue).body == b"not done"
        assert another.take(queue) == []


def test_the_end_of_one_connection_leaves_the_leases_of_others(
    address: Address, make_queue: MakeQueue
) -> None:
    queue = make_queue(visibility_timeout=3600)
    with Wire(address) as one, Wire(address) as two:
        one.put(queue, b"one")
        one.put(queue, b"two")
        one.take_one(queue)
        kept = two.take_one(queue)
        one.close()

        assert two.take_one(queue).body == b"one"
        assert two.take(queue) == []
        assert two.settle(queue, kept.receipt) == []


def test_a_delivery_that_was_sent_counts_and_the_limit_acts_at_disconnects(
    address: Address, wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(visibility_timeout=3600, max_deliveries=2)
    wire.put(queue, b"poison")
    for n in (1, 2):
        with Wire(address) as victim:
            assert victim.take_one(queue).deliveries == n

    dead = wire.take_one(f"{queue}.dlq")

    assert dead.properties is not None
    assert dead.properties["dead"]["reason"] == "max_deliveries"


# --- FIN -------------------------------------------------------------------------------


def test_whole_frames_before_a_fin_are_carried_out_and_answered(
    address: Address, wire: Wire, queue: str
) -> None:
    count = 2000
    requests = [
        frames.frame(T.PRODUCE, frames.produce(queue, b"%d" % n), n + 1) for n in range(count)
    ]
    wire.send(*requests, requests[0][:-1])
    wire.finish()

    assert [(each.id, each.status) for each in wire.rest()] == [(n + 1, 0) for n in range(count)]
    with Wire(address) as another:
        assert another.counts(queue) == (count, 0, 0)


def test_a_half_closed_client_gets_its_messages(wire: Wire, queue: str) -> None:
    wire.put(queue, b"x" * 100_000)
    wire.post(T.CONSUME, frames.consume(queue, 1, 5000), 50)
    wire.finish()

    (answer,) = wire.rest()

    assert (answer.kind, answer.id) == (T.DELIVER, 50)


def test_waiting_consumes_and_subscriptions_end_at_a_fin(
    address: Address, wire: Wire, queue: str
) -> None:
    wire.subscribe(queue, 5)
    wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))
    wire.post(T.PING, b"last", 99)
    wire.finish()

    assert [each.payload for each in wire.rest() if each.id == 99] == [b"last"]
    with Wire(address) as another:
        another.put(queue, b"not theirs")
        assert another.take_one(queue).body == b"not theirs"
