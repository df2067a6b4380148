"""Requests about tables, behind the table's name, and their answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from shmq.api.table import MAX_KEYS
from shmq.errors import InvalidOption, MessageTooLarge
from shmq.model.table.entry import Stored, check_key, check_stored
from shmq.native import _core
from shmq.protocol.messages.payload import Reply, pack_map, unpack_answer, unpack_map
from shmq.protocol.opcodes import Status
from shmq.protocol.status import Refusal, senseless

#: The actions of a TABLE, and the other keys of the map.
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "look": (),
    "make": ("durability", "max_bytes"),
    "drop": (),
    "get": ("keys",),
    "keys": ("prefix", "limit", "after"),
    "count": (),
    "set": ("entries", "ttl"),
    "add": ("entries", "ttl"),
    "delete": ("keys",),
    "clear": ("most",),
    "expire": ("key", "ttl"),
    "increment": ("key", "by", "ttl", "least", "most", "sum_with", "create", "renew"),
}
#: The actions that are about whatever table has the name now.
_BY_NAME: Final = frozenset({"look", "make", "drop"})


@dataclasses.dataclass(frozen=True, slots=True)
class TableRequest:
    """A TABLE: an action, its arguments by name, and the identity of the table.

    The arguments have the types that the action takes; the server's table checks their values.
    """

    action: str
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    identity: int = 0

    def pack(self) -> bytes:
        """The payload behind the name."""
        given = {key: self.arguments[key] for key in _KEYS[self.action] if key in self.arguments}
        identity = {} if self.action in _BY_NAME else {"identity": self.identity}
        return pack_map({"action": self.action, **identity, **given})

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        asked = unpack_map(rest)
        action = asked.get("action", "")
        if not isinstance(action, str) or action not in _KEYS:
            raise Refusal.bad(f"'action' must be one of {', '.join(_KEYS)}")
        identity: Any = 0 if action in _BY_NAME else asked.get("identity")
        if not _is_whole(identity) or not 0 <= identity < 1 << 64:
            raise Refusal.bad("'identity' must be the number that a \"look\" has returned")
        return cls(action, _check(action, asked), identity)


def _check(action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, each unpacked. Raises Refusal."""
    try:
        given = {key: _UNPACK[key](asked.get(key)) for key in _KEYS[action] if key in _UNPACK}
        given |= {key: asked[key] for key in _KEYS[action] if key not in _UNPACK and key in asked}
    except (TypeError, InvalidOption) as error:
        raise Refusal.bad(str(error)) from error
    except MessageTooLarge as error:
        raise Refusal(Status.TOO_LARGE, str(error)) from error
    if action == "add" and len(given["entries"]) != 1:
        raise Refusal.bad("'entries' of an \"add\" must be one")
    return given


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# ---- parts of the map ----


def pack_entries(entries: Mapping[str, Stored]) -> dict[str, list[Any]]:
    """Encoded values by key, as a map of a frame holds them."""
    return {key: [stored.codec, stored.raw] for key, stored in entries.items()}


def _unpack_entries(given: object) -> dict[str, Stored]:
    if not isinstance(given, dict):
        raise TypeError("'entries' must be a map of keys to [codec, bytes]")
    found = {}
    for key, value in given.items():
        if not isinstance(value, list) or len(value) != 2:
            raise TypeError("'entries' must be a map of keys to [codec, bytes]")
        found[check_key(key)] = check_stored(Stored(*value))
    return found


def _unpack_keys(given: object) -> list[str]:
    if not isinstance(given, list) or len(given) > MAX_KEYS:
        raise TypeError(f"keys must be a list of at most {MAX_KEYS}")
    return list(map(check_key, given))


def milliseconds_of(ttl: float | None) -> int | None:
    """A ttl in seconds as the ms of a frame; at least 1."""
    return None if ttl is None else math.ceil(ttl * 1000)


def seconds_of(ttl: object) -> float | None:
    """A ttl of a frame in seconds. Raises TypeError."""
    if ttl is None:
        return None
    if not isinstance(ttl, int) or isinstance(ttl, bool):
        raise TypeError("'ttl' must be an int, in ms, or nil")
    return min(ttl, 1 << 53) / 1000


_UNPACK: Final[dict[str, Callable[[Any], Any]]] = {
    "entries": _unpack_entries,
    "keys": _unpack_keys,
    "sum_with": lambda given: _unpack_keys([] if given is None else given),
    "ttl": seconds_of,
}


# ---- answers ----


@dataclasses.dataclass(frozen=True, slots=True)
class TableInfo(Reply):
    """The answer to a "look" or a "make"."""

    identity: int
    durability: Any
    max_bytes: int | None = None

    def check(self) -> None:
        if self.durability not in {"memory", "disk"}:
            raise senseless("it describes no table")


def field_of(answer: _core.Answer, key: str, *kinds: type) -> Any:
    """One field of an answer, of one of these types. Raises ServerError."""
    said = unpack_answer(answer)
    if key not in said or not isinstance(said[key], kinds):
        raise senseless(f"it has no {key!r}")
    return said[key]


def found_in(answer: _core.Answer) -> tuple[dict[str, Stored], int]:
    """The values of the answer to a "get", and how many keys were looked up. Raises ServerError."""
    looked = field_of(answer, "looked", int)
    try:
        return _unpack_entries(field_of(answer, "found", dict)), looked
    except (TypeError, InvalidOption, MessageTooLarge) as error:
        raise senseless(str(error)) from error
