"""Limits of a server: for one connection, for all of them, and for one token."""

from __future__ import annotations

import dataclasses

from shmq.api.options import check_seconds, check_whole
from shmq.protocol.opcodes import MAX_FRAME

__all__ = ["Limits", "Quota"]

_KIB = 1024
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much may exist before clients can create no more; None: without limit.

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
    """The limits of a server. Times are in seconds, sizes in bytes.

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
    #: How long TLS may take, and the HELLO with the token after it.
    handshake: float = 5.0
    #: How long a connection that waits for nothing may be silent.
    idle: float = 300.0
    #: How long a frame may take to arrive once it has begun, and how long a peer may read
    #: nothing of what is sent to it.
    frame: float = 30.0
    #: How long connections may go on settling their leased messages when the server ends.
    drain: float = 5.0
    #: How long a process of the server may miss its heartbeat before it is killed and
    #: replaced. At least 2 s.
    silence: float = 5.0
    #: The quota of the whole namespace.
    namespace: Quota = _NO_QUOTA
    #: The quota of each token: what it may administer, and the groups it may be a member of.
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
