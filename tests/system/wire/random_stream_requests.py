"""Random requests about streams, groups, exchanges, schemas and tables.

What no guess would hit is written as a number that stands for it, until the server has said it.
"""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.strategies as st

from tests.system.wire import entries, frames
from tests.system.wire.client import Wire
from tests.system.wire.frames import T
from tests.system.wire.random_queue_requests import (
    QUEUES,
    bodies,
    mostly,
    names,
    numbers,
    properties,
    short,
    values,
)

STREAMS = ("flow", "held")
EXCHANGE = "x"
TABLE = "t"

#: Stand for the identity of the first stream, and the members of its groups.
_IDENTITY, _MEMBER, _SHARER = 0x1DE47171_1DE47171, 0x3E3BE43E_3E3BE43E, 0x54A4E454_A4E454A4
#: Stands for the identity of the table.
_TABLE = 0x7AB1E7AB_7AB1E7AB
_MOST = (1 << 64) - 1

# --- what is there ---------------------------------------------------------------------


def make(wire: Wire) -> None:
    """Make the streams and the exchange as they were, but for their identities."""
    for each in frames.unpack(wire.ok(T.STREAM_LIST)):
        wire.ok(T.STREAM_DELETE, frames.name(each["name"]))
    for each in frames.unpack(wire.ok(T.LIST, frames.pack({"tables": True}))):
        wire.ok(T.TABLE, exchange(each, action="drop"))
    wire.ok(T.TABLE, exchange(TABLE, action="make"))
    for each in frames.unpack(wire.ok(T.EXCHANGES, frames.pack({}))):
        wire.ok(T.EXCHANGE, exchange(each["name"], action="delete"))
    some = [entries.entry(b"%d" % n, b"k") for n in range(3)]
    for name, overflow in zip(STREAMS, ("drop-oldest", "block"), strict=True):
        options = {"partitions": 2, "ring_bytes": 1 << 16, "overflow": overflow}
        wire.ok(T.STREAM_CREATE, frames.create(name, **options))
        wire.ok(T.APPEND, entries.append(name, *some))
    wire.ok(T.EXCHANGE, exchange(EXCHANGE, action="create", kind="topic"))
    for target, kind in ((QUEUES[0], "queue"), (STREAMS[0], "stream")):
        bound = {"action": "bind", "target": target, "kind": kind, "key": "a.*"}
        wire.ok(T.EXCHANGE, exchange(EXCHANGE, **bound))


def known(wire: Wire, sent: bytes) -> bytes:
    """With what the server has said put where it was left open: it joins both groups."""
    if frames.u64(_TABLE) in sent:
        info = frames.unpack(wire.ok(T.TABLE, exchange(TABLE, action="look")))
        sent = sent.replace(frames.u64(_TABLE), frames.u64(info["identity"]))
    if not any(frames.u64(number) in sent for number in (_IDENTITY, _MEMBER, _SHARER)):
        return sent
    info = frames.unpack(wire.ok(T.STREAM_INFO, frames.name(STREAMS[0])))
    sent = sent.replace(frames.u64(_IDENTITY), frames.u64(info["identity"]))
    for number, group, options in (
        (_MEMBER, "g", {}),
        (_SHARER, "s", {"shared": True, "dead_letter": QUEUES[1]}),
    ):
        if frames.u64(number) in sent:
            asked = frames.name(STREAMS[0]) + frames.name(group) + frames.u64(0, 0)
            joined = frames.unpack(wire.ok(T.JOIN, asked + frames.pack(options)))
            sent = sent.replace(frames.u64(number), frames.u64(joined["member"]))
    return sent


def exchange(name: str, **asked: Any) -> bytes:
    return frames.name(name) + frames.pack(asked)


# --- numbers and names -----------------------------------------------------------------

