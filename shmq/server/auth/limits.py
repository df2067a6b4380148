"""How much a server gives to one connection, to all of them, and to those of one token."""

from __future__ import annotations

import dataclasses

from shmq.api.options import check_seconds, check_whole
from shmq.protocol.opcodes import MAX_FRAME

__all__ = ["Limits", "Quota"]

_KIB = 1024
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much there may be before clients make no more; None: without limit.

    Raises :class:`~shmq.InvalidOption` for a value out of range, and TypeError for one of
    the wrong type.
    """

    #: Queues, dead-letter queues and staging queues among them.
    queues: int | None = None
    #: Streams.
    streams: int | None = None
    #: Groups of consumers, of all streams.
    groups: int | None = None
    #: Bytes of shared memory that the queues and the partitions of streams may take.
    bytes: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                check_whole(field.name, value, 0, (1 << 63) - 1)

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return self != _NO_QUOTA


_NO_QUOTA = Quota()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times are in seconds, sizes in bytes.

    Raises :class:`~shmq.InvalidOption` for a value out of range, and TypeError for one of
    the wrong type.
    """

    #: Connections at a time, over all workers: 1 to 1,000,000. One more is closed at once.
    connections: int = 10_000
    #: The longest payload of a request: 4 KiB to 1 GiB.
    max_frame: int = MAX_FRAME
    #: Messages delivered to one connection and not settled: 1 to 16,777,216.
    unsettled_messages: int = 65_536
    #: Bytes of those messages: 4 KiB to 1 TiB. One message may always be delivered.
    unsettled_bytes: int = 256 << 20
    #: How long a connection may take to be let in: for TLS, and for the token after it.
    handshake: float = 5.0
    #: How long a connection may be silent that waits for nothing.
    idle: float = 300.0
    #: How long a frame that has begun may take to be whole, and how long a peer may take
    #: nothing of what is sent to it.
    frame: float = 30.0
    #: How long the connections may go on to settle what they hold when the server ends.
    drain: float = 5.0
    #: How long a process of the server may give no sign of life: then it is killed and
    #: replaced. From 2 s on.
    silence: float = 5.0
    #: Of all that is in the namespace.
    namespace: Quota = _NO_QUOTA
    #: Of what one token may administer; of groups, of those that it may be a member of.
    token: Quota = _NO_QUOTA

    def __post_init__(self) -> None:
        check_whole("connections", self.connections, 1, 1_000_000)
        check_whole("max_frame", self.max_frame, 4 * _KIB, _GIB)
        check_whole("unsettled_messages", self.unsettled_messages, 1, 1 << 24)
        check_whole("unsettled_bytes", self.unsettled_bytes, 4 * _KIB, _GIB * _KIB)
        for name in ("handshake", "idle", "frame", "drain"):
            check_seconds(name, getattr(self, name), 0.01)
        check_seconds("silence", self.silence, 2.0)
        for name in ("namespace", "token"):
            if not isinstance(getattr(self, name), Quota):
                raise TypeError(f"{name}={getattr(self, name)!r} must be a table of quotas")
