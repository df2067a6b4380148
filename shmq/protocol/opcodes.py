"""The names of the DEADBEEF wire protocol, which remote clients speak: docs/protocol.md."""

from __future__ import annotations

import enum
from typing import Final

__all__ = [
    "DEFAULT_PORT",
    "FOREVER",
    "HEADER",
    "MAGIC",
    "MAX_FRAME",
    "MAX_HELLO",
    "MORE",
    "PROTOCOL_VERSION",
    "Flag",
    "Status",
    "Type",
]

#: The version that stands in the header of every frame. A change of any byte or rule of
#: the protocol is a change of this.
PROTOCOL_VERSION: Final = 1

MAGIC: Final = 0xDEADBEEF

#: Bytes of a frame's header.
HEADER: Final = 16

#: Where a server listens and a client calls, if nothing else is said.
DEFAULT_PORT: Final = 9999

#: The longest payload of a request that a server takes, in bytes, if nothing else is said.
MAX_FRAME: Final = 16 << 20

#: The longest payload of a first HELLO where a token is asked for, in bytes.
MAX_HELLO: Final = 4096

#: The status of a DELIVER that further frames of the same CONSUME follow.
MORE: Final = 0x0100

#: A wait without limit, a delay by the queue's own back-off, a redrive of all.
FOREVER: Final = 0xFFFFFFFF


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
    REPLY = 0x7F


class Flag(enum.IntFlag):
    """The flags of a message, a CONSUME, a DELIVER or an APPEND; which depends on the type."""

    PROPERTIES = 0x01  # PRODUCE, DELIVER: properties follow
    DURABLE = 0x02  # PRODUCE, APPEND: answer once it is on disk
    PRODUCER = 0x04  # APPEND: the producer's id and the sequence follow
    GAPS = 0x08  # APPEND: the sequence may jump forward
    SETTLED = 0x01  # CONSUME, SUBSCRIBE: settled on delivery
    CHOSEN = 0x04  # CONSUME, SUBSCRIBE: an expression follows
    TELLS = 0x08  # SUBSCRIBE: HANDED says what the application has got
    REDELIVERED = 0x02  # DELIVER: it was delivered before


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
