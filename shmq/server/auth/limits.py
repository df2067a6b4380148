"""Limits of a server: for one connection, for all of them, and for one token."""

from __future__ import annotations

import dataclasses
from typing import Any

from shmq.api.options import option
from shmq.protocol.opcodes import MAX_FRAME

__all__ = ["Limits", "Quota"]

_KIB = 1024
_GIB = 1 << 30


def _check_rows(limits: Any) -> None:
    """Check each field that is a row of a table of options."""
    for field in dataclasses.fields(limits):
        if "option" in field.metadata:
            field.metadata["option"].check(field.name, getattr(limits, field.name), {})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much may exist before clients can create no more; None: without limit.

    Raises :class:`~shmq.InvalidOption` for a value out of range, and TypeError for one of
    the wrong type.
    """

    queues: int | None = option(
        None,
        "count",
        "Queues, including dead-letter queues, reply queues and staging queues",
        least=0,
        none="no limit",
    )
    streams: int | None = option(None, "count", "Streams", least=0, none="no limit")
    groups: int | None = option(
        None, "count", "Consumer groups of all streams", least=0, none="no limit"
    )
    bytes: int | None = option(
        None,
        "bytes",
        "Shared memory that the queues and the partitions of streams may take",
        least=0,
        none="no limit",
    )

    def __post_init__(self) -> None:
        _check_rows(self)

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

    connections: int = option(
        10_000,
        "count",
        "Connections at a time, over all workers",
        most=1_000_000,
        more="One more is closed at once",
    )
    max_frame: int = option(
        MAX_FRAME, "bytes", "The longest payload of a request", least=4 * _KIB, most=_GIB
    )
    unsettled_messages: int = option(
        65_536,
        "count",
        "Messages delivered to one connection and not settled",
        most=1 << 24,
    )
    unsettled_bytes: int = option(
        256 << 20,
        "bytes",
        "The bytes of those messages",
        least=4 * _KIB,
        most=_GIB * _KIB,
        more="One message may always be delivered",
    )
    handshake: float = option(
        5.0, "seconds", "How long TLS may take, and the HELLO with the token after it", least=0.01
    )
    idle: float = option(
        300.0,
        "seconds",
        "How long a connection that waits for nothing may send nothing",
        least=0.01,
    )
    frame: float = option(
        30.0,
        "seconds",
        "How long a frame may take to arrive once it has begun, and how long a client may read "
        "nothing of what is sent to it",
        least=0.01,
    )
    drain: float = option(
        5.0,
        "seconds",
        "How long connections may settle their leased messages when the server ends",
        least=0.01,
    )
    silence: float = option(
        5.0,
        "seconds",
        "How long a process of the server may send no heartbeat before it is killed and replaced",
        least=2.0,
    )
    #: The quota of the whole namespace.
    namespace: Quota = _NO_QUOTA
    #: The quota of each token: what it may administer, and the groups it may be a member of.
    token: Quota = _NO_QUOTA

    def __post_init__(self) -> None:
        _check_rows(self)
        for name in ("namespace", "token"):
            if not isinstance(getattr(self, name), Quota):
                raise TypeError(f"{name}={getattr(self, name)!r} must be a table of quotas")
