"""A session with every operation of the wire protocol, and its answers in comparable form.

    python -m tests.prove.compat.session HOST:PORT >session.json

It leaves out what differs between two runs with the same server: receipts, identities and times. Of
a map it keeps the keys and the values that are not times; of an error, whether it has a text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from typing import Any

import msgpack

from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.entries import append, entry, fetch, parts
from tests.system.wire.frames import OPERATIONS, Frame, T

#: Keys of maps whose values differ from run to run.
_VOLATILE = {"at", "age", "created", "identity", "namespace", "pid", "server", "version", "message"}

#: Operations that are requested separately, or that do not have a single answer.
_BY_HAND = {T.HELLO, T.HOLD, T.HANDED, T.SUBSCRIBE}

QUEUE, STREAM, EXCHANGE = "q", "s", "e"


def run(address: Address, names: Collection[str] | None = None) -> list[list[Any]]:
    """Each answer of the session: the request, type, status and payload.

    With ``names`` it requests only the operations that a recording has.
    """
    kinds = [kind for kind in OPERATIONS if names is None or _name(kind) in names]
    with Wire(address) as wire:
        return [[name, *_shown(name, answer)] for name, answer in _session(wire, kinds)]


def holds(now: Any, recorded: Any) -> bool:
    """Whether ``now`` is ``recorded``, perhaps with more keys in a map and more features."""
    if isinstance(recorded, dict):
        return isinstance(now, dict) and all(
            key in now
            and (set(each) <= set(now[key]) if key == "features" else holds(now[key], each))
            for key, each in recorded.items()
        )
    if isinstance(recorded, list):
        return len(now) == len(recorded) and all(map(holds, now, recorded))
    return bool(now == recorded)


def _name(kind: T) -> str:
    return f"any {kind.name}"


def _session(wire: Wire, kinds: list[T]) -> Iterator[tuple[str, Frame]]:
    hello = frames.pack({"client": "a test"})
    yield "HELLO", wire.ask(T.HELLO, hello)
    yield from _queues(wire)
    yield from _streams(wire)
    for kind in kinds:
        if kind not in _BY_HAND:
            for answer in _asked(wire, kind):
                yield _name(kind), answer
    yield "an unused type", wire.ask(frames.UNUSED)


def _asked(wire: Wire, kind: T) -> list[Frame]:
    """The answers to the well-formed request of that type, on a queue with one message."""
    wire.ask(T.CREATE, frames.create(QUEUE, dead_letter=None, max_deliveries=None))
    wire.ask(T.PURGE, frames.name(QUEUE))
    wire.put(QUEUE, b"there")
    wire.ask(T.STREAM_CREATE, frames.name(STREAM) + frames.pack({"partitions": 2}))
    about = {"stream": STREAM, "exchange": EXCHANGE}.get(OPERATIONS[kind].about, QUEUE)
    return _all(wire, kind, frames.request(kind, about))


def _all(wire: Wire, kind: int, payload: bytes) -> list[Frame]:
    answers = [wire.ask(kind, payload)]
    while answers[-1].kind == T.DELIVER and answers[-1].status == frames.MORE:
        answers.append(wire.receive())
    return answers


def _queues(wire: Wire) -> Iterator[tuple[str, Frame]]:
    options = {"capacity": 64, "priorities": 4, "dedupe_window": 60, "ttl": None}
    yield "create", wire.ask(T.CREATE, frames.create("jobs", **options))
    yield "create it again", wire.ask(T.CREATE, frames.create("jobs", **options))
    yield "create another", wire.ask(T.CREATE, frames.create("jobs", capacity=65))
    yield "a bad name", wire.ask(T.CREATE, frames.create("a/b"))
    properties = {"pri": 3, "hdr": {"k": "v"}, "cod": 1}
    for body, given in (
        (b"one", None),
        (b"two", properties),
        (b"", {"dedupe": "x"}),
        (b"", {"dedupe": "x"}),
    ):
        yield "put", wire.ask(T.PRODUCE, frames.produce("jobs", body, given))
    batch = frames.batch("jobs", frames.item(b"a"), frames.item(b"b", {"pri": 0}))
    yield "put many", wire.ask(T.PRODUCE_BATCH, batch)
    yield "a body too large", wire.ask(T.PRODUCE, frames.produce("jobs", bytes(5 << 20)))
    for answer in _all(wire, T.PEEK, frames.name("jobs") + frames.u32(3)):
        yield "peek", answer
    taken = []
    for _ in range(5):
        answer = wire.ask(T.CONSUME, frames.consume("jobs"))
        yield "get", answer
        taken.append(frames.read_delivery(answer.payload).receipt)
    yield "get of an empty queue", wire.ask(T.CONSUME, frames.consume("jobs"))
    yield "extend", wire.ask(T.EXTEND, frames.timed("jobs", 1000, *taken[:2]))
    yield "ack", wire.ask(T.ACK, frames.receipts("jobs", taken[0]))
    yield "ack again", wire.ask(T.ACK, frames.receipts("jobs", taken[0]))
    yield "nack", wire.ask(T.NACK, frames.timed("jobs", 0, taken[1]))
    yield "reject", wire.ask(T.REJECT, frames.receipts("jobs", taken[2]))
    yield "return", wire.ask(T.RETURN, frames.receipts("jobs", taken[3]))
    yield "get again", wire.ask(T.CONSUME, frames.consume("jobs"))
    subscription = wire.post(T.SUBSCRIBE, frames.subscribe("jobs", 1))
    yield "subscribe", wire.receive()
    yield "what is sent by itself", wire.receive()
    yield "unsubscribe", wire.ask(T.UNSUBSCRIBE, frames.u32(subscription))
    yield "purge", wire.ask(T.PURGE, frames.name("jobs"))
    yield "redrive", wire.ask(T.REDRIVE, frames.name("jobs") + frames.u32(10))
    yield "delete", wire.ask(T.DELETE, frames.name("jobs"))
    yield "of no queue", wire.ask(T.CONSUME, frames.consume("jobs"))


def _streams(wire: Wire) -> Iterator[tuple[str, Frame]]:
    made = frames.name(STREAM) + frames.pack({"partitions": 2})
    yield "make a stream", wire.ask(T.STREAM_CREATE, made)
    yield "its description", wire.ask(T.STREAM_INFO, frames.name(STREAM))
    some = entry(b"a"), entry(b"b", b"key"), entry(b"c", codec=1)
    yield "append", wire.ask(T.APPEND, append(STREAM, *some))
    yield "read", wire.ask(T.FETCH, fetch(STREAM, (0, 0), (1, 0)))
    bind = frames.name(EXCHANGE) + frames.pack({"action": "create", "kind": "topic"})
    yield "make an exchange", wire.ask(T.EXCHANGE, bind)


def _shown(name: str, answer: Frame) -> list[Any]:
    kind = T(answer.kind)
    if kind == T.DELIVER:
        found = frames.read_delivery(answer.payload)
        shown: Any = [found.sequence, found.deliveries, found.priority, found.flags]
        shown += [_plain(found.properties), found.body.hex()]
    elif name == "read":
        shown = [_plain([*part[:3], *part.entries]) for part in parts(answer.payload)]
    elif name == "append":
        shown = answer.payload[:12].hex()  # the first offset and the count; a time follows
    elif name in {"any COLUMNS", "any LEASE_RUN"}:  # numbers, then times or receipts
        shown = [len(answer.payload), answer.payload[:8].hex(), answer.payload[-4:].hex()]
    elif answer.status:
        shown = "refused" if answer.payload else ""
    else:
        shown = _of_reply(answer.payload)
    return [kind.name, answer.status, shown]


def _of_reply(payload: bytes) -> Any:
    """The payload of an answer: the plain values of a map or list, other bytes as they are."""
    try:
        value = msgpack.unpackb(payload, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return payload.hex()
    return _plain(value) if isinstance(value, dict | list) else payload.hex()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            str(key): type(each).__name__ if key in _VOLATILE else _plain(each)
            for key, each in sorted(value.items(), key=lambda item: str(item[0]))
        }
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > 1 << 32):
        return type(value).__name__
    return value


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    json.dump(run((host, int(port))), sys.stdout, indent=1)