flow, held = (st.just(frames.name(name)) for name in STREAMS)
stream_names = mostly(mostly(flow, held), names)
new_names = mostly(st.sampled_from(["new", *STREAMS]).map(frames.name), names)
exchange_names = mostly(st.just(frames.name(EXCHANGE)), st.just(frames.name("new")) | names)
identities = mostly(st.sampled_from([0, _IDENTITY]), st.sampled_from([5, _MOST]))
offsets = mostly(st.integers(0, 4), st.sampled_from([1 << 40, (1 << 63) - 1, _MOST]))
partitions = mostly(st.integers(0, 1), numbers)
few = mostly(st.integers(1, 5), numbers)
places = st.lists(st.tuples(partitions, offsets), min_size=1, max_size=3).map(
    lambda some: b"".join(struct.pack(">IQ", *each) for each in some)
)
receipts = st.lists(st.integers(0, _MOST) | st.integers(0, 8), max_size=4).map(
    lambda some: frames.u64(*some)
)
Keys = dict[str, st.SearchStrategy[Any]]


def some_of(keys: Keys, most: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    """A map of a few of these keys: of all at once hardly any is good."""
    return st.lists(st.sampled_from(sorted(keys)), max_size=most, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({key: keys[key] for key in chosen})
    )


def packed(asked: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    return mostly(asked.map(frames.pack), short)


def counted(some: bytes) -> bytes:
    return frames.u32(len(some) // 12) + some


def joined(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(b"".join)


# --- streams ---------------------------------------------------------------------------

stream_keys: Keys = {
    "partitions": st.sampled_from([1, 2, 0, 1025, "2", 1.5]) | values,
    "ring_bytes": st.sampled_from([1 << 16, 1 << 20, 1, 1 << 60, -1]) | values,
    "max_record_bytes": st.sampled_from([1, 1000, 1 << 30]) | values,
    "retention_bytes": values,
    "retention_seconds": st.sampled_from([None, 1, 1.5]) | values,
    "segment_bytes": values,
    "overflow": st.sampled_from(["block", "drop-oldest"]) | values,
    "durability": st.sampled_from(["memory", "disk"]) | values,
    "confirm": st.sampled_from(["memory", "disk"]) | values,
    "x": values,
}
records = st.builds(
    entries.entry,
    bodies,
    st.none() | short,
    mostly(st.just(b""), st.dictionaries(st.text(max_size=3), values, max_size=2).map(frames.pack)),
    codec=st.sampled_from([0, 0, 1, 9]),
)
blocks = mostly(st.lists(records, min_size=1, max_size=3), st.lists(short, max_size=2))


@st.composite
def appends(draw: st.DrawFn) -> bytes:
    """What an APPEND has behind the name."""
    some = draw(blocks)
    flags = draw(mostly(st.sampled_from([0, 0, 4, 0x0C]), st.sampled_from([2, 8, 0x80])))
    count = draw(mostly(st.just(len(some)), st.sampled_from([0, len(some) + 1, 0xFFFFFFFF])))
    how = draw(mostly(st.just(0), st.integers(1, 3)))
    raw = draw(mostly(st.just(0), numbers))
    head = struct.pack(">QBIBII", draw(identities), flags, draw(partitions), how, count, raw)
    tail = frames.u64(draw(offsets), draw(offsets)) if flags & 4 else b""
    return head + tail + b"".join(some)


wheres = mostly(
    st.sampled_from([b"", b"", b"key = 'k'", b"offset < 2 or key is null"]),
    st.sampled_from([b"priority = 1", b"(", b"\xff"]) | short,
)
#: From how many on.
fetches = joined(
    few.map(frames.u32),
    mostly(st.integers(1, 1 << 20), numbers).map(frames.u32),
    st.sampled_from([0, 0, 1, 50, 0xFFFFFFFF]).map(frames.u32),
    places.map(counted),
    wheres,
)

# --- groups ----------------------------------------------------------------------------

#: A group, and a member of it.
members = mostly(
    st.sampled_from([("g", _MEMBER), ("s", _SHARER)]),
    st.tuples(
        st.sampled_from(["g", "s", "new", "", "b d"]),
        st.sampled_from([_MEMBER, _SHARER, 0, 1, _MOST]),
    ),
)
seconds = st.sampled_from([1, 10.5, 0, 1e300, float("nan")]) | values
group_keys: Keys = {
    "member": st.sampled_from(["me", "", "m" * 500, "é\0"]) | values,
    "shared": st.booleans() | values,
    "start": st.sampled_from(["earliest", "latest"]) | values,
    "assignment": st.sampled_from(["range", "round-robin", "sticky", "shared"]) | values,
    "session_timeout": seconds,
    "lease": seconds,
    "max_deliveries": st.sampled_from([None, 1, 0, 1 << 40]) | values,
    "dead_letter": st.sampled_from([None, *QUEUES, "absent", "bad name"]) | values,
    "held": st.sampled_from([1, 1 << 10, 0, 1 << 60]) | values,
    "x": values,
}
looks = st.builds(
    lambda asked, more: {**asked, **more},
    st.fixed_dictionaries(
        {
            "action": mostly(st.sampled_from(["list", "look", "look", "delete"]), values),
            "group": mostly(st.sampled_from(["g", "s", "new", ""]), values),
        },
        optional={"identity": identities | values, "create": st.booleans() | values},
    ),
    some_of(group_keys, 1),
)


def of_member(rest: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Mostly of the first stream, of which there are members."""
    return st.builds(
        lambda stream, identity, who, tail: (
            stream + frames.name(who[0]) + frames.u64(identity, who[1]) + tail
        ),
        mostly(flow, stream_names),
        identities,
        members,
        rest,
    )


# --- exchanges and schemas -------------------------------------------------------------

targets = st.one_of(
    st.tuples(st.just("queue"), st.sampled_from([*QUEUES, "absent"])),
    st.tuples(st.just("stream"), st.sampled_from(STREAMS)),
    st.tuples(st.just("exchange"), st.sampled_from([EXCHANGE, "new"])),
    st.tuples(values, values),
).map(lambda pair: dict(zip(("kind", "target"), pair, strict=True)))
exchange_keys: Keys = {
    "kind": st.sampled_from(["direct", "topic", "fanout", "headers", 1]) | values,
    "alternate": st.sampled_from([None, EXCHANGE, "new"]) | values,
    "key": st.sampled_from(["", "a.*", "a.#.*", "k" * 256]) | values,
    "headers": st.dictionaries(st.text(max_size=2), values, max_size=2) | values,
    "match": st.sampled_from(["all", "any"]) | values,
}
numbered = st.dictionaries(
    st.sampled_from([*QUEUES, f"stream/{STREAMS[0]}", "absent"]),
    mostly(st.integers(0, 3), values),
    max_size=2,
)


@st.composite
def exchanges(draw: st.DrawFn) -> dict[str, Any]:
    """What an EXCHANGE asks for."""
    actions = ["create", "look", "delete", "bind", "bind", "unbind", "bindings", "stats", "synced"]
    action = draw(mostly(st.sampled_from(actions), values))
    asked = {"action": action}
    if action in ("bind", "unbind"):
        asked |= draw(targets)
    if action == "synced":
        asked |= {"queues": draw(mostly(numbered, values))}
    return asked | draw(some_of(exchange_keys))


routes = st.fixed_dictionaries(
    {"key": mostly(st.just("a.b"), st.sampled_from(["", "k" * 256]) | values)},
    optional={
        "confirm": mostly(st.sampled_from([None, "memory", "disk"]), values),
        "only": mostly(numbered, values),
    },
)
types = st.recursive(
    some_of(
        {
            "type": st.sampled_from(["object", "integer", "string", ["null", "string"], "x"]),
            "enum": st.lists(values, max_size=2) | values,
            "const": values,
            "required": st.just(["a"]) | values,
            "pattern": st.sampled_from(["a+", "(", 1]),
            "minimum": st.integers(-(2**63), 2**64 - 1) | values,
            "$ref": st.sampled_from(["#", "#/$defs/a", "#/none", "http://x/y", 1]),
            "additionalProperties": st.booleans() | values,
        }
    ),
    lambda inner: some_of(
        {
            "type": st.sampled_from(["object", "array"]),
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "$defs": st.dictionaries(st.just("a"), inner, max_size=1),
        }
    ),
    max_leaves=4,
)
rules = st.sampled_from(["none", "backward", "forward", "full", None])
schemas = st.fixed_dictionaries(
    {
        "action": mostly(st.sampled_from(["get", "set", "set", "check"]), values),
        "schema": mostly(types, values),
    },
    optional={"compatibility": mostly(rules, values)},
)


# --- tables ----------------------------------------------------------------------------

keys = mostly(st.sampled_from(["a", "b", "n"]), st.sampled_from(["", "k" * 513]) | values)
entry = st.tuples(mostly(st.integers(0, 3), values), mostly(st.binary(max_size=4), values))
table_keys: Keys = {
    "durability": st.sampled_from(["memory", "disk"]) | values,
    "max_bytes": st.sampled_from([None, 1 << 20, 5]) | values,
    "keys": st.lists(keys, max_size=3) | values,
    "key": keys,
    "entries": st.dictionaries(st.sampled_from(["a", "b", ""]), entry, max_size=2) | values,
    "ttl": st.sampled_from([None, 60_000, 0, -1]) | values,
    "by": st.integers(-5, 5) | values,
    "least": st.integers(-5, 5) | values,
    "sum_with": st.lists(keys, max_size=2) | values,
    "create": st.booleans() | values,
    "renew": st.booleans() | values,
    "prefix": st.sampled_from(["", "a"]) | values,
    "limit": st.integers(0, 5) | values,
}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """What a TABLE asks for."""
    actions = ["look", "make", "drop", "get", "keys", "count", "set", "set", "add", "delete"]
    action = draw(mostly(st.sampled_from([*actions, "clear", "expire", "increment"]), values))
    identity = draw(mostly(st.just(_TABLE), st.sampled_from([0, _MOST]) | values))
    return {"action": action, "identity": identity} | draw(some_of(table_keys, 4))


table_names = mostly(st.just(frames.name(TABLE)), st.just(frames.name("new")) | names)


def piece(some: bytes) -> bytes:
    return frames.u32(len(some)) + some


# --- all of them -----------------------------------------------------------------------

#: Whole payloads, by type.
PAYLOADS: dict[int, st.SearchStrategy[bytes]] = {
    T.EXCHANGE: joined(exchange_names, packed(exchanges())),
    T.ROUTE: joined(
        exchange_names,
        packed(routes).map(piece),
        mostly(st.just(b""), properties).map(piece),
        st.lists(bodies.map(piece), max_size=2).map(b"".join),
    ),
    T.TABLE: joined(table_names, packed(tables())),
    T.HOLD: joined(
        mostly(held, stream_names),
        mostly(st.just(0), identities).map(frames.u64),
        numbers.map(frames.u32),
        mostly(places, st.just(b"")).map(counted),
        st.just(b"") | fetches,
    ),
    T.SCHEMA: joined(mostly(st.sampled_from(QUEUES).map(frames.name), new_names), packed(schemas)),
    T.STREAM_CREATE: joined(new_names, mostly(packed(some_of(stream_keys)), st.just(b""))),
    T.STREAM_DELETE: stream_names,
    T.STREAM_INFO: joined(
        stream_names, mostly(st.just(b""), packed(some_of({"producer": offsets | values})))
    ),
    T.APPEND: joined(stream_names, appends()),
    T.FETCH: joined(stream_names, identities.map(frames.u64), fetches),
    T.OFFSET_AT: joined(
        stream_names,
        identities.map(frames.u64),
        partitions.map(frames.u32),
        offsets.map(frames.u64),
    ),
    T.SEATS: of_member(
        joined(mostly(st.sampled_from([b"\0", b"\1"]), st.sampled_from([b"\2", b""])), places)
    ),
    T.JOIN: of_member(packed(some_of(group_keys))),
    T.HEARTBEAT: of_member(mostly(offsets.map(frames.u64), short)),
    T.COMMIT: of_member(places),
    T.LEAVE: of_member(st.just(b"")),
    T.SHARE_TAKE: of_member(
        joined(few.map(frames.u32), mostly(st.sampled_from([b"\0", b"\1"]), short))
    ),
    T.SHARE_SETTLE: of_member(
        joined(
            mostly(st.integers(1, 6), st.integers(0, 255)).map(lambda action: bytes([action])),
            offsets.map(frames.u64),
            receipts,
        )
    ),
    T.STREAM_GROUPS: joined(stream_names, packed(looks)),
    T.STREAM_ALTER: joined(stream_names, packed(some_of(stream_keys))),
    T.REPARTITION: joined(
        stream_names, identities.map(frames.u64), mostly(st.integers(3, 5), numbers).map(frames.u32)
    ),
}
