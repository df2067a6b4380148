"""Requests about exchanges, behind the exchange's name, and their answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Self

from shmq.api.exchange import Binding, ExchangeSummary
from shmq.native import _core
from shmq.protocol.messages.payload import (
    Listing,
    Reply,
    Request,
    pack_map,
    pack_piece,
    unpack_answer,
    unpack_map,
    unpack_piece,
)
from shmq.protocol.status import Refusal, senseless

#: The answer to an EXCHANGES.
EXCHANGES: Final = Listing(ExchangeSummary)

_BINDING: Final = ("target", "key", "kind", "headers", "match")
#: The actions of an EXCHANGE, and the other keys of the map, in their order.
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "create": ("kind", "alternate"),
    "look": (),
    "delete": (),
    "bind": _BINDING,
    "unbind": _BINDING,
    "bindings": (),
    "stats": (),
    "synced": ("queues",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Exchanges(Request):
    """An EXCHANGES."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """An EXCHANGE: an action, and its arguments by name, which the server's exchange checks.

    ``queues``, of a "synced", maps names to sequence numbers.
    """

    action: str
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)

    def pack(self) -> bytes:
        """The payload behind the name."""
        given = {key: self.arguments[key] for key in _KEYS[self.action] if key in self.arguments}
        return pack_map({"action": self.action, **given})

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        asked = unpack_map(rest)
        action = asked.get("action", "")
        if not isinstance(action, str) or action not in _KEYS:
            raise Refusal.bad(f"'action' must be one of {', '.join(_KEYS)}")
        arguments = {key: asked[key] for key in _KEYS[action] if key in asked}
        if action == "synced":
            arguments["queues"] = _read_counts(asked, "queues")
        return cls(action, arguments)


@dataclasses.dataclass(frozen=True, slots=True)
class Shown(Reply):
    """The answer to a "create" or a "look": the exchange's kind, and its alternate or None."""

    kind: Any
    alternate: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Changed(Reply):
    """The answer to a "bind" or an "unbind"; ``missing``: the kind of a target that is missing."""

    changed: bool
    missing: str | None = None

    def pack(self) -> bytes:
        """The payload of the answer."""
        missing = {} if self.missing is None else {"missing": self.missing}
        return pack_map({"changed": self.changed, **missing})


@dataclasses.dataclass(frozen=True, slots=True)
class Bindings:
    """The answer to a "bindings"."""

    bindings: list[Binding]

    def pack(self) -> bytes:
        """The payload of the answer."""
        return pack_map({"bindings": [_make_row(each) for each in self.bindings]})

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer. Raises ServerError."""
        rows = _read_member(unpack_answer(answer), "bindings")
        try:
            return cls([Binding(*row) for row in rows])
        except TypeError as error:
            raise senseless(f"of the bindings: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class Unsynced(Reply):
    """The answer to a "synced": the queues that are behind, each with its disk's error or None."""

    unsynced: dict[str, str | None]


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
        only = None if asked.get("only") is None else _read_counts(asked, "only")
        return cls(asked.get("key", ""), asked.get("confirm"), meta, bodies, only)

    @property
    def properties(self) -> dict[str, Any]:
        """The properties of each of the bodies. Raises Refusal."""
        return unpack_map(self.meta) if self.meta else {}


@dataclasses.dataclass(frozen=True, slots=True)
class Routed(Reply):
    """The answer to a ROUTE: how many queues the key leads to, and what became of the bodies.

    ``refused``: by queue, the status, its text, how many bodies the queue has, and whether a put to
    it waits for room. ``unsynced``: by queue, the sequence number that is not on disk yet.
    """

    reached: int
    delivered: int
    duplicates: int
    refused: dict[str, tuple[int, str, int, bool]]
    unsynced: dict[str, int]


def _read_member(said: dict[str, Any], key: str) -> Any:
    if key not in said:
        raise senseless(f"it has no {key!r}")
    return said[key]


def _make_row(binding: Binding) -> list[Any]:
    headers = None if binding.headers is None else dict(binding.headers)
    return [binding.target, binding.kind, binding.key, headers, binding.match]


def _read_counts(asked: dict[str, Any], key: str) -> dict[str, int]:
    """The map of names to numbers under ``key``. Raises Refusal."""
    found = asked.get(key)
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and type(number) is int and 0 <= number < 1 << 63
        for name, number in found.items()
    ):
        raise Refusal.bad(f"{key!r} must be a map of names to numbers")
    return found
