"""Any bytes, split anywhere, give valid replies, or one fatal status and a close.

And no queue is changed by a request that was refused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import shmq
from tests.processes.tools import eventually
from tests.serving import Server
from tests.wire import frames
from tests.wire.client import Address, Wire
from tests.wire.conftest import Serve
from tests.wire.frames import Frame, S, T, frame

QUEUES = ("one", "two", "small")

#: Types whose id 0 is answered by nothing.
SILENT = {T.PRODUCE, T.PRODUCE_BATCH, T.ACK, T.NACK, T.REJECT, T.EXTEND}

# --- what is sent ----------------------------------------------------------------------

short = st.binary(max_size=40)
numbers = st.one_of(
    st.integers(0, 5), st.sampled_from([0xFF, 1 << 16, 1 << 31, 0xFFFFFFFF]), st.integers(0, 2**32)
).map(lambda n: min(n, 0xFFFFFFFF))
bytes_ = st.one_of(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 0x80, 0xFF]), st.integers(0, 255))
names = st.one_of(
    st.sampled_from(QUEUES),
    st.sampled_from(["absent", "", "n" * 100, "n" * 101, "bad name"]),
    short,
).map(frames.name)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | short,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(
    ["pri", "delay", "ttl", "group", "dedupe", "headers", "codec", "reply_to", "corr", "dead", "x"]
)
good_values: dict[str, st.SearchStrategy[Any]] = {
    "pri": st.integers(0, 2),
    "delay": st.just(0),
    "ttl": st.integers(100_000, 10**9),
    "group": st.sampled_from(["a", "b"]),
    "dedupe": st.sampled_from(["1", "2", "3"]),
    "headers": st.dictionaries(st.text(max_size=3), values, max_size=2),
}
properties = st.one_of(
    st.fixed_dictionaries({}, optional=good_values).map(frames.pack),
    st.dictionaries(keys, values, max_size=4).map(frames.pack),
    short,
)
bodies = st.one_of(short, st.integers(0, 9000).map(bytes))


@st.composite
def messages(draw: st.DrawFn, body: bytes) -> bytes:
    given = draw(st.none() | properties)
    flags = draw(st.sampled_from([0, 0, 0, 0, 0, 2, 4, 0x80]))
    return frames.message(body, given, flags)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    items = []
    for _ in range(draw(st.integers(0, 4))):
        body = draw(bodies)
        length = draw(st.sampled_from([len(body)] * 8 + [len(body) + 1, 0, 0xFFFFFFFF]))
        items.append(draw(messages(frames.u32(length) + body)))
    count = draw(st.just(len(items)) | numbers)
    flags = draw(st.sampled_from([0, 0, 0, 2, 1, 0x80]))
    return bytes([flags]) + frames.u32(count) + b"".join(items)


receipts = st.lists(st.integers(0, 2**64 - 1) | st.integers(1, 1 << 26), max_size=4).map(
    lambda some: frames.u64(*some)
)
options = st.one_of(
    st.just(b""),
    st.dictionaries(
        st.sampled_from(["capacity", "ttl", "priorities", "x"]), values, max_size=2
    ).map(frames.pack),
    short,
)
maps = st.one_of(
    st.fixed_dictionaries(
        {"publisher": st.just("p"), "batch": st.integers(0, 2)},
        optional={
            "part": st.just("one"),
            "parts": st.lists(st.just("one"), max_size=2),
            "staging_bytes": st.integers(0, 1 << 20),
            "action": st.sampled_from(["sealed", "sweep", "discard", "x"]),
        },
    ).map(frames.pack),
    short,
)
exchange_maps = st.one_of(
    st.fixed_dictionaries(
        {"action": st.sampled_from(["look", "delete", "bind", "unbind", "bindings", "synced"])},
        optional={
            "target": st.sampled_from(["q", "x"]),
            "kind": st.sampled_from(["queue", "topic", 1]),
            "key": st.sampled_from(["", "a.*"]) | values,
            "headers": values,
            "only": st.dictionaries(st.text(max_size=2), values, max_size=2),
            "queues": st.dictionaries(st.text(max_size=2), values, max_size=2),
        },
    ).map(frames.pack),
    short,
)
TAILS: dict[int, st.SearchStrategy[bytes]] = {
    T.CREATE: options,
    T.DELETE: st.just(b""),
    T.PURGE: st.just(b""),
    T.STATS: st.just(b""),
    T.PRODUCE: bodies.flatmap(messages),
    T.PRODUCE_BATCH: batches(),
    T.CONSUME: st.builds(lambda n, f: frames.u32(n, 0) + bytes([f]), numbers, bytes_),
    T.SUBSCRIBE: st.builds(lambda n, f: frames.u32(n) + bytes([f]), numbers, bytes_),
    T.ACK: receipts,
    T.REJECT: receipts,
    T.NACK: st.builds(lambda n, r: frames.u32(n) + r, numbers, receipts),
    T.EXTEND: st.builds(lambda n, r: frames.u32(n) + r, numbers, receipts),
    0x54: exchange_maps,
    0x55: st.builds(
        lambda m, p, b: frames.u32(len(m)) + m + frames.u32(len(p)) + p + b,
        exchange_maps,
        short,
        bodies,
    ),
    0x58: st.builds(
        lambda m, n, b: frames.u32(len(m)) + m + frames.u32(n) + b, maps, numbers, bodies
    ),
    0x59: maps,
    0x5A: maps,
    0x5C: maps,
    0x5D: receipts,
    0x5E: numbers.map(frames.u32),
    0x5F: numbers.map(frames.u32),
}


@st.composite
def payloads(draw: st.DrawFn, kind: int) -> bytes:
    if kind not in TAILS:
        return draw(short)
    payload = draw(names) + draw(TAILS[kind])
    spoiled = draw(st.integers(0, 9))
    if spoiled == 0:
        return payload[: draw(st.integers(0, len(payload)))]
    if spoiled == 1:
        return payload + draw(short)
    return payload


kinds = st.one_of(st.sampled_from(sorted(TAILS)), st.sampled_from(sorted(T)), st.integers(0, 255))


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """A type, an id and a payload."""
    kind = draw(kinds)
    number = draw(st.sampled_from([0, 1, 2, 3, 0xFFFFFFFF]) | st.integers(1, 0xFFFFFFFF))
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
            wire.create(name, **options, **more)
            eventually(functools.partial(nothing_is_leased, wire, name), "leases go back")
            for delivery in wire.take_all(name):
                wire.settle(name, delivery.receipt)
            wire.ok(T.PURGE, frames.name(name))
            wire.put(name, b"always there", {"headers": {"of": name}})


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
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                wire.send(piece)
            wire.finish()
        check_answers(wire.rest())


#: What of the statistics is about the messages that are there, and what was done to them.
COUNTED = (
    *("depth", "delayed", "in_flight", "dying", "put", "acked", "nacked", "expired"),
    *("dead_lettered", "dropped", "redelivered", "arena_used"),
)


def state(broker: shmq.Broker) -> object:
    """All queues with what is in them."""
    found: dict[str, object] = {}
    for summary in broker.list_queues():
        with broker.queue(summary.name) as queue:
            stats = queue.stats()
            waiting = [(each.sequence, bytes(each.view)) for each in queue.peek(1000)]
            found[summary.name] = ([getattr(stats, key) for key in COUNTED], waiting)
    return found


@hypothesis.given(request=requests())
@hypothesis.settings(max_examples=500)
def test_no_queue_is_changed_by_a_request_that_was_refused(
    server: Server, request: tuple[int, int, bytes]
) -> None:
    kind, number, payload = request
    refill(server.address)
    with shmq.connect(server.namespace) as broker, Wire(server.address) as wire:
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
    """Whether it was refused as a whole: of a batch, that nothing was accepted."""
    (answer,) = answers[:1] or [Frame(T.REPLY, S.OK, 0, b"")]
    if answer.kind == T.DELIVER or answer.status == S.OK:
        return False
    return len(answer.payload) != 12 or answer.payload[:4] == bytes(4)
