"""Any bytes, split anywhere, give valid replies, or one fatal status and a close.

And nothing is changed by a request that was refused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator

import hypothesis
import hypothesis.strategies as st
import pytest

import shmq
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.wire import frames, random_stream_requests
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import NAMED, OPERATIONS, SILENT, Frame, S, T, frame
from tests.system.wire.random_queue_requests import QUEUES, TAILS, mostly, names, short
from tests.system.wire.random_stream_requests import PAYLOADS

pytestmark = pytest.mark.prove

# --- what is sent ----------------------------------------------------------------------


@st.composite
def payloads(draw: st.DrawFn, kind: int) -> bytes:
    if kind in TAILS:
        payload = draw(names) + draw(TAILS[kind])
    elif kind in PAYLOADS:
        payload = draw(PAYLOADS[kind])
    elif kind in OPERATIONS:
        payload = (draw(names) if kind in NAMED else b"") + OPERATIONS[T(kind)].rest
    else:
        return draw(short)
    spoiled = draw(st.integers(0, 9))
    if spoiled == 0:
        return payload[: draw(st.integers(0, len(payload)))]
    if spoiled == 1:
        return payload + draw(short)
    return payload


kinds = st.one_of(
    st.sampled_from(sorted(TAILS)),
    st.sampled_from(sorted(PAYLOADS)),
    st.sampled_from(sorted(T)),
    st.integers(0, 255),
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """A type, an id and a payload."""
    kind = draw(kinds)
    number = draw(mostly(st.integers(1, 0xFFFFFFFF), st.sampled_from([0, 1, 0xFFFFFFFF])))
    return kind, number, draw(payloads(kind))


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """What a connection sends, in pieces."""
    data = b""
    for _ in range(draw(st.integers(0, 6))):
        kind, number, payload = draw(requests())
        data += frame(kind, payload, number)
        if draw(st.integers(0, 19)) == 0:
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
    data += draw(st.just(b"") | short)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    ends = [0, *cuts, len(data)]
    return [data[first:last] for first, last in itertools.pairwise(ends)]


# --- what is held against it -----------------------------------------------------------


@pytest.fixture(scope="module")
def server(serve: Serve) -> Iterator[Server]:
    with serve(workers=1) as server:
        yield server


def nothing_is_leased(wire: Wire, name: str) -> bool:
    return wire.counts(name)[2] == 0


def refill(address: Address) -> None:
    """Make the queues as they were, but for the numbers given out."""
    options = {"dead_letter": None, "visibility_timeout": 3600, "dedupe_window": 3600}
    with Wire(address) as wire:
        for name in set(wire.names()) - set(QUEUES):
            wire.ok(T.DELETE, frames.name(name))
        for name in QUEUES:
            more = {"capacity": 3, "max_message_bytes": 5000} if name == "small" else {}
            made = frames.create(name, **options, **more)
            if wire.status(T.CREATE, made) != S.OK:  # deleted, and made again with other options
                wire.ok(T.DELETE, frames.name(name))
                wire.ok(T.CREATE, made)
            eventually(functools.partial(nothing_is_leased, wire, name), "leases go back")
            for delivery in wire.take_all(name):
                wire.settle(name, delivery.receipt)
            wire.ok(T.PURGE, frames.name(name))
            wire.put(name, b"always there", {"headers": {"of": name}})
        random_stream_requests.make(wire)


def check_answers(answers: list[Frame]) -> None:
    """Fail unless each is one that a server may send, and a fatal one is the last."""
    for at, answer in enumerate(answers):
        assert answer.kind in {T.REPLY, T.DELIVER}
        if answer.kind == T.DELIVER:
            frames.read_delivery(answer.payload)
            assert answer.status in {0, frames.MORE}
        else:
            status = S(answer.status)
            assert status not in {S.INTERNAL, S.UNAUTHORIZED, S.SHUTTING_DOWN}
            assert status < frames.FATAL or at == len(answers) - 1
            if status in {S.BAD_REQUEST, S.UNSUPPORTED, S.NO_QUEUE} and len(answer.payload) != 12:
                answer.payload.decode()


@hypothesis.given(pieces=streams())
@hypothesis.settings(max_examples=300)
def test_any_bytes_split_anywhere_give_valid_replies_or_one_fatal_status_and_a_close(
    server: Server, pieces: list[bytes]
) -> None:
    refill(server.address)
    with Wire(server.address) as wire:
        data = random_stream_requests.known(wire, b"".join(pieces))
        ends = [0, *itertools.accumulate(map(len, pieces))]
        with contextlib.suppress(ConnectionError):
            for first, last in itertools.pairwise(ends):
                wire.send(data[first:last])
            wire.finish()
        check_answers(wire.rest())


#: What of the statistics is about the messages that are there, and what was done to them.
COUNTED = (
    *("depth", "delayed", "in_flight", "dying", "put", "acked", "nacked", "expired"),
    *("dead_lettered", "dropped", "redelivered", "arena_used"),
)


def state(broker: shmq.Broker) -> object:
    """All queues with what is in them, and the streams, exchanges, schemas and tables."""
    found: dict[str, object] = {}
    for summary in broker.list_queues():
        with broker.queue(summary.name) as queue:
            stats = queue.stats()
            waiting = [(each.sequence, bytes(each.view)) for each in queue.peek(1000)]
            found[summary.name] = ([getattr(stats, key) for key in COUNTED], waiting)
        found[f"schemas of {summary.name}"] = broker.schemas(summary.name)
    for each in broker.list_streams():
        with broker.stream(each.name) as stream:
            found[f"stream {each.name}"] = (stream.offsets(), stream.groups())
    for exchange in broker.list_exchanges():
        found[f"exchange {exchange.name}"] = (exchange, broker.exchange(exchange.name).bindings())
    for name in broker.list_tables():
        with broker.table(name) as table:
            found[f"table {name}"] = (table.durability, table.get_many(table.keys()))
    return found


@hypothesis.given(request=requests())
@hypothesis.settings(max_examples=500)
def test_nothing_is_changed_by_a_request_that_was_refused(
    server: Server, request: tuple[int, int, bytes]
) -> None:
    kind, number, payload = request
    refill(server.address)
    with shmq.connect(server.namespace) as broker, Wire(server.address) as wire:
        payload = random_stream_requests.known(wire, payload)
        before = state(broker)

        wire.send(frame(kind, payload, number))
        # An id that a test of requests cannot draw by chance, and a silent one has none.
        wire.send(frame(T.PING, b"behind it", 0xBEEFBEEF))
        answers = []
        while (answer := wire.receive()).id != 0xBEEFBEEF or answer.payload != b"behind it":
            answers.append(answer)

        check_answers(answers)
        if number == 0 and kind in SILENT:
            assert answers == []
        elif refused(answers):
            assert state(broker) == before


def refused(answers: list[Frame]) -> bool:
    """Whether it was refused as a whole: of a batch or a COMMIT, that nothing was accepted."""
    (answer,) = answers[:1] or [Frame(T.REPLY, S.OK, 0, b"")]
    if answer.kind == T.DELIVER or answer.status in {S.OK, S.FENCED}:
        return False
    return len(answer.payload) != 12 or answer.payload[:4] == bytes(4)
