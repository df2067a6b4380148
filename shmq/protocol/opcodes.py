"""The numbers of the wire protocol: opcodes.toml, by tools/protocol.py."""

from __future__ import annotations

import enum
import struct
from typing import Final

from shmq import errors

#: The version that stands in the header of every frame.
PROTOCOL_VERSION: Final = 1

MAGIC: Final = 0xDEADBEEF

#: Bytes of a frame's header.
HEADER: Final = 16

#: Where a server listens and a client calls, if nothing else is said.
DEFAULT_PORT: Final = 9999

#: No operation has this type, and none will.
UNUSED_TYPE: Final = 0x7E

#: The longest payload of a request that a server takes, in bytes, if nothing else is said.
MAX_FRAME: Final = 16_777_216

#: The longest payload of a first HELLO where a token is asked for, in bytes.
MAX_HELLO: Final = 4_096

#: The longest payload of a PING, in bytes.
MAX_PING: Final = 64

#: The status of a DELIVER that further frames of the same CONSUME follow.
MORE: Final = 256

#: A wait without limit, a delay by the queue's own back-off, a redrive of all.
FOREVER: Final = 4_294_967_295


class Type(enum.IntEnum):
    """What a frame is."""

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
    REPLY = 0x7F


class Flag(enum.IntEnum):
    """The flags of a payload; which of them it may have depends on the type."""

    PROPERTIES = 0x01  # PRODUCE, a message of a PRODUCE_BATCH, DELIVER
    DURABLE = 0x02  # PRODUCE, PRODUCE_BATCH itself, APPEND
    SETTLED = 0x01  # CONSUME, SUBSCRIBE
    WHERE = 0x04  # CONSUME, SUBSCRIBE
    TELLS = 0x08  # SUBSCRIBE
    REDELIVERED = 0x02  # DELIVER
    PRODUCER = 0x04  # APPEND
    GAPS = 0x08  # APPEND


class Status(enum.IntEnum):
    """The outcome of a request. From 0x8000 on the server closes the connection."""

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


class Right(enum.IntEnum):
    """What a token may do to a queue or a stream: bits of a mask."""

    PRODUCE = 1
    CONSUME = 2
    ADMIN = 4


#: The numbers that a payload begins with, behind the name or the member.
HEADS: Final[dict[Type, struct.Struct]] = {
    Type.PRODUCE: struct.Struct("!B"),
    Type.PRODUCE_BATCH: struct.Struct("!BI"),
    Type.CONSUME: struct.Struct("!IIB"),
    Type.SUBSCRIBE: struct.Struct("!IB"),
    Type.UNSUBSCRIBE: struct.Struct("!I"),
    Type.NACK: struct.Struct("!I"),
    Type.EXTEND: struct.Struct("!I"),
    Type.COLUMNS: struct.Struct("!III"),
    Type.LEASE_RUN: struct.Struct("!IQI"),
    Type.LEASE_AGAIN: struct.Struct("!I"),
    Type.READ_RUN: struct.Struct("!I"),
    Type.ROUTE: struct.Struct("!I"),
    Type.HOLD: struct.Struct("!QII"),
    Type.STAGE: struct.Struct("!I"),
    Type.HANDED: struct.Struct("!I"),
    Type.PEEK: struct.Struct("!I"),
    Type.REDRIVE: struct.Struct("!I"),
    Type.APPEND: struct.Struct("!QBIBII"),
    Type.FETCH: struct.Struct("!QIIII"),
    Type.OFFSET_AT: struct.Struct("!QIQ"),
    Type.SEATS: struct.Struct("!B"),
    Type.HEARTBEAT: struct.Struct("!Q"),
    Type.SHARE_TAKE: struct.Struct("!IB"),
    Type.SHARE_SETTLE: struct.Struct("!BQ"),
    Type.REPARTITION: struct.Struct("!QI"),
    Type.LEASES: struct.Struct("!QI"),
    Type.READY: struct.Struct("!I"),
}

#: The types that a side thread of the server carries out, not its event loop.
ASIDE: Final = frozenset(
    {
        Type.CREATE,
        Type.DELETE,
        Type.PURGE,
        Type.LIST,
        Type.STATS,
        Type.EXCHANGE,
        Type.STAGE,
        Type.PUBLISH,
        Type.STAGED,
        Type.SCHEMA,
        Type.PEEK,
        Type.REDRIVE,
        Type.LEASES,
        Type.TABLE,
        Type.NAMED_LEASE,
    }
)

#: The audit events of a type by the action; "" of a type without actions.
AUDIT: Final[dict[Type, dict[str, str]]] = {
    Type.CREATE: {"": "queue.create"},
    Type.DELETE: {"": "queue.delete"},
    Type.PURGE: {"": "queue.purge"},
    Type.EXCHANGE: {
        "create": "exchange.create",
        "delete": "exchange.delete",
        "bind": "exchange.bind",
        "unbind": "exchange.unbind",
    },
    Type.SCHEMA: {"set": "schema.set"},
    Type.REDRIVE: {"": "queue.redrive"},
    Type.STREAM_CREATE: {"": "stream.create"},
    Type.STREAM_DELETE: {"": "stream.delete"},
    Type.COMMIT: {"reset": "group.reset"},
    Type.STREAM_GROUPS: {"delete": "group.delete"},
    Type.REPARTITION: {"": "stream.repartition"},
    Type.TABLE: {"make": "table.create", "drop": "table.delete"},
}

