"""The bytes of the wire protocol, written down a second time.

Nothing of shmq is used here or in client.py: what server and client of the project
misunderstood alike would show.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple

import msgpack

MAGIC = 0xDEADBEEF
MORE = 0x0100
FOREVER = 0xFFFFFFFF
FATAL = 0x8000

_HEADER = struct.Struct(">IIBBHI")
_DELIVERY = struct.Struct(">QQHBB")

HEADER_BYTES = _HEADER.size


class T(enum.IntEnum):
    """The types of frames."""

    HELLO = 0x01
    PING = 0x02
    CREATE = 0x10
    DELETE = 0x11
    PURGE = 0x12
    LIST = 0x13
    STATS = 0x14
    PRODUCE = 0x20
    PRODUCE_BATCH = 0x21
    CONSUME = 0x30
    SUBSCRIBE = 0x31
    UNSUBSCRIBE = 0x33
    DELIVER = 0x38
    ACK = 0x40
    NACK = 0x41
    REJECT = 0x42
    EXTEND = 0x43
    FAIL = 0x74
    COLUMNS = 0x50
    LEASE_RUN = 0x51
    LEASE_AGAIN = 0x52
    READ_RUN = 0x53
    EXCHANGE = 0x54
    ROUTE = 0x55
    EXCHANGES = 0x56
    HOLD = 0x57
    STAGE = 0x58
    PUBLISH = 0x59
    STAGED = 0x5A
    HANDED = 0x5B
    SCHEMA = 0x5C
    RETURN = 0x5D
    PEEK = 0x5E
    REDRIVE = 0x5F
    STREAM_CREATE = 0x60
    STREAM_DELETE = 0x61
    STREAM_LIST = 0x62
    STREAM_INFO = 0x63
    APPEND = 0x64
    FETCH = 0x65
    OFFSET_AT = 0x66
    SEATS = 0x67
    JOIN = 0x68
    HEARTBEAT = 0x69
    COMMIT = 0x6A
    LEAVE = 0x6B
    SHARE_TAKE = 0x6C
    SHARE_SETTLE = 0x6D
    STREAM_GROUPS = 0x6E
    REPARTITION = 0x6F
    LEASES = 0x70
    READY = 0x71
    TABLE = 0x72
    NAMED_LEASE = 0x73
    ALTER = 0x75
    STREAM_ALTER = 0x76
    MOVE = 0x77
    REPLY = 0x7F


#: A type that will never be used.
UNUSED = 0x7E
#: The types that only a server sends.
ANSWERS = {T.DELIVER, T.REPLY}


class S(enum.IntEnum):
    """The statuses of answers."""

    OK = 0
    QUEUE_FULL = 1
    QUEUE_EMPTY = 2
    NO_QUEUE = 3
    QUEUE_EXISTS = 4
    BAD_REQUEST = 5
    TOO_LARGE = 6
    LEASE_EXPIRED = 7
    DUPLICATE = 8
    UNSUPPORTED = 9
    NO_SPACE = 10
    SHUTTING_DOWN = 11
    INTERNAL = 12
    FORBIDDEN = 13
    OUT_OF_RANGE = 14
    FENCED = 15
    OUT_OF_SEQUENCE = 16
    NO_GROUP = 17
    BUSY = 18
    DAMAGED = 19
    BAD_MAGIC = 0x8001
    BAD_VERSION = 0x8002
    FRAME_TOO_LARGE = 0x8003
    UNAUTHORIZED = 0x8004
    TIMED_OUT = 0x8005


class Frame(NamedTuple):
    kind: int
    status: int
    id: int
    payload: bytes


class Delivery(NamedTuple):
    """The payload of a DELIVER."""

    sequence: int
    receipt: int
    deliveries: int
    priority: int
    flags: int
    properties: dict[Any, Any] | None
    body: bytes


def frame(
    kind: int,
    payload: bytes = b"",
    id: int = 1,
    *,
    magic: int = MAGIC,
    version: int = 1,
    status: int = 0,
    length: int | None = None,
) -> bytes:
    """One frame; ``length`` may tell a lie about the payload."""
    told = len(payload) if length is None else length
    return _HEADER.pack(magic, told, kind, version, status, id) + payload


def read_header(data: bytes) -> tuple[int, Frame]:
    """The length of the payload, and a frame that has it still to come."""
    magic, length, kind, version, status, number = _HEADER.unpack(data)
    assert magic == MAGIC, f"an answer begins with {magic:#x}"
    assert version == 1, f"an answer has version {version}"
    return length, Frame(kind, status, number, b"")


def read_delivery(payload: bytes) -> Delivery:
    sequence, receipt, deliveries, priority, flags = _DELIVERY.unpack_from(payload)
    assert not flags & ~0x03, f"a DELIVER has flags {flags:#x}"
    rest = payload[_DELIVERY.size :]
    properties = None
    if flags & 0x01:
        length = int.from_bytes(rest[:4], "big")
        assert len(rest) >= 4 + length, "a DELIVER's properties reach beyond its end"
        properties = unpack(rest[4 : 4 + length])
        assert isinstance(properties, dict)
        rest = rest[4 + length :]
    return Delivery(sequence, receipt, deliveries, priority, flags, properties, rest)


def pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(data: bytes) -> Any:
    """The one msgpack value that the bytes are; whatever its keys."""
    return msgpack.unpackb(data, strict_map_key=False)


def name(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(data)) + data


def u32(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def u64(*values: int) -> bytes:
    return struct.pack(f">{len(values)}Q", *values)


def read_u64s(data: bytes) -> list[int]:
    return list(struct.unpack(f">{len(data) // 8}Q", data))


# --- the payloads of requests ----------------------------------------------------------


def create(queue: str, **options: object) -> bytes:
    return name(queue) + (pack(options) if options else b"")


def message(body: bytes, properties: bytes | dict[Any, Any] | None = None, flags: int = 0) -> bytes:
    """What follows the name in a PRODUCE."""
    if properties is None:
        return bytes([flags]) + body
    packed = properties if isinstance(properties, bytes) else pack(properties)
    return bytes([flags | 0x01]) + u32(len(packed)) + packed + body


def produce(
    queue: str, body: bytes = b"", properties: bytes | dict[Any, Any] | None = None, flags: int = 0
) -> bytes:
    return name(queue) + message(body, properties, flags)


def item(body: bytes, properties: bytes | dict[Any, Any] | None = None, flags: int = 0) -> bytes:
    """A message of a PRODUCE_BATCH."""
    return message(u32(len(body)) + body, properties, flags)


def batch(queue: str, *items: bytes, flags: int = 0, count: int | None = None) -> bytes:
    many = len(items) if count is None else count
    return name(queue) + bytes([flags]) + u32(many) + b"".join(items)


def consume(queue: str, most: int = 1, wait: int = 0, flags: int = 0) -> bytes:
    return name(queue) + u32(most, wait) + bytes([flags])


def subscribe(queue: str, credit: int = 1, flags: int = 0) -> bytes:
    return name(queue) + u32(credit) + bytes([flags])


def receipts(queue: str, *numbers: int) -> bytes:
    """The payload of ACK and REJECT."""
    return name(queue) + u64(*numbers)


def timed(queue: str, ms: int, *numbers: int) -> bytes:
    """The payload of NACK and EXTEND."""
    return name(queue) + u32(ms) + u64(*numbers)


# --- the operations --------------------------------------------------------------------


class Operation(NamedTuple):
    """A request of a type that is well formed, and what is true of the type."""

    #: Behind the name; of a type that takes no name, all of the payload.
    rest: bytes
    #: The name is of a queue, an exchange, a stream or a table; empty: there is none.
    about: str = ""
    #: To that, the others are forbidden; None: any of them is enough, or none is needed.
    right: str | None = None
    #: A message id of 0 asks for no answer.
    silent: bool = False


def _map(**keys: object) -> bytes:
    return u32(len(pack(keys))) + pack(keys)


_MEMBER = name("group") + u64(0, 1)

#: What a client may send, one well-formed request of each type. On a queue that has a message
#: those about queues are OK, but for what only a staging queue has.
OPERATIONS: dict[T, Operation] = {
    T.HELLO: Operation(pack({"client": "a test"})),
    T.PING: Operation(b"pong"),
    T.CREATE: Operation(pack({"dead_letter": None}), "queue", "admin"),
    T.ALTER: Operation(pack({"max_deliveries": 5}), "queue", "admin"),
    T.DELETE: Operation(b"", "queue", "admin"),
    T.PURGE: Operation(b"", "queue", "admin"),
    T.LIST: Operation(b""),
    T.STATS: Operation(b"", "queue"),
    T.PRODUCE: Operation(message(b"body", {"pri": 2}), "queue", "produce", silent=True),
    T.PRODUCE_BATCH: Operation(
        b"\0" + u32(2) + item(b"one") + item(b"two", {"ttl": 90_000}),
        "queue",
        "produce",
        silent=True,
    ),
    T.CONSUME: Operation(u32(1, 0) + b"\0", "queue", "consume"),
    T.SUBSCRIBE: Operation(u32(1) + b"\0", "queue", "consume"),
    T.UNSUBSCRIBE: Operation(u32(1)),
    T.ACK: Operation(b"", "queue", "consume", silent=True),
    T.NACK: Operation(u32(1), "queue", "consume", silent=True),
    T.REJECT: Operation(b"", "queue", "consume", silent=True),
    T.EXTEND: Operation(u32(1000), "queue", "consume", silent=True),
    T.FAIL: Operation(
        b"\0" + u32(1) + len(pack({})).to_bytes(2, "big") + pack({}),
        "queue",
        "consume",
        silent=True,
    ),
    T.COLUMNS: Operation(u32(0, FOREVER, 1 << 20), "queue", "consume"),
    T.LEASE_RUN: Operation(u32(1) + u64(1) + u32(1000), "queue", "consume"),
    T.LEASE_AGAIN: Operation(u32(1000), "queue", "consume"),
    T.READ_RUN: Operation(u32(1 << 20), "queue", "consume"),
    T.EXCHANGE: Operation(pack({"action": "look"}), "exchange"),
    T.ROUTE: Operation(_map() + u32(0) + u32(1) + b"x", "exchange", "produce"),
    T.EXCHANGES: Operation(pack({})),
    T.HOLD: Operation(u64(0) + u32(1, 0), "stream", "consume"),
    T.STAGE: Operation(
        _map(publisher="p", batch=1, part="a", staging_bytes=1 << 20) + u32(0), "queue", "produce"
    ),
    T.PUBLISH: Operation(pack({"publisher": "p", "batch": 1, "parts": []}), "queue", "produce"),
    T.STAGED: Operation(pack({"publisher": "p", "action": "sealed"}), "queue", "produce"),
    T.HANDED: Operation(u32(1)),
    T.SCHEMA: Operation(pack({"action": "get"}), "queue"),
    T.RETURN: Operation(b"", "queue", "consume"),
    T.PEEK: Operation(u32(1), "queue", "consume"),
    T.REDRIVE: Operation(u32(1), "queue", "admin"),
    T.MOVE: Operation(pack({"to": "shop-elsewhere"}), "queue", "consume"),
    T.TABLE: Operation(pack({"action": "look"}), "table"),
    T.LEASES: Operation(u64(0) + u32(1), "queue", "consume"),
    T.NAMED_LEASE: Operation(
        pack({"action": "take_over", "holder": "h", "ms": 1000}), "queue", "consume"
    ),
    T.READY: Operation(u32(0), "queue", "consume"),
    T.STREAM_CREATE: Operation(pack({"partitions": 1}), "stream", "admin"),
    T.STREAM_DELETE: Operation(b"", "stream", "admin"),
    T.STREAM_LIST: Operation(b""),
    T.STREAM_INFO: Operation(b"", "stream"),
    T.APPEND: Operation(
        u64(0) + b"\0" + u32(0) + b"\0" + u32(1, 0) + bytes(48), "stream", "produce"
    ),
    T.FETCH: Operation(u64(0) + u32(1, 1, 0, 1, 0) + u64(0), "stream", "consume"),
    T.OFFSET_AT: Operation(u64(0) + u32(0) + u64(0), "stream", "consume"),
    T.SEATS: Operation(_MEMBER + b"\0", "stream", "consume"),
    T.JOIN: Operation(_MEMBER + pack({}), "stream", "consume"),
    T.HEARTBEAT: Operation(_MEMBER + u64(0), "stream", "consume"),
    T.COMMIT: Operation(_MEMBER, "stream", "consume"),
    T.LEAVE: Operation(_MEMBER, "stream", "consume"),
    T.SHARE_TAKE: Operation(_MEMBER + u32(1) + b"\0", "stream", "consume"),
    T.SHARE_SETTLE: Operation(_MEMBER + b"\1" + u64(0), "stream", "consume"),
    T.STREAM_GROUPS: Operation(pack({"action": "list"}), "stream"),
    T.REPARTITION: Operation(u64(0) + u32(8), "stream", "admin"),
    T.STREAM_ALTER: Operation(pack({"retention_seconds": 9.0}), "stream", "admin"),
}

#: The types whose message id of 0 asks for no answer.
SILENT = {each for each, operation in OPERATIONS.items() if operation.silent}
#: The types that begin with a name, and those of them whose name is a queue's.
NAMED = {each for each, operation in OPERATIONS.items() if operation.about}
OF_QUEUES = {each for each in NAMED if OPERATIONS[each].about == "queue"}


def request(kind: T, queue: str | bytes) -> bytes:
    """The well-formed request of that type, with that name if it takes one."""
    rest, about, *_ = OPERATIONS[kind]
    return name(queue) + rest if about else rest
