"""Tokens: which first frames authenticate, and what a token may know and do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import shmq
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import NAMED, OF_QUEUES, OPERATIONS, S, T, frame

#: Each token with the patterns of what it may do.
TOKENS: dict[str, dict[str, list[str]]] = {
    "p" * 40: {"produce": ["shop.*"]},
    "c" * 40: {"consume": ["shop.*"]},
    "a" * 40: {"admin": ["shop.*"]},
    "*" * 40: {"produce": ["*"], "consume": ["*"], "admin": ["*"]},
}
PRODUCER, CONSUMER, ADMIN, ALL = TOKENS


@pytest.fixture(scope="module")
def guarded(serve: Serve) -> Iterator[Address]:
    """A server that asks for a token, with the queues shop.orders and secret."""
    with serve(tokens=TOKENS) as server:
        with shmq.connect(server.namespace) as broker:
            broker.create_queue("shop.orders", dead_letter=None)
            broker.create_queue("secret", dead_letter=None)
        yield server.address


@pytest.fixture
def connection(guarded: Address) -> Iterator[Wire]:
    """A connection that has not authenticated yet."""
    with Wire(guarded) as wire:
        yield wire


def hello(token: object = None, client: object = "a test") -> bytes:
    return frames.pack({"client": client} | ({} if token is None else {"token": token}))


def let_in(wire: Wire, token: str) -> Wire:
    wire.ok(T.HELLO, hello(token))
    return wire


# --- the first frame -------------------------------------------------------------------


@pytest.mark.parametrize("type", sorted(set(range(256)) - {T.HELLO}))
def test_any_other_first_frame_than_hello_is_unauthorized(connection: Wire, type: int) -> None:
    connection.send(frame(type, frames.name("shop.orders"), 0x0A0B0C0D), frame(T.HELLO, hello(ALL)))

    assert [(each.kind, each.status, each.id) for each in connection.rest()] == [
        (T.REPLY, S.UNAUTHORIZED, 0x0A0B0C0D)
    ]


def test_a_hello_without_a_known_token_is_unauthorized(guarded: Address) -> None:
    tokens = ["x" * 40, "", "p" * 39, "p" * 41, "P" * 40, " " + PRODUCER, PRODUCER + "\x00", None]
    with contextlib.ExitStack() as stack:  # at once: each failure is answered later than the last
        wires = [stack.enter_context(Wire(guarded)) for _ in tokens]
        for token, wire in zip(tokens, wires, strict=True):
            wire.send(frame(T.HELLO, hello(token), 9), frame(T.PING, b"", 10))

        for token, wire in zip(tokens, wires, strict=True):
            answers = [(each.status, each.id) for each in wire.rest()]
            assert answers == [(S.UNAUTHORIZED, 9)], token


def test_a_first_hello_of_4_kib_is_let_in(connection: Wire) -> None:
    payload = hello(ALL, "n" * 3000)
    payload = hello(ALL, "n" * (3000 + 4096 - len(payload)))
    assert len(payload) == 4096

    connection.ok(T.HELLO, payload)
    connection.still_answers()


@pytest.mark.parametrize("length", [4097, 1 << 20, 16 << 20])
def test_a_longer_first_hello_is_unauthorized_on_its_header_alone(
    connection: Wire, length: int
) -> None:
    connection.send(frame(T.HELLO, b"", 77, length=length))

    assert [(each.status, each.id) for each in connection.rest()] == [(S.UNAUTHORIZED, 77)]


def test_a_longer_hello_is_fine_once_one_was_ok(connection: Wire) -> None:
    let_in(connection, ALL)
    connection.ok(T.HELLO, hello(ALL, "n" * 100_000))


def test_length_is_checked_before_the_token(connection: Wire) -> None:
    connection.send(frame(T.PING, b"", 5, length=0xFFFFFFFF))

    assert [(each.status, each.id) for each in connection.rest()] == [(S.FRAME_TOO_LARGE, 5)]


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (frame(T.PING, b"", 5, magic=1), S.BAD_MAGIC),
        (frame(T.PING, b"", 5, version=2), S.BAD_VERSION),
    ],
)
def test_magic_and_version_are_checked_before_the_token(
    connection: Wire, bad: bytes, status: S
) -> None:
    connection.send(bad)

    assert [each.status for each in connection.rest()] == [status]


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x90", frames.pack({"token": 5}), hello(5)])
def test_a_malformed_first_hello_is_refused(connection: Wire, payload: bytes) -> None:
    connection.send(frame(T.HELLO, payload, 3), frame(T.LIST, b"", 4))

    answers = connection.rest()

    assert answers[0].status in {S.BAD_REQUEST, S.UNAUTHORIZED}
    assert answers[-1].status == S.UNAUTHORIZED
    assert all(each.status != S.OK for each in answers)


def test_a_token_of_another_type_or_of_bytes_is_refused(connection: Wire) -> None:
    connection.send(frame(T.HELLO, hello(ALL.encode()), 3), frame(T.LIST, b"", 4))

    assert all(each.status != S.OK for each in connection.rest())


# --- rights ----------------------------------------------------------------------------

#: Who may do it. A MOVE takes a right to another queue, too: tests/system/server.
RIGHT_OF: dict[T, str] = {
    each: {"produce": PRODUCER, "consume": CONSUMER, "admin": ADMIN}[right]
    for each in sorted(OF_QUEUES - {T.MOVE})
    if (right := OPERATIONS[each].right)
}


@pytest.mark.parametrize("type", RIGHT_OF)
@pytest.mark.parametrize("token", [PRODUCER, CONSUMER, ADMIN], ids=["produce", "consume", "admin"])
def test_what_a_token_may_know_but_not_do_is_forbidden(
    connection: Wire, token: str, type: T
) -> None:
    let_in(connection, token)

    answer = connection.ask(type, frames.request(type, "shop.orders"))

    if token == RIGHT_OF[type]:
        assert answer.status != S.FORBIDDEN
        if type == T.DELETE:
            connection.create("shop.orders", dead_letter=None)
    else:
        assert (answer.kind, answer.status) == (T.REPLY, S.FORBIDDEN)
        connection.still_answers()


@pytest.mark.parametrize("type", sorted(NAMED - {T.CREATE, T.STREAM_CREATE}))
@pytest.mark.parametrize("token", [PRODUCER, CONSUMER, ADMIN], ids=["produce", "consume", "admin"])
def test_a_queue_that_a_token_may_not_know_is_answered_as_if_it_were_not_there(
    connection: Wire, token: str, type: T
) -> None:
    let_in(connection, token)

    hidden = connection.ask(type, frames.request(type, "secret"), 5)
    absent = connection.ask(type, frames.request(type, "absent"), 5)

    assert hidden.status == S.NO_QUEUE
    text = hidden.payload.replace(b"secret", b"absent")
    assert hidden._replace(payload=text) == absent


@pytest.mark.parametrize("token", [PRODUCER, CONSUMER, ADMIN], ids=["produce", "consume", "admin"])
def test_a_create_does_not_tell_what_a_token_may_not_know(connection: Wire, token: str) -> None:
    let_in(connection, token)

    for options in ({}, {"capacity": 5}, {"dead_letter": None}):
        answers = [
            connection.ask(T.CREATE, frames.create(name, **options), 5)
            for name in ("secret", "absent")
        ]
        texts = {
            each._replace(payload=each.payload.replace(b"secret", b"absent")) for each in answers
        }
        assert len(texts) == 1
        assert answers[0].status in {S.NO_QUEUE, S.FORBIDDEN}


def test_a_queue_cannot_be_made_with_dead_letters_into_what_a_token_may_not_know(
    connection: Wire,
) -> None:
    let_in(connection, ADMIN)

    status = connection.status(T.CREATE, frames.create("shop.leak", dead_letter="secret"))

    assert status in {S.NO_QUEUE, S.FORBIDDEN}
    assert "shop.leak" not in connection.names()


def test_list_names_only_what_a_token_may_know(connection: Wire) -> None:
    for token in (PRODUCER, CONSUMER, ADMIN):
        names = let_in(connection, token).names()
        assert "shop.orders" in names
        assert "secret" not in names
    assert {"shop.orders", "secret"} <= set(let_in(connection, ALL).names())


def test_right_is_refused_before_range(connection: Wire) -> None:
    let_in(connection, CONSUMER)
    payload = frames.produce("shop.orders", b"", {"pri": 99})
    assert connection.status(T.PRODUCE, payload) == S.FORBIDDEN


def test_flags_are_refused_before_right(connection: Wire) -> None:
    let_in(connection, CONSUMER)
    payload = frames.produce("shop.orders", b"", None, 0x80)
    assert connection.status(T.PRODUCE, payload) == S.UNSUPPORTED


def test_a_refused_right_changes_nothing(connection: Wire, guarded: Address) -> None:
    with Wire(guarded) as all_seeing:
        let_in(all_seeing, ALL)
        before = all_seeing.stats("shop.orders")
        let_in(connection, ADMIN)
        connection.status(T.PRODUCE, frames.produce("shop.orders", b"x"))
        let_in(connection, PRODUCER)
        connection.status(T.PURGE, frames.name("shop.orders"))
        connection.status(T.DELETE, frames.name("shop.orders"))
        after = all_seeing.stats("shop.orders")
    counted = ("depth", "delayed", "in_flight", "put", "acked")
    assert [before[key] for key in counted] == [after[key] for key in counted]


def test_a_later_hello_replaces_the_rights_of_an_earlier_one(connection: Wire) -> None:
    produce = frames.produce("shop.orders", b"1")
    consume = frames.consume("shop.orders")
    let_in(connection, PRODUCER)
    assert connection.status(T.PRODUCE, produce) == S.OK
    assert connection.status(T.CONSUME, consume) == S.FORBIDDEN

    let_in(connection, CONSUMER)
    assert connection.status(T.PRODUCE, produce) == S.FORBIDDEN
    delivery = frames.read_delivery(connection.ask(T.CONSUME, consume).payload)
    assert connection.settle("shop.orders", delivery.receipt) == []

    let_in(connection, ALL)
    assert connection.status(T.PRODUCE, frames.produce("secret")) == S.OK
    assert len(connection.take_all("secret")) == 1


def test_a_receipt_needs_the_right_to_consume(connection: Wire, guarded: Address) -> None:
    let_in(connection, ALL)
    connection.put("secret", b"x")
    receipt = connection.take_one("secret").receipt
    with Wire(guarded) as another:
        let_in(another, CONSUMER)
        assert another.status(T.ACK, frames.receipts("secret", receipt)) == S.NO_QUEUE
    assert connection.settle("secret", receipt) == []


def test_unauthorized_is_answered_behind_what_was_there_before(connection: Wire) -> None:
    let_in(connection, ALL)
    connection.send(
        frame(T.PING, b"1", 1), frame(T.HELLO, hello("wrong" * 8), 2), frame(T.PING, b"", 3)
    )

    assert [(each.status, each.id) for each in connection.rest()] == [
        (S.OK, 1),
        (S.UNAUTHORIZED, 2),
    ]
