"""CREATE and its options, DELETE, PURGE, LIST, STATS, HELLO and PING."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shmq
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import FOREVER, Frame, S, T

MakeQueue = Callable[..., str]

# --- HELLO and PING --------------------------------------------------------------------


def test_hello_is_answered_with_the_server_the_longest_frame_and_the_features(wire: Wire) -> None:
    answer = frames.unpack(wire.ok(T.HELLO, frames.pack({"client": "a test"})))

    assert isinstance(answer["server"], str)
    assert isinstance(answer["max_frame"], int)
    assert all(isinstance(each, str) for each in answer["features"])


def test_hello_is_optional_and_may_come_at_any_time_and_again(wire: Wire, queue: str) -> None:
    wire.put(queue)
    for _ in range(3):
        wire.ok(T.HELLO, frames.pack({"client": "late", "token": "nobody asked"}))
    assert len(wire.take_all(queue)) == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        frames.pack([]),
        frames.pack("client"),
        frames.pack({"client": 5}),
        frames.pack({"client": "c", "token": 5}),
        frames.pack({"client": "c"}) + b"\x00",
        frames.pack({"client": "c"})[:-1],
        b"\xdf\xff\xff\xff\xff",
    ],
)
def test_a_hello_that_is_not_one_map_of_its_keys_is_bad_request(wire: Wire, payload: bytes) -> None:
    assert wire.status(T.HELLO, payload) == S.BAD_REQUEST
    wire.still_answers()


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff" * 64, bytes(range(64))])
def test_ping_gives_back_the_same_bytes(wire: Wire, payload: bytes) -> None:
    assert wire.ok(T.PING, payload) == payload


@pytest.mark.parametrize("length", [65, 66, 4096, 1 << 20])
def test_a_ping_of_more_than_64_bytes_is_bad_request(wire: Wire, length: int) -> None:
    assert wire.status(T.PING, bytes(length)) == S.BAD_REQUEST


# --- CREATE ----------------------------------------------------------------------------


def test_create_with_no_bytes_or_an_empty_map_takes_the_defaults(
    wire: Wire, broker: shmq.Broker, name: str
) -> None:
    assert wire.ok(T.CREATE, frames.name(name)) == b""
    assert wire.ok(T.CREATE, frames.name(name) + frames.pack({})) == b""

    assert broker.queue(name).options == shmq.QueueOptions(dead_letter=f"{name}.dlq")


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 10},
        {"arena_bytes": 1 << 20},
        {"max_message_bytes": 1000},
        {"visibility_timeout": 5},
        {"visibility_timeout": 0.5},
        {"max_deliveries": 2},
        {"max_deliveries": None},
        {"dead_letter": None},
        {"dead_letter": "other.dead"},
        {"ttl": 60},
        {"ttl": 0.25},
        {"priorities": 16},
        {"retry_delay": 2},
        {"retry_delay": 0.5},
        {"retry_delay_max": 60},
        {"dedupe_window": 30},
        {"dedupe_window": 1.5},
        {"overflow": "reject"},
        {"overflow": "block"},
        {"overflow": "drop-oldest"},
    ],
    ids=repr,
)
def test_each_option_of_create_is_the_queues(
    wire: Wire, broker: shmq.Broker, name: str, options: dict[str, Any]
) -> None:
    wire.create(name, **options)

    made = broker.queue(name).options
    assert {key: getattr(made, key) for key in options} == options
    for dead_letter in {made.dead_letter} - {None}:
        assert dead_letter in wire.names()


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 0},
        {"capacity": 1 << 40},
        {"capacity": "many"},
        {"capacity": 1.5},
        {"capacity": True},
        {"arena_bytes": 1},
        {"max_message_bytes": 0},
        {"max_message_bytes": 1 << 40},
        {"visibility_timeout": 0},
        {"visibility_timeout": -1},
        {"visibility_timeout": float("nan")},
        {"visibility_timeout": float("inf")},
        {"visibility_timeout": "30"},
        {"max_deliveries": 0},
        {"max_deliveries": 1 << 20},
        {"dead_letter": "bad name"},
        {"dead_letter": ""},
        {"dead_letter": 5},
        {"ttl": 0},
        {"priorities": 0},
        {"priorities": 17},
        {"retry_delay": -1},
        {"retry_delay_max": 1e12},
        {"dedupe_window": -0.5},
        {"overflow": "explode"},
        {"overflow": None},
        {"colour": "red"},
        {"Capacity": 10},
    ],
    ids=repr,
)
def test_an_unknown_option_or_a_value_out_of_range_is_bad_request_and_named(
    wire: Wire, name: str, options: dict[str, Any]
) -> None:
    answer = wire.ask(T.CREATE, frames.create(name, **options))

    assert answer.status == S.BAD_REQUEST
    assert next(iter(options)) in answer.payload.decode()
    assert name not in wire.names()
    assert f"{name}.dlq" not in wire.names()


@pytest.mark.parametrize("key", ["name", "self", "colour"])
def test_so_it_is_when_options_are_altered(wire: Wire, queue: str, key: str) -> None:
    answer = wire.ask(T.ALTER, frames.name(queue) + frames.pack({"ttl": 60, key: "x"}))

    assert answer.status == S.BAD_REQUEST
    assert f"unknown option {key!r}" in answer.payload.decode()


@pytest.mark.parametrize(
    "rest",
    [
        b"\xc1",
        b"\xc0",
        frames.pack([]),
        frames.pack("capacity"),
        frames.pack({5: 5}),
        frames.pack({"capacity": 5}) + b"\x00",
        frames.pack({"capacity": 5})[:-1],
        b"\x81",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 100_000,
    ],
    ids=lambda rest: rest[:8].hex(),
)
def test_options_that_are_not_one_map_are_bad_request(wire: Wire, name: str, rest: bytes) -> None:
    assert wire.status(T.CREATE, frames.name(name) + rest) == S.BAD_REQUEST
    assert name not in wire.names()


def test_a_create_with_the_same_options_is_ok_and_with_others_queue_exists(
    wire: Wire, name: str
) -> None:
    wire.create(name, capacity=100)
    wire.put(name, b"kept")

    wire.create(name, capacity=100)
    assert wire.status(T.CREATE, frames.create(name, capacity=101)) == S.QUEUE_EXISTS
    assert wire.status(T.CREATE, frames.create(name)) == S.QUEUE_EXISTS

    assert [each.body for each in wire.take_all(name)] == [b"kept"]


def test_create_makes_a_dead_letter_queue_that_has_none_itself(
    wire: Wire, broker: shmq.Broker, name: str
) -> None:
    wire.create(name)

    assert broker.queue(f"{name}.dlq").options.dead_letter is None
    assert f"{name}.dlq.dlq" not in wire.names()


def test_a_queue_made_here_is_there_for_local_processes_and_the_other_way_round(
    wire: Wire, broker: shmq.Broker, name: str
) -> None:
    with broker.create_queue(name) as queue:
        queue.put(b"from here")
        assert wire.take_one(name).body == b"from here"
        wire.put(name, b"from there")
        with queue.get(timeout=30) as message:
            assert message.body == b"from there"


# --- DELETE ----------------------------------------------------------------------------


def test_delete_removes_the_queue_and_leaves_its_dead_letter_queue(wire: Wire, name: str) -> None:
    wire.create(name)

    assert wire.ok(T.DELETE, frames.name(name)) == b""

    assert name not in wire.names()
    assert f"{name}.dlq" in wire.names()
    assert wire.status(T.DELETE, frames.name(name)) == S.NO_QUEUE
    assert wire.status(T.PRODUCE, frames.produce(name)) == S.NO_QUEUE


@pytest.mark.parametrize("letters", [0, 1])
def test_delete_takes_the_empty_dead_letter_queue_with_it_if_asked(
    wire: Wire, name: str, letters: int
) -> None:
    wire.create(name)
    for _ in range(letters):
        wire.put(f"{name}.dlq", b"letter")

    assert wire.status(T.DELETE, frames.name(name) + b"\2") == S.BAD_REQUEST
    assert wire.ok(T.DELETE, frames.name(name) + b"\1") == b""

    assert (f"{name}.dlq" in wire.names()) is bool(letters)


@pytest.mark.parametrize("how", ["by a client", "by a local process"])
def test_delete_ends_waiting_consumes_and_subscriptions_with_no_queue(
    address: Address, wire: Wire, broker: shmq.Broker, queue: str, how: str
) -> None:
    waiting = [Wire(address) for _ in range(6)]
    subscription = wire.subscribe(queue, 5)
    ids = {subscription, wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))}
    wire.still_answers()
    for each in waiting[:3]:
        each.post(T.CONSUME, frames.consume(queue, 1, FOREVER), 1000)
        each.still_answers()
    for each in waiting[3:]:
        each.post(T.SUBSCRIBE, frames.subscribe(queue), 1000)
        assert each.receive() == Frame(T.REPLY, S.OK, 1000, b"")

    if how == "by a client":
        with Wire(address) as another:
            another.ok(T.DELETE, frames.name(queue))
    else:
        broker.delete_queue(queue)

    ends = [each.receive() for each in waiting] + [wire.receive(), wire.receive()]
    assert {(each.kind, each.status) for each in ends} == {(T.REPLY, S.NO_QUEUE)}
    assert [each.id for each in ends[:6]] == [1000] * 6
    assert {each.id for each in ends[6:]} == ids
    assert wire.status(T.UNSUBSCRIBE, frames.u32(subscription)) == S.BAD_REQUEST
    for each in (*waiting, wire):
        each.still_answers()
        each.close()


def test_a_deleting_connection_that_waits_itself_is_told_so_too(wire: Wire, queue: str) -> None:
    waiting = wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))
    deleting = wire.post(T.DELETE, frames.name(queue))

    answers = {(each.id, each.status) for each in (wire.receive(), wire.receive())}

    assert answers == {(waiting, S.NO_QUEUE), (deleting, S.OK)}


# --- PURGE -----------------------------------------------------------------------------


def test_purge_removes_visible_and_delayed_messages_and_no_leased_one(
    wire: Wire, queue: str
) -> None:
    wire.put(queue, b"leased")
    leased = wire.take_one(queue)
    for _ in range(3):
        wire.put(queue)
    wire.put(queue, b"", {"delay": 60_000})
    assert wire.counts(queue) == (3, 1, 1)

    assert wire.ok(T.PURGE, frames.name(queue)) == frames.u64(4)

    assert wire.counts(queue) == (0, 0, 1)
    assert wire.settle(queue, leased.receipt) == []
    assert wire.ok(T.PURGE, frames.name(queue)) == frames.u64(0)


# --- LIST and STATS --------------------------------------------------------------------


def test_a_list_of_names_is_names_alone(wire: Wire, queue: str) -> None:
    assert queue in frames.unpack(wire.ok(T.LIST, frames.pack({"names": True})))
    assert frames.unpack(wire.ok(T.LIST, frames.pack({"names": False})))[0]["kind"] == "queue"


@pytest.mark.parametrize("asked", [{"names": 1}, {"name": True}, [True], b"x"])
def test_a_list_of_anything_else_is_refused(wire: Wire, asked: object) -> None:
    assert wire.status(T.LIST, frames.pack(asked)) == S.BAD_REQUEST


def test_list_names_each_queue_with_its_kind_and_counts(wire: Wire, queue: str) -> None:
    for _ in range(3):
        wire.put(queue)
    wire.take_one(queue)

    (mine,) = [each for each in frames.unpack(wire.ok(T.LIST)) if each["name"] == queue]

    assert (mine["kind"], mine["depth"], mine["in_flight"]) == ("queue", 2, 1)


def test_stats_count_what_is_there_and_what_was_done(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout=3600, retry_delay=0)
    for _ in range(6):
        wire.put(queue)
    wire.put(queue, b"", {"delay": 60_000})
    one, two, three, _ = wire.take(queue, 4)
    wire.settle(queue, one.receipt)
    wire.ok(T.NACK, frames.timed(queue, 0, two.receipt))
    wire.ok(T.REJECT, frames.receipts(queue, three.receipt))
    wire.take_one(queue)

    found = wire.stats(queue)

    wanted = {
        "name": queue,
        "depth": 2,
        "delayed": 1,
        "in_flight": 2,
        "dead_lettered": 1,
        "put": 7,
        "acked": 1,
        "nacked": 1,
        "expired": 0,
        "redelivered": 1,
    }
    assert {key: found[key] for key in wanted} == wanted
    assert isinstance(found["oldest_age"], int | float)
    assert found["oldest_age"] > 0


def test_the_oldest_age_of_an_empty_queue_is_0(wire: Wire, queue: str) -> None:
    assert wire.stats(queue)["oldest_age"] == 0


def test_expired_counts_leases_that_ran_out(wire: Wire, make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout=0.05)
    wire.put(queue)
    wire.take_one(queue)
    assert wire.take_one(queue).deliveries == 2
    assert wire.stats(queue)["expired"] >= 1


# --- forms -----------------------------------------------------------------------------


@pytest.mark.parametrize("type", [T.DELETE, T.PURGE, T.STATS])
def test_bytes_behind_a_name_are_bad_request_and_nothing_is_done(
    wire: Wire, queue: str, type: T
) -> None:
    wire.put(queue)

    assert wire.status(type, frames.name(queue) + b"\x00") == S.BAD_REQUEST

    assert wire.counts(queue) == (1, 0, 0)


@pytest.mark.parametrize("payload", [b"\x00", frames.name("q"), b"\x80"])
def test_a_list_with_a_payload_is_bad_request(wire: Wire, payload: bytes) -> None:
    assert wire.status(T.LIST, payload) == S.BAD_REQUEST


@pytest.mark.parametrize(
    "type", sorted(set(T) - {T.PING, T.LIST, T.STREAM_LIST, T.DELIVER, T.REPLY})
)
def test_an_empty_payload_is_bad_request_in_every_type_that_has_one(wire: Wire, type: T) -> None:
    answer = wire.ask(type, b"")

    assert (answer.kind, answer.status) == (T.REPLY, S.BAD_REQUEST)
    assert answer.payload.decode()


def test_leases_are_a_map_without_receipts_behind_a_sequence_number(wire: Wire, queue: str) -> None:
    for _ in range(3):
        wire.put(queue, b"body")
    wire.take(queue, 2)
    ask = frames.name(queue)

    found = frames.unpack(wire.ok(T.LEASES, ask + frames.u64(0) + frames.u32(9)))
    (behind,) = frames.unpack(wire.ok(T.LEASES, ask + frames.u64(1) + frames.u32(9)))["leases"]

    assert [one["sequence"] for one in found["leases"]] == [1, 2]
    assert found["more"] is False
    assert behind["sequence"] == 2
    assert set(behind) == {
        *("sequence", "deliveries", "priority", "size"),
        *("holder_pid", "holder_name", "expires_in"),
    }


def test_leases_of_another_form_are_bad_request(wire: Wire, queue: str) -> None:
    for rest in (b"", frames.u64(0), frames.u64(0) + frames.u32(0), frames.u64(0) + bytes(5)):
        assert wire.status(T.LEASES, frames.name(queue) + rest) == S.BAD_REQUEST
    wire.still_answers()
