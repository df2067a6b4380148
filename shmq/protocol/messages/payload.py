"""The parts of payloads: maps, offsets in partitions, receipts, expressions, times.

Unpacking a malformed part of a request raises :class:`shmq.protocol.status.Refusal`.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import struct
import sys
from collections.abc import Callable, Iterable
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgpack

from shmq.api.options import Options
from shmq.errors import InvalidOption
from shmq.model.expression.parse import MOST_REMOTE
from shmq.native import _core
from shmq.protocol.opcodes import FOREVER, HEADS, POSITIVE, SIGNED, Type
from shmq.protocol.status import Refusal, senseless

#: A partition, and an offset in it.
PLACE: Final = struct.Struct("!IQ")
#: Stands for an offset where there is none.
NO_OFFSET: Final = (1 << 64) - 1

_SIZE: Final = struct.Struct("!I")

_T = TypeVar("_T")


def pack_map(value: Any) -> bytes:
    """The value in msgpack; a dataclass of this package is a map of its fields, in their order."""
    raw: bytes = msgpack.packb(value, default=_collect_fields)
    return raw


def _collect_fields(message: Any) -> dict[str, Any]:
    kind = type(message)
    if not kind.__module__.startswith("shmq.") or not dataclasses.is_dataclass(kind):
        raise TypeError(f"msgpack cannot hold a value of type {kind.__name__}")
    if isinstance(message, Options):
        return message.as_dict()
    return {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}


def unpack_map(raw: bytes) -> dict[str, Any]:
    """Unpack a msgpack map with str keys."""
    try:
        found = msgpack.unpackb(raw, raw=False, strict_map_key=False)
    except Exception as error:  # its own kinds, ValueError, UnicodeDecodeError, RecursionError
        raise Refusal.bad(f"that is not msgpack: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise Refusal.bad("that is not a msgpack map whose keys are of type str")
    return found


def unpack_answer(answer: _core.Answer) -> dict[str, Any]:
    """The msgpack map of an answer; empty for an empty payload. Raises ServerError."""
    found = _decode_answer(answer, b"\x80")
    if not isinstance(found, dict):
        raise senseless("it is not a map")
    return found


def check_empty(rest: bytes) -> None:
    """Refuse any bytes after the name."""
    if rest:
        raise Refusal.bad(f"there are {len(rest)} bytes more than its type takes")


def pack_name(name: str) -> bytes:
    """The name at the beginning of a payload, with its length in front."""
    raw = name.encode()
    return len(raw).to_bytes(2, "big") + raw


def pack_piece(data: Any) -> bytes:
    """Bytes with their length in front."""
    view = memoryview(data).cast("B")
    return _SIZE.pack(view.nbytes) + view


def unpack_piece(rest: bytes, at: int) -> tuple[int, bytes]:
    """Unpack bytes with their length in front; returns their end, and the bytes."""
    if len(rest) - at < _SIZE.size:
        raise Refusal.bad("a length is cut off")
    end = at + _SIZE.size + _SIZE.unpack_from(rest, at)[0]
    if end > len(rest):
        raise Refusal.bad("a length reaches beyond the frame")
    return end, rest[at + _SIZE.size : end]


def unpack_rows(answer: _core.Answer) -> list[Any]:
    """The msgpack list of an answer; empty for an empty payload. Raises ServerError."""
    found = _decode_answer(answer, b"\x90")
    if not isinstance(found, list):
        raise senseless("it is not a list")
    return found


def unpack_fields(kind: type[_T], found: object) -> _T:
    """A dataclass from a map of an answer. Raises ServerError if it is not a map.

    Unknown keys are left out, and what the map lacks is the field's default or 0.
    """
    if not isinstance(found, dict):
        raise senseless(f"it has no map of a {kind.__name__}")
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    missing = {
        field.name: 0
        for field in fields
        if field.default is field.default_factory is dataclasses.MISSING
    }
    return kind(
        **missing | {field.name: found[field.name] for field in fields if field.name in found}
    )


# ---- messages ----


#: What follows the numbers of a request: how it is packed, and unpacked to the end of the payload.
Tail = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


class Numbers:
    """A request that is a dataclass of numbers: those that opcodes.toml says of its type.

    With a ``tail`` the last field is what follows them. A number of type bool is 0 or 1.
    """

    __slots__ = ()
    type: ClassVar[Type]
    tail: ClassVar[Tail | None] = None

    def pack(self) -> bytes:
        """The payload, after the name or the member."""
        values = [getattr(self, name) for name, _, _ in _list_fields(cast("Any", type(self)))]
        tail = b"" if self.tail is None else self.tail[0](values.pop())
        return HEADS[self.type].pack(*values) + tail

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload after the name or the member. Raises Refusal."""
        values: list[Any] = list(unpack_head(cls.type, rest, last=cls.tail is None))
        if cls.tail is not None:
            values.append(cls.tail[1](rest[HEADS[cls.type].size :]))
        given = {}
        for (name, hint, _), value in zip(_list_fields(cast("Any", cls)), values, strict=True):
            if hint is bool and value > 1:
                raise Refusal.bad(f"{name!r} is 0 or 1, not {value}")
            given[name] = bool(value) if hint is bool else value
        found = cls(**given)
        found.check()
        return found

    def check(self) -> None:
        """Raise Refusal for a number that it cannot have."""


