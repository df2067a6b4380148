"""The request about leases that are held in a name, behind the queue's name, and its answer."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Self

from shmq.api import Run
from shmq.native import _core
from shmq.protocol.messages.payload import pack_fields, unpack_answer, unpack_map
from shmq.protocol.status import Refusal, senseless

_ACTIONS: Final = ("take_over", "lease", "find", "check", "release")
_WIDEST: Final = {"token": 64, "settled": 32, "epoch": 32, "most": 32, "max_bytes": 63, "ms": 32}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedLease:
    """A NAMED_LEASE; an action ignores the numbers that it has no use for.

    ``take_over`` needs ``settled``, ``epoch`` and ``ms``; ``lease`` needs ``token``, ``epoch``,
    ``most``, ``max_bytes`` and ``ms``; ``find`` needs ``token``, ``epoch`` and ``ms``; ``check``
    needs ``token``.
    """

    action: str
    holder: str
    token: int = 0
    settled: int = 0
    epoch: int = 0
    most: int = 0
    max_bytes: int = 0
    ms: int = 0

    def pack(self) -> bytes:
        """The payload behind the name."""
        return pack_fields(self)

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        found = unpack_map(rest)
        action, holder = found.get("action"), found.get("holder")
        if action not in _ACTIONS:
            raise Refusal.bad(f"'action' must be one of {', '.join(_ACTIONS)}, not {action!r}")
        if not isinstance(holder, str):
            raise Refusal.bad("it needs a 'holder' of type str")
        return cls(action=action, holder=holder, **{key: _number(found, key) for key in _WIDEST})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedLeaseState:
    """The answer to a NAMED_LEASE; ``void``, ``full``: why nothing was done, or None."""

    token: int = 0
    settled: int = 0
    returned: int = 0
    known: bool = True
    sequences: bytes = b""
    receipts: bytes = b""
    slots: bytes = b""
    void: str | None = None
    full: str | None = None

    @property
    def run(self) -> Run:
        """The leased messages."""
        return Run(self.sequences, self.receipts, self.slots)

    def pack(self) -> bytes:
        """The payload of the answer."""
        return pack_fields(self)

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer. Raises ServerError."""
        said = unpack_answer(answer)
        try:
            found = cls(**said)
        except TypeError as error:
            raise senseless(f"it has other keys: {error}") from None
        columns = found.sequences, found.receipts, found.slots
        count = len(found.slots) // 4
        if not all(isinstance(each, bytes) for each in columns) or tuple(map(len, columns)) != (
            8 * count,
            8 * count,
            4 * count,
        ):
            raise senseless("its columns have other lengths than a run's")
        return found


def _number(found: dict[str, Any], key: str) -> int:
    value = found.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << _WIDEST[key]:
        raise Refusal.bad(f"{key!r} must be an int from 0, of {_WIDEST[key]} bits")
    return value
