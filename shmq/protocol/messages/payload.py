"""The parts of payloads: maps, offsets in partitions, receipts, expressions, times.

Unpacking a malformed part of a request raises :class:`shmq.protocol.status.Refusal`.
"""

from __future__ import annotations

import array
import dataclasses
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgpack

from shmq.errors import InvalidOption
from shmq.model.expression.parse import MOST_REMOTE
from shmq.native import _core
from shmq.protocol.opcodes import FOREVER
from shmq.protocol.status import Refusal, senseless

#: A partition, and an offset in it.
PLACE: Final = struct.Struct("!IQ")
#: Stands for an offset where there is none.
NO_OFFSET: Final = (1 << 64) - 1

_SIZE: Final = struct.Struct("!I")

_T = TypeVar("_T")


def pack_map(value: Any) -> bytes:
    """The value in msgpack."""
    raw: bytes = msgpack.packb(value)
    return raw


def pack_fields(message: Any) -> bytes:
    """The map of a dataclass's fields, by name and in their order."""
    fields = dataclasses.fields(message)
    return pack_map({field.name: getattr(message, field.name) for field in fields})


def unpack_map(raw: bytes) -> dict[str, Any]:
    """Unpack a msgpack map with str keys."""
    try:
        found = msgpack.unpackb(raw, raw=False, strict_map_key=False)
    except Exception as error:  # its own kinds, ValueError, UnicodeDecodeError, RecursionError
        raise Refusal.bad(f"that is not msgpack: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise Refusal.bad("that is no msgpack map whose keys are of type str")
    return found


def unpack_answer(answer: _core.Answer) -> dict[str, Any]:
    """The msgpack map of an answer; empty for an empty payload. Raises ServerError."""
    found = _of_answer(answer, b"\x80")
    if not isinstance(found, dict):
        raise senseless("it is no map")
    return found


def check_empty(rest: bytes) -> None:
    """Refuse any bytes behind the name."""
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
    found = _of_answer(answer, b"\x90")
    if not isinstance(found, list):
        raise senseless("it is no list")
    return found


def unpack_fields(kind: type[_T], found: object) -> _T:
    """A dataclass from a map of an answer. Raises ServerError if it is no map.

    Unknown keys are left out, and what the map lacks is the field's default or 0.
    """
    if not isinstance(found, dict):
        raise senseless(f"it has no map of a {kind.__name__}")
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    missing = {field.name: 0 for field in fields if field.default is dataclasses.MISSING}
    return kind(
        **missing | {field.name: found[field.name] for field in fields if field.name in found}
    )


class Listing(Generic[_T]):
    """The answer to a request for a list: a map for each dataclass ``kind``, by name.

    ``more`` are keys that each map has beside the fields.
    """

    def __init__(self, kind: type[_T], /, **more: str) -> None:
        self._kind = kind
        self._more = more

    def pack(self, rows: Iterable[Any]) -> bytes:
        """The payload of the answer."""
        return pack_map([{**self._more, **dataclasses.asdict(each)} for each in rows])

    def unpack(self, answer: _core.Answer) -> list[_T]:
        """Unpack the answer, sorted by name. Raises ServerError."""
        rows = unpack_rows(answer)
        if not all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
            raise senseless("there is an entry without a name")
        return [unpack_fields(self._kind, row) for row in sorted(rows, key=lambda row: row["name"])]


def _of_answer(answer: _core.Answer, empty: bytes) -> Any:
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


def milliseconds(wait: float | None) -> int:
    """A wait in seconds as the ms of a frame; None: without limit."""
    return FOREVER if wait is None else min(FOREVER - 1, max(0, round(wait * 1000)))


def seconds(ms: int) -> float | None:
    """A wait of a frame in seconds; None: without limit."""
    return None if ms == FOREVER else ms / 1000
