"""What a token lets a remote client do and know, over the wire."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import msgpack
import pytest

import shmq
from shmq.api.names import with_dead_letter
from shmq.protocol import opcodes
from shmq.protocol.opcodes import FOREVER, Status, Type
from tests.support.namespaces import own_namespace
from tests.support.peer import Frame, Peer, name_of
from tests.support.server import Server, serve
from tests.system.server.conftest import Serve
from tests.system.wire.frames import OF_QUEUES, OPERATIONS, T

RIGHTS = ("produce", "consume", "admin")

#: A token for each set of rights to the queues "shop*", and one for everything.
TOKENS = {
    "".join(f"{right}-" for right in held).ljust(40, "x"): held
    for held in (
        *((right,) for right in RIGHTS),
        ("produce", "consume"),
        ("produce", "admin"),
        ("consume", "admin"),
        RIGHTS,
        (),
    )
}
ALL = "*" * 40
NOTHING = "x" * 40
ADMIN = next(token for token, held in TOKENS.items() if held == ("admin",))

_ONE = struct.pack("!I", 1)

#: Requests for a queue, and the right that each takes; None: any of them. A MOVE takes two.
REQUESTS: dict[str, tuple[int, bytes, str | None]] = {
    kind.name: (kind, OPERATIONS[kind].rest, OPERATIONS[kind].right)
    for kind in sorted(OF_QUEUES - {T.MOVE})
}

#: Requests for an exchange that is bound to the queue ``shop``.
EXCHANGE_REQUESTS: dict[str, tuple[int, bytes, str | None]] = {
    "ROUTE": (Type.ROUTE, _ONE + b"\x80" + bytes(4) + _ONE + b"x", "produce"),
    "look": (Type.EXCHANGE, msgpack.packb({"action": "look"}), None),
    "bindings": (Type.EXCHANGE, msgpack.packb({"action": "bindings"}), None),
    "unbind": (Type.EXCHANGE, msgpack.packb({"action": "unbind", "target": "shop"}), "admin"),
    "create": (Type.EXCHANGE, msgpack.packb({"action": "create", "kind": "fanout"}), "admin"),
    "delete": (Type.EXCHANGE, msgpack.packb({"action": "delete"}), "admin"),
    "synced": (Type.EXCHANGE, msgpack.packb({"action": "synced", "queues": {}}), "produce"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    rights = {
        token: {right: ["shop*"] if right in held else [] for right in RIGHTS}
        for token, held in TOKENS.items()
    }
    tokens = {**rights, ALL: {right: ["*"] for right in RIGHTS}}
    with own_namespace() as namespace, serve(namespace, tokens=tokens) as server:
        yield server


@pytest.fixture(autouse=True)
def broker(server: Server) -> Iterator[shmq.Broker]:
    """A local broker; there are the queues ``shop`` and ``secret``, both empty."""
    with shmq.connect(server.namespace) as broker:
        for each in broker.list_queues():
            with contextlib.suppress(shmq.NoSuchQueue):  # a dead-letter queue goes with its own
                broker.delete_queue(each.name)
        for name in ("shop", "secret"):
            broker.create_queue(name, dead_letter=None)
        yield broker
        for exchange in broker.list_exchanges():
            broker.delete_exchange(exchange.name)


def exchanges(broker: shmq.Broker) -> None:
    """Make the exchanges ``shop`` and ``secret`` again, each bound to both queues."""
    for name in ("shop", "secret"):
        exchange = broker.ensure_exchange(name, "fanout")
        for queue in ("shop", "secret"):
            exchange.bind(queue)


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with Peer(server) as peer:
        yield peer


@pytest.mark.prove
def test_each_set_of_rights_allows_exactly_what_it_says(server: Server) -> None:
    found, expected = {}, {}
    for token, held in TOKENS.items():
        for what, (kind, rest, right) in REQUESTS.items():
            with Peer(server) as peer, Peer(server) as clerk:
                answer = peer.let_in(token).ask(kind, name_of("shop") + rest)
                clerk.let_in(ALL).create("shop", dead_letter=None)
            key = ("+".join(held), what)
            found[key] = (
                Status.OK if answer.status in {Status.QUEUE_EMPTY, 0x100} else answer.status
            )
            allowed = right in held if right else bool(held)
            refusal = Status.FORBIDDEN if held else Status.NO_QUEUE
            expected[key] = Status.OK if allowed else refusal
    assert found == expected


def test_the_rights_here_are_those_of_the_table() -> None:
    assert {*OPERATIONS} == {*Type} - {Type.DELIVER, Type.REPLY}
    assert {kind: OPERATIONS[T(kind)].right for kind in opcodes.RIGHTS} == {
        kind: right.name.lower() for kind, right in opcodes.RIGHTS.items()
    }


def test_the_form_and_the_queue_are_checked_before_the_right(peer: Peer) -> None:
    peer.let_in(next(token for token, held in TOKENS.items() if held == ("consume",)))
    found, expected = {}, {}
    for kind in (
        each for each in sorted(OF_QUEUES) if OPERATIONS[each].right not in {None, "consume"}
    ):
        whole = name_of("shop.absent") + OPERATIONS[kind].rest
        found[kind] = peer.status(kind, whole), peer.status(kind, name_of("shop") + b"\xc1")
        there = Status.FORBIDDEN if kind == T.CREATE else Status.NO_QUEUE
        expected[kind] = there, Status.BAD_REQUEST
    for malformed in (Type.CREATE, Type.PUBLISH, Type.STAGED):
        assert peer.status(malformed, name_of("shop") + b"\x81\x05\x05") == Status.BAD_REQUEST
    assert found == expected


@pytest.mark.prove
def test_what_a_token_may_not_know_is_as_if_it_were_not_there(server: Server) -> None:
    for token in [*TOKENS, NOTHING]:
        for kind, rest, _ in REQUESTS.values():
            answers = set()
            for name in ("secret", "absent"):
                with Peer(server) as peer:
                    answer = peer.let_in(token).ask(kind, name_of(name) + rest)
                text = answer.payload.replace(name.encode(), b"NAME")
                answers.add(answer._replace(payload=text))
            assert len(answers) == 1, answers


def test_the_list_has_what_a_token_has_any_right_to(server: Server) -> None:
    for token, held in {**TOKENS, NOTHING: ()}.items():
        with Peer(server) as peer:
            assert peer.let_in(token).names() == (["shop"] if held else [])
    with Peer(server) as peer:
        assert peer.let_in(ALL).names() == ["secret", "shop"]


def test_hello_comes_first_and_its_token_must_be_known(server: Server) -> None:
    for first in (Type.PING, Type.LIST):
        with Peer(server) as peer:
            assert peer.status(first) == Status.UNAUTHORIZED
            assert peer.ended()
    for token in (None, "", ALL[1:], ALL + "*", "?" * 40):
        with Peer(server) as peer:
            assert peer.hello(token).status == Status.UNAUTHORIZED
            assert peer.ended()
    assert server.said('event=login.failed .*reason="unknown token"')


@pytest.mark.prove
def test_no_token_and_no_hash_is_ever_logged(served: Serve) -> None:
    server = served(log_level="debug", tokens={ALL: {"produce": ["*"]}, NOTHING: {}})
    with Peer(server) as good, Peer(server) as bad:
        good.let_in(ALL)
        bad.hello("bad" * 20)
        assert bad.ended()

    server.hears("authenticated with token 'token 0'")
    assert not server.said(r"\*\*\*|xxx|badbad|sha256")


def test_a_hello_that_is_wrong_is_refused(server: Server) -> None:
    for payload in (b"", b"\xc1", b"\x90", msgpack.packb({"client": 5}), msgpack.packb({1: 2})):
        with Peer(server) as peer:
            assert peer.status(Type.HELLO, payload) == Status.BAD_REQUEST
            assert peer.status(Type.LIST) == Status.UNAUTHORIZED


# --- queues that others have -----------------------------------------------------------


def test_dead_letters_go_where_the_token_may_administer_alone(server: Server, peer: Peer) -> None:
    peer.let_in(ADMIN)

    for name in ("secret", "absent"):
        refused = peer.create("shop.a", dead_letter=name)
        assert refused.status == Status.FORBIDDEN
        assert refused.payload.replace(name.encode(), b"") == (
            b"dead_letter='': the token has no right to administer that"
        )
    assert peer.names() == ["shop"]
    assert peer.create("shop.b", dead_letter="shop.dead").status == Status.OK
    assert peer.create("shop.c").status == Status.OK
    assert peer.names() == ["shop", "shop.b", "shop.c", "shop.c.dlq", "shop.dead"]


def test_a_queue_of_others_is_not_told_as_a_dead_letter_queue(
    server: Server, peer: Peer, broker: shmq.Broker
) -> None:
    broker.create_queue("shop.linked", dead_letter="secret.dead")
    peer.let_in(ADMIN)

    stats = msgpack.unpackb(peer.ok(Type.STATS, name_of("shop.linked")))
    exists = peer.create("shop.linked", capacity=5)

    assert stats["options"]["dead_letter"] is None
    assert exists.status == Status.QUEUE_EXISTS
    assert b"secret" not in exists.payload
    with Peer(server) as clerk:
        clerk.let_in(ALL)
        told = msgpack.unpackb(clerk.ok(Type.STATS, name_of("shop.linked")))
        assert told["options"]["dead_letter"] == "secret.dead"
        assert b"capacity" in clerk.create("shop.linked", capacity=5).payload


def test_a_redrive_moves_only_messages_of_queues_that_the_token_may_administer(
    peer: Peer, broker: shmq.Broker
) -> None:
    theirs = broker.create_queue("theirs", dead_letter="shop.dead")
    ours = broker.create_queue("shop.ours", dead_letter="shop.dead")
    for queue in (theirs, ours):
        queue.put(b"x")
        queue.get().reject()
    dead_letter_queue = broker.queue("shop.dead")
    assert dead_letter_queue.qsize() == 2

    moved = peer.let_in(ADMIN).ok(Type.REDRIVE, name_of("shop.dead") + struct.pack("!I", FOREVER))

    assert moved == struct.pack("!Q", 1)
    assert (theirs.qsize(), ours.qsize(), dead_letter_queue.qsize()) == (0, 1, 1)


@pytest.mark.parametrize("token", TOKENS)
def test_a_move_takes_the_right_to_consume_here_and_to_produce_there(
    peer: Peer, broker: shmq.Broker, token: str
) -> None:
    source, target = broker.create_queue("shop.source"), broker.create_queue("shop.target")
    source.put("x")

    answer = peer.let_in(token).ask(
        Type.MOVE, name_of("shop.source") + msgpack.packb({"to": "shop.target"})
    )

    allowed = {"produce", "consume"} <= set(TOKENS[token])
    assert (answer.status == Status.OK) == allowed
    assert (source.qsize(), target.qsize()) == ((0, 1) if allowed else (1, 0))


def test_a_move_to_a_queue_without_a_right_does_not_say_whether_it_exists(
    peer: Peer, broker: shmq.Broker
) -> None:
    source = broker.create_queue("shop.source")
    broker.create_queue("theirs")
    source.put("x")
    both = next(token for token, held in TOKENS.items() if held == ("produce", "consume"))
    peer.let_in(both)
    answers = [
        peer.ask(Type.MOVE, name_of("shop.source") + msgpack.packb({"to": to}))
        for to in ("theirs", "nowhere")
    ]
    assert {answer.status for answer in answers} == {Status.FORBIDDEN}
    assert source.qsize() == 1


def test_a_redrive_that_chooses_takes_the_right_to_look_at_what_it_chooses_from(
    server: Server, broker: shmq.Broker
) -> None:
    shop = broker.create_queue("shop.jobs")
    shop.put({"secret": 17})
    shop.get().reject()
    asked = name_of("shop.jobs") + struct.pack("!I", FOREVER) + b"body.secret = 17"
    with Peer(server) as admin:
        refused = admin.let_in(ADMIN).ask(Type.REDRIVE, asked)
        assert refused.status == Status.FORBIDDEN
        assert b"consume" in refused.payload
    assert shop.qsize() == 0

    with Peer(server) as clerk:
        assert clerk.let_in(ALL).ok(Type.REDRIVE, asked) == struct.pack("!Q", 1)
    assert shop.qsize() == 1


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (b"reson = 'x'", b"field 'reson' does not exist"),
        (b"\xff", b"utf-8"),
        (b" " * 70_000, b"at most"),
    ],
)
def test_an_expression_that_cannot_be_read_is_refused(
    peer: Peer, expression: bytes, why: bytes
) -> None:
    rest = name_of("shop") + struct.pack("!I", FOREVER) + expression

    refused = peer.let_in(ALL).ask(Type.REDRIVE, rest)

    assert refused.status == Status.BAD_REQUEST
    assert why in refused.payload


# --- what is asked for, and how --------------------------------------------------------


def test_statistics_have_every_field_of_the_local_ones(peer: Peer, broker: shmq.Broker) -> None:
    queue = broker.queue("shop")
    queue.put(b"x")
    found = msgpack.unpackb(peer.let_in(ALL).ok(Type.STATS, name_of("shop")))

    local = queue.stats()
    others = {"identity", "options", "attachments", "unwritten", "exclusive_to"}
    assert {*found} == {*local.__slots__, *others}
    assert (found["name"], found["depth"], found["put"]) == ("shop", 1, 1)
    assert found["options"] == queue.options.as_dict()
    assert {row["pid"] for row in found["attachments"]} >= {
        each.pid for each in queue.attachments()
    }


def test_the_list_has_every_field_of_a_summary(peer: Peer, broker: shmq.Broker) -> None:
    found = msgpack.unpackb(peer.let_in(ALL).ok(Type.LIST))

    (summary,) = [each for each in broker.list_queues() if each.name == "shop"]
    assert {*found[1]} == {*summary.__slots__, "kind"}
    assert found[1]["kind"] == "queue"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (msgpack.packb({"capacty": 5}), b"did you mean 'capacity'"),
        (msgpack.packb({"capacity": 0}), b"capacity=0"),
        (msgpack.packb({"capacity": "many"}), b"capacity='many'"),
        (msgpack.packb({"name": "x"}), b"unknown option 'name'"),
        (msgpack.packb({5: "x"}), b"keys"),
        (msgpack.packb([1]), b"not one msgpack map"),
        (b"\xc1", b"not one msgpack map"),
        (b"\x91" * 5000, b"not one msgpack map"),
        (msgpack.packb({"dead_letter": "new"}), b"its own dead-letter queue"),
        (msgpack.packb({"dead_letter": "a b"}), b"'a b'"),
    ],
)
def test_options_that_are_wrong_are_refused_and_named(
    peer: Peer, options: bytes, told: bytes
) -> None:
    peer.let_in(ALL)

    answer = peer.ask(Type.CREATE, name_of("new") + options)

    assert answer.status == Status.BAD_REQUEST
    assert told in answer.payload
    assert "new" not in peer.names()


@pytest.mark.parametrize("kind", [Type.DELETE, Type.PURGE, Type.STATS])
def test_bytes_that_a_type_does_not_take_are_refused(peer: Peer, kind: int) -> None:
    peer.let_in(ALL)

    assert peer.status(kind, name_of("shop") + b"x") == Status.BAD_REQUEST
    assert peer.status(Type.LIST, b"x") == Status.BAD_REQUEST
    assert "shop" in peer.names()


@pytest.mark.parametrize("kind", [Type.PEEK, Type.REDRIVE])
@pytest.mark.parametrize("rest", [b"", bytes(3), bytes(4), bytes(5)])
def test_a_limit_that_is_none_is_refused(peer: Peer, kind: int, rest: bytes) -> None:
    assert peer.let_in(ALL).status(kind, name_of("shop") + rest) == Status.BAD_REQUEST


def test_a_peek_shows_copies_and_is_bounded(peer: Peer, broker: shmq.Broker) -> None:
    queue = broker.create_queue("large", dead_letter=None)
    for _ in range(5):
        queue.put(bytes(400_000))
    peer.let_in(ALL)

    asked = peer.post(Type.PEEK, name_of("large") + struct.pack("!I", FOREVER))
    frames: list[Frame] = [peer.receive()]
    while frames[-1].status:
        frames.append(peer.receive())

    assert {each.id for each in frames} == {asked}
    assert len(frames) == 3
    assert (queue.qsize(), queue.stats().in_flight) == (5, 0)
    assert peer.status(Type.PEEK, name_of("shop") + _ONE) == Status.QUEUE_EMPTY


@pytest.mark.prove
def test_each_set_of_rights_to_an_exchange_allows_exactly_what_it_says(
    server: Server, broker: shmq.Broker
) -> None:
    found, expected = {}, {}
    for token, held in TOKENS.items():
        for what, (kind, rest, right) in EXCHANGE_REQUESTS.items():
            exchanges(broker)
            with Peer(server) as peer:
                answer = peer.let_in(token).ask(kind, name_of("shop") + rest)
            key = ("+".join(held), what)
            found[key] = answer.status
            allowed = right in held if right else bool(held)
            refusal = Status.FORBIDDEN if held else Status.NO_QUEUE
            expected[key] = Status.OK if allowed else refusal
    assert found == expected


def test_an_exchange_that_a_token_may_not_know_is_as_if_it_were_not_there(
    server: Server, broker: shmq.Broker
) -> None:
    exchanges(broker)
    for token in [*TOKENS, NOTHING]:
        for kind, rest, _ in EXCHANGE_REQUESTS.values():
            answers = set()
            for name in ("secret", "absent"):
                with Peer(server) as peer:
                    answer = peer.let_in(token).ask(kind, name_of(name) + rest)
                answers.add((answer.status, answer.payload.replace(name.encode(), b"NAME")))
            assert len(answers) == 1, answers


def test_a_publisher_needs_no_right_to_the_queues_and_learns_of_none(
    server: Server, broker: shmq.Broker
) -> None:
    exchanges(broker)
    producer = next(token for token, held in TOKENS.items() if held == ("produce",))
    kind, rest, _ = EXCHANGE_REQUESTS["ROUTE"]
    asked = name_of("shop") + EXCHANGE_REQUESTS["bindings"][1]
    with Peer(server) as peer:
        peer.let_in(producer).ok(kind, name_of("shop") + rest)
        told = msgpack.unpackb(peer.ok(Type.EXCHANGE, asked))
        listed = msgpack.unpackb(peer.ok(Type.EXCHANGES, b"\x80"))

    assert [broker.queue(name).qsize() for name in ("shop", "secret")] == [1, 1]
    assert [binding[0] for binding in told["bindings"]] == ["shop"]
    assert [row["name"] for row in listed] == ["shop"]


@pytest.mark.prove
def test_binding_a_queue_needs_the_right_to_produce_to_it_and_to_administer_the_exchange(
    server: Server, broker: shmq.Broker
) -> None:
    exchanges(broker)
    broker.create_queue("shop.more", dead_letter=None)
    for token, held in TOKENS.items():
        found = {}
        for target in ("shop.more", "shop.absent", "secret", "absent"):
            asked = msgpack.packb({"action": "bind", "target": target})
            with Peer(server) as peer:
                answer = peer.let_in(token).ask(Type.EXCHANGE, name_of("shop") + asked)
            missing = answer.status == Status.OK and msgpack.unpackb(answer.payload).get("missing")
            found[target] = "missing" if missing else Status(answer.status).name
        if "admin" not in held:
            expected = ["FORBIDDEN" if held else "NO_QUEUE"] * 4
        elif "produce" in held:
            expected = ["OK", "missing", "missing", "missing"]
        else:
            expected = ["FORBIDDEN", "FORBIDDEN", "missing", "missing"]
        assert list(found.values()) == expected, held


# ---- names of long texts ----


@pytest.mark.parametrize("text", ["shop/订单处理" * 15, "shop" * 25], ids=len)
def test_a_token_without_rights_to_the_table_of_texts_uses_a_queue_by_its_long_name(
    server: Server, text: str
) -> None:
    token = next(token for token, held in TOKENS.items() if held == RIGHTS)
    name = shmq.escape_name(text)
    with shmq.connect(server.url, token=token) as remote:
        options = with_dead_letter(name, {})
        queue = remote.create_queue(name, **options)
        queue.put(b"1")
        queue.get(timeout=0).reject()
        assert queue.redrive() == 1
        with remote.ensure_queue(name, **options).get(timeout=0) as message:
            assert message.body == b"1"
        dead = shmq.escape_name(f"{text}.dlq")
        assert remote.queue(dead).qsize() == 0
        assert {name, dead} <= set(remote.queue_names())
        assert remote.list_tables() == []
        remote.create_exchange(name).bind(name)
        assert [one.target for one in remote.exchange(name).bindings()] == [name]
        stream = remote.create_stream(name, 1, allow_same_name=True, ring_bytes=65536)
        stream.append(b"1")
        remote.delete_stream(name)


def test_the_right_to_a_long_name_is_that_to_its_own_dead_letters_and_to_no_others(
    served: Serve,
) -> None:
    name = "q" * 98
    server = served(tokens={ALL: {"admin": [name]}})
    with shmq.connect(server.url, token=ALL) as remote:
        with pytest.raises(shmq.Forbidden):
            remote.create_queue(name, dead_letter=shmq.escape_name("p" * 98 + ".dlq"))
        queue = remote.create_queue(name, **with_dead_letter(name, {}))
        assert queue.options.dead_letter == shmq.escape_name(f"{name}.dlq")


@pytest.mark.parametrize("token", [ADMIN, ALL])
def test_only_names_that_a_token_may_see_are_suggested(
    server: Server, broker: shmq.Broker, token: str
) -> None:
    broker.create_queue("shop-secret", dead_letter=None)
    broker.create_queue("hshop-secrets", dead_letter=None)
    with shmq.connect(server.url, token=token) as remote:
        with pytest.raises(shmq.NoSuchQueue, match=r"did you mean 'shop-secret'\?"):
            remote.queue("shop-secrets" if token == ADMIN else "shop-secre")
        with pytest.raises(shmq.NoSuchQueue) as error:
            remote.queue("secre")
    assert ("did you mean 'secret'?" in str(error.value)) is (token == ALL)


def test_no_reply_of_the_server_suggests_a_name(server: Server) -> None:
    with Peer(server) as peer:
        peer.let_in(ALL)
        for kind in (Type.STATS, Type.DELETE, Type.PURGE):
            reply = peer.ask(kind, name_of("secre"))
            assert b"did you mean" not in reply.payload