#: The right that every request of the type needs.
RIGHTS: Final[dict[Type, Right]] = {
    Type.CREATE: Right.ADMIN,
    Type.DELETE: Right.ADMIN,
    Type.PURGE: Right.ADMIN,
    Type.PRODUCE: Right.PRODUCE,
    Type.PRODUCE_BATCH: Right.PRODUCE,
    Type.CONSUME: Right.CONSUME,
    Type.SUBSCRIBE: Right.CONSUME,
    Type.ACK: Right.CONSUME,
    Type.NACK: Right.CONSUME,
    Type.REJECT: Right.CONSUME,
    Type.EXTEND: Right.CONSUME,
    Type.COLUMNS: Right.CONSUME,
    Type.LEASE_RUN: Right.CONSUME,
    Type.LEASE_AGAIN: Right.CONSUME,
    Type.READ_RUN: Right.CONSUME,
    Type.ROUTE: Right.PRODUCE,
    Type.HOLD: Right.CONSUME,
    Type.STAGE: Right.PRODUCE,
    Type.PUBLISH: Right.PRODUCE,
    Type.STAGED: Right.PRODUCE,
    Type.RETURN: Right.CONSUME,
    Type.PEEK: Right.CONSUME,
    Type.REDRIVE: Right.ADMIN,
    Type.STREAM_CREATE: Right.ADMIN,
    Type.STREAM_DELETE: Right.ADMIN,
    Type.APPEND: Right.PRODUCE,
    Type.FETCH: Right.CONSUME,
    Type.OFFSET_AT: Right.CONSUME,
    Type.SEATS: Right.CONSUME,
    Type.JOIN: Right.CONSUME,
    Type.HEARTBEAT: Right.CONSUME,
    Type.LEAVE: Right.CONSUME,
    Type.SHARE_TAKE: Right.CONSUME,
    Type.SHARE_SETTLE: Right.CONSUME,
    Type.REPARTITION: Right.ADMIN,
    Type.LEASES: Right.CONSUME,
    Type.READY: Right.CONSUME,
    Type.NAMED_LEASE: Right.CONSUME,
}

#: The errors that a server answers with a status; a client raises the first.
ERRORS: Final[dict[Status, tuple[type[errors.ShmqError], ...]]] = {
    Status.QUEUE_FULL: (errors.Full,),
    Status.QUEUE_EMPTY: (errors.Empty,),
    Status.NO_QUEUE: (
        errors.NoSuchQueue,
        errors.NoSuchExchange,
        errors.QueueDeleted,
        errors.NoSuchStream,
        errors.StreamDeleted,
        errors.NoSuchTable,
        errors.TableDeleted,
    ),
    Status.QUEUE_EXISTS: (errors.QueueExists, errors.StreamExists, errors.ExchangeExists),
    Status.BAD_REQUEST: (errors.InvalidOption, errors.InvalidName),
    Status.TOO_LARGE: (errors.MessageTooLarge,),
    Status.LEASE_EXPIRED: (errors.LeaseExpired,),
    Status.UNSUPPORTED: (errors.Unsupported,),
    Status.NO_SPACE: (errors.NoSpace,),
    Status.SHUTTING_DOWN: (errors.ShuttingDown,),
    Status.INTERNAL: (errors.ServerError,),
    Status.FORBIDDEN: (errors.Forbidden,),
    Status.OUT_OF_RANGE: (errors.OffsetOutOfRange,),
    Status.FENCED: (errors.MemberFenced, errors.PartitionSealed),
    Status.OUT_OF_SEQUENCE: (errors.OutOfSequence,),
    Status.NO_GROUP: (errors.NoSuchGroup,),
    Status.BUSY: (errors.LockTimeout,),
    Status.DAMAGED: (errors.DamagedFile,),
    Status.FRAME_TOO_LARGE: (errors.MessageTooLarge,),
    Status.UNAUTHORIZED: (errors.Unauthorized,),
    Status.TIMED_OUT: (errors.ConnectionLost,),
}

#: What a client says of a status, and whether it says so whatever the server said.
TEXTS: Final[dict[Status, tuple[str, bool]]] = {
    Status.QUEUE_FULL: ("{what} is full", False),
    Status.QUEUE_EMPTY: ("no message is in {what}", False),
    Status.NO_QUEUE: ("{what} does not exist", False),
    Status.QUEUE_EXISTS: ("{what} exists with other options", False),
    Status.BAD_REQUEST: ("the server refused the form of a request about {what}", False),
    Status.TOO_LARGE: ("the message can never fit into {what}", False),
    Status.LEASE_EXPIRED: (
        "a receipt of {what} has expired: its lease ended, or the message was settled",
        True,
    ),
    Status.UNSUPPORTED: (
        "the server of {what} does not know this request, or not for this queue",
        False,
    ),
    Status.NO_SPACE: ("the server of {what} has no more shared memory or disk", False),
    Status.SHUTTING_DOWN: ("the server of {what} is shutting down", False),
    Status.INTERNAL: ("the server failed at a request about {what}: its log says why", False),
    Status.FORBIDDEN: ("the token has no right to do this to {what}", False),
    Status.FENCED: ("a member of a group of {what} is none any more, or lost its partition", False),
    Status.NO_GROUP: ("{what} has no such group", False),
    Status.BUSY: (
        "a lock of {what} is held by a process that is stopped or very busy: try again",
        False,
    ),
    Status.FRAME_TOO_LARGE: ("a request about {what} is larger than the server takes", False),
    Status.UNAUTHORIZED: (
        "the server of {what} rejected the token: check token= or SHMQ_TOKEN",
        True,
    ),
    Status.TIMED_OUT: (
        "the server of {what} closed the connection, which was idle for too long",
        False,
    ),
}
