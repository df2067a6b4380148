"""The payload of a publish to an exchange, behind the exchange's name."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from shmq.protocol.messages.payload import pack_map, pack_piece, unpack_map, unpack_piece
from shmq.protocol.status import Refusal

__all__ = ["Route", "unpack_counts"]


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """A ROUTE of bodies by a ``key``, all with the same properties.

    ``only``: queue names with how many of the bodies each already has; None: all queues.
    """

    key: str
    confirm: str | None
    meta: bytes
    bodies: list[Any]
    only: dict[str, int] | None = None

    def pack(self) -> bytes:
        """The payload behind the name."""
        asked: dict[str, Any] = {"key": self.key, "confirm": self.confirm}
        if self.only is not None:
            asked["only"] = self.only
        return b"".join(map(pack_piece, (pack_map(asked), self.meta, *self.bodies)))

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        at, raw = unpack_piece(rest, 0)
        asked = unpack_map(raw)
        at, meta = unpack_piece(rest, at)
        bodies = []
        while at < len(rest):
            at, body = unpack_piece(rest, at)
            bodies.append(body)
        only = None if asked.get("only") is None else unpack_counts(asked, "only")
        return cls(asked.get("key", ""), asked.get("confirm"), meta, bodies, only)

    @property
    def properties(self) -> dict[str, Any]:
        """The properties of each of the bodies. Raises Refusal."""
        return unpack_map(self.meta) if self.meta else {}


def unpack_counts(asked: dict[str, Any], key: str) -> dict[str, int]:
    """The map of names to numbers under ``key``. Raises Refusal."""
    found = asked.get(key)
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and type(number) is int and 0 <= number < 1 << 63
        for name, number in found.items()
    ):
        raise Refusal.bad(f"{key!r} must be a map of names to numbers")
    return found
