"""Random requests about queues: mostly such as a client sends, and sometimes anything."""

from __future__ import annotations

from typing import Any, TypeVar

import hypothesis.strategies as st

from tests.system.wire import frames
from tests.system.wire.frames import T

V = TypeVar("V")

QUEUES = ("one", "two", "small")


def mostly(good: st.SearchStrategy[V], other: st.SearchStrategy[V]) -> st.SearchStrategy[V]:
    """The one, and now and then the other: of requests made of many parts most are to be whole."""
    return st.sampled_from([good] * 11 + [other]).flatmap(lambda chosen: chosen)


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
#: What stands behind the name, by type; of the other types that of `frames.OPERATIONS` does.
TAILS: dict[int, st.SearchStrategy[bytes]] = {
    T.CREATE: options,
    T.PRODUCE: bodies.flatmap(messages),
    T.PRODUCE_BATCH: batches(),
    T.CONSUME: st.builds(lambda n, f: frames.u32(n, 0) + bytes([f]), numbers, bytes_),
    T.SUBSCRIBE: st.builds(lambda n, f: frames.u32(n) + bytes([f]), numbers, bytes_),
    T.ACK: receipts,
    T.REJECT: receipts,
    T.NACK: st.builds(lambda n, r: frames.u32(n) + r, numbers, receipts),
    T.EXTEND: st.builds(lambda n, r: frames.u32(n) + r, numbers, receipts),
    T.STAGE: st.builds(
        lambda m, n, b: frames.u32(len(m)) + m + frames.u32(n) + b, maps, numbers, bodies
    ),
    T.PUBLISH: maps,
    T.STAGED: maps,
    T.NAMED_LEASE: maps,
    T.RETURN: receipts | st.builds(lambda n, r: frames.u32(n) + r, numbers, receipts),
    T.PEEK: numbers.map(frames.u32),
    T.REDRIVE: numbers.map(frames.u32),
}