def unpack_head(kind: Type, rest: bytes, *, last: bool = False) -> tuple[int, ...]:
    """The numbers of the head; with ``last`` nothing may follow them. Raises Refusal."""
    head = HEADS[kind]
    if len(rest) < head.size or (last and len(rest) > head.size):
        more = "" if last else "at least "
        raise Refusal.bad(f"{kind.name} has {more}{head.size} bytes after the name")
    found = head.unpack_from(rest)
    for at, name in POSITIVE.get(kind, {}).items():
        if not found[at]:
            raise Refusal.bad(f"{name}=0: it must be 1 or more")
    for at, name in SIGNED.get(kind, {}).items():
        if found[at] >= 1 << 63:
            raise Refusal.bad(f"{name}={found[at]}: it must be less than 2⁶³")
    return found


class Request:
    """A request that is a dataclass: a msgpack map of its fields, in their order."""

    __slots__ = ()

    def pack(self) -> bytes:
        """The payload after the name."""
        return pack_map(self)

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload after the name; unknown keys are ignored. Raises Refusal."""
        try:
            found = _unpack_typed(cls, unpack_map(rest))
        except TypeError as error:
            raise Refusal.bad(str(error)) from error
        found.check()
        return found

    def check(self) -> None:
        """Raise Refusal for a field that cannot have its value."""


class Reply:
    """An answer that is a dataclass: a msgpack map of its fields, in their order."""

    __slots__ = ()

    def pack(self) -> bytes:
        """The payload of the answer."""
        return pack_map(self)

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer; unknown keys are ignored. Raises ServerError."""
        try:
            found = _unpack_typed(cls, unpack_answer(answer))
        except TypeError as error:
            raise senseless(str(error)) from error
        found.check()
        return found

    def check(self) -> None:
        """Raise ServerError for a field that is not plausible."""


def _unpack_typed(kind: Callable[..., _T], found: dict[str, Any]) -> _T:
    """A dataclass from a map. Raises TypeError for a field that lacks, or of another type."""
    given = {}
    for name, hint, default in _list_fields(kind):
        if name in found:
            try:
                given[name] = _convert(found[name], hint)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{name!r} must be of type {_format(hint)}") from error
        elif default is dataclasses.MISSING:
            raise TypeError(f"it needs a {name!r} of type {_format(hint)}")
    return kind(**given)


@functools.cache
def _list_fields(kind: Any) -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(kind)
    return [(each.name, hints[each.name], each.default) for each in dataclasses.fields(kind)]


def _format(hint: Any) -> str:
    """The name of a type, for errors."""
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _convert(value: Any, hint: Any) -> Any:
    """The value as the field's type has it. Raises TypeError."""
    kind, of = get_origin(hint) or hint, get_args(hint)
    if kind is UnionType:
        return None if value is None else _convert(value, of[0])
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return unpack_fields(cast("type[Any]", kind), value)
    if kind is tuple:
        return tuple(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError
    return [_convert(each, of[0]) for each in value] if kind is list else value


class Listing(Generic[_T]):
    """The answer to a request for a list: a map for each dataclass ``kind``, by name.

    ``more`` are keys that each map has beside the fields.
    """

    def __init__(self, kind: type[_T], /, **more: str) -> None:
        self._kind = kind
        self._more = more

    def pack(self, rows: Iterable[Any]) -> bytes:
        """The payload of the answer."""
        return pack_map([{**self._more, **_collect_fields(each)} for each in rows])

    def unpack(self, answer: _core.Answer) -> list[_T]:
        """Unpack the answer, sorted by name. Raises ServerError."""
        rows = unpack_rows(answer)
        if not all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
            raise senseless("there is an entry without a name")
        return [unpack_fields(self._kind, row) for row in sorted(rows, key=lambda row: row["name"])]


def _decode_answer(answer: _core.Answer, empty: bytes) -> Any:
    try:
        return msgpack.unpackb(answer.payload or empty, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise senseless(f"it is not msgpack: {error}") from error


def pack_places(places: Iterable[tuple[int, int]]) -> bytes:
    """Partitions, each with an offset."""
    return b"".join(PLACE.pack(*each) for each in places)


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Receipts, or other numbers of 64 bits."""
    found = array.array("Q", numbers)
    if sys.byteorder == "little":
        found.byteswap()
    return found.tobytes()


def unpack_numbers(raw: bytes) -> list[int]:
    """Unpack receipts, to the end of the payload."""
    if len(raw) % 8:
        raise Refusal.bad("receipts have 8 bytes each")
    found = array.array("Q", raw)
    if sys.byteorder == "little":
        found.byteswap()
    return found.tolist()


def unpack_expression(raw: bytes, check: Callable[[str, int], object]) -> str | None:
    """Unpack an expression, which ``check`` must accept; None: there is none."""
    if not raw:
        return None
    try:
        text = raw.decode()
        check(text, MOST_REMOTE)
    except (UnicodeDecodeError, InvalidOption) as error:
        raise Refusal.bad(str(error)) from error
    return text


def expression(check: Callable[[str, int], object]) -> Tail:
    """An expression, or None, at the end of a payload."""
    return (
        lambda text: b"" if text is None else text.encode(),
        lambda raw: unpack_expression(raw, check),
    )


def milliseconds(wait: float | None) -> int:
    """A wait in seconds as the ms of a frame; None: without limit."""
    return FOREVER if wait is None else min(FOREVER - 1, max(0, round(wait * 1000)))


def seconds(ms: int) -> float | None:
    """A wait of a frame in seconds; None: without limit."""
    return None if ms == FOREVER else ms / 1000
