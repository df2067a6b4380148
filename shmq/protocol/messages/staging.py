"""Requests of a publisher of staged rows, behind the queue's name, and their answers."""

from __future__ import annotations

import array
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from typing import Any, Final, Self

from shmq.api import Rows
from shmq.native import _core
from shmq.protocol.messages.payload import (
    pack_fields,
    pack_piece,
    unpack_answer,
    unpack_map,
    unpack_piece,
)
from shmq.protocol.opcodes import HEADS, Type
from shmq.protocol.status import Refusal

#: The number of rows.
_COUNT: Final = HEADS[Type.STAGE]
_ACTIONS: Final = ("sealed", "sweep", "discard")

#: A body, and its packed properties or no bytes.
StageRow = tuple[Any, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A STAGE of rows as a part of a batch; ``staging_bytes`` limits all staged rows."""

    publisher: str
    batch: int
    part: str
    staging_bytes: int

    def pack(self, rows: Sequence[StageRow]) -> bytes:
        """The payload behind the name."""
        sizes = [len(body) for body, _ in rows] + [len(meta) for _, meta in rows]
        return b"".join(
            (
                pack_piece(pack_fields(self)),
                _COUNT.pack(len(rows)),
                _big_endian(array.array("I", sizes)).tobytes(),
                *(meta for _, meta in rows),
                *(body for body, _ in rows),
            )
        )

    @classmethod
    def unpack(cls, rest: bytes) -> tuple[Self, Rows]:
        """Unpack the payload behind the name, with its rows. Raises Refusal."""
        at, raw = unpack_piece(rest, 0)
        found = unpack_map(raw)
        if len(rest) - at < _COUNT.size:
            raise Refusal.bad("its map is longer than the frame")
        count = _COUNT.unpack_from(rest, at)[0]
        at += _COUNT.size
        if count > (len(rest) - at) // 8:
            raise Refusal.bad(f"{count} rows are more than the frame can have")
        bodies, metas = _offsets(rest, at, count), _offsets(rest, at + 4 * count, count)
        data = memoryview(rest)[at + 8 * count :]
        if metas[-1] + bodies[-1] != len(data):
            raise Refusal.bad(
                f"its rows have {metas[-1] + bodies[-1]} bytes, and there are {len(data)}"
            )
        rows = Rows(data[metas[-1] :], _int32(bodies), None, data[: metas[-1]], _int32(metas))
        asked = cls(
            _text(found, "publisher"),
            _number(found, "batch"),
            _text(found, "part"),
            _number(found, "staging_bytes"),
        )
        return asked, rows


@dataclasses.dataclass(frozen=True, slots=True)
class Publish:
    """A PUBLISH of a batch; the first one seals the batch with these parts, in order."""

    publisher: str
    batch: int
    parts: list[str]

    def pack(self) -> bytes:
        """The payload behind the name."""
        return pack_fields(self)

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        found = unpack_map(rest)
        parts = found.get("parts")
        if not isinstance(parts, list) or not all(isinstance(each, str) for each in parts):
            raise Refusal.bad("it needs 'parts', a list of str")
        return cls(_text(found, "publisher"), _number(found, "batch"), parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """The answer to a PUBLISH: how many rows became messages, and why some did not, or None."""

    rows: int
    left: str | None

    def pack(self) -> bytes:
        """The payload of the answer."""
        return pack_fields(self)

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer."""
        said = unpack_answer(answer)
        return cls(int(said["rows"]), said["left"])


@dataclasses.dataclass(frozen=True, slots=True)
class Staged:
    """A STAGED; a sweep keeps the parts whose names begin with ``keep``."""

    publisher: str
    action: str
    keep: str | None = None

    def pack(self) -> bytes:
        """The payload behind the name."""
        return pack_fields(self)

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        found = unpack_map(rest)
        action = _text(found, "action")
        if action not in _ACTIONS:
            raise Refusal.bad(f"'action' must be one of {', '.join(_ACTIONS)}, not {action!r}")
        keep = None if found.get("keep") is None else _text(found, "keep")
        return cls(_text(found, "publisher"), action, keep)


@dataclasses.dataclass(frozen=True, slots=True)
class StagedState:
    """The answer to a STAGED: the newest sealed batch, and how many chunks a sweep removed."""

    sealed: int | None
    removed: int

    def pack(self) -> bytes:
        """The payload of the answer."""
        return pack_fields(self)

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer."""
        said = unpack_answer(answer)
        return cls(said["sealed"], int(said["removed"]))


def _text(found: dict[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise Refusal.bad(f"it needs a {key!r} of type str")
    return value


def _number(found: dict[str, Any], key: str) -> int:
    value = found.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refusal.bad(f"it needs a {key!r} of type int")
    return value


def _big_endian(numbers: array.array[int]) -> array.array[int]:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _offsets(rest: bytes, at: int, count: int) -> list[int]:
    lengths = _big_endian(array.array("I", rest[at : at + 4 * count]))
    return list(itertools.accumulate(lengths, initial=0))


def _int32(offsets: list[int]) -> array.array[int]:
    try:
        return array.array("i", offsets)
    except OverflowError:
        raise Refusal.bad(f"its rows have {offsets[-1]} bytes: that is no frame") from None
