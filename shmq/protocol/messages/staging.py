"""Requests of a publisher of staged rows, behind the queue's name, and their answers."""

from __future__ import annotations

import array
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from typing import Any, Final, Self

from shmq.api import Rows
from shmq.protocol.messages.payload import Reply, Request, pack_piece, unpack_piece
from shmq.protocol.opcodes import HEADS, Type
from shmq.protocol.status import Refusal

#: The number of rows.
_COUNT: Final = HEADS[Type.STAGE]
_ACTIONS: Final = ("sealed", "sweep", "discard")

#: A body, and its packed properties or no bytes.
StageRow = tuple[Any, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Stage(Request):
    """A STAGE of rows as a part of a batch; ``staging_bytes`` limits all staged rows."""

    publisher: str
    batch: int
    part: str
    staging_bytes: int

    def pack_with_rows(self, rows: Sequence[StageRow]) -> bytes:
        """The payload behind the name."""
        sizes = [len(body) for body, _ in rows] + [len(meta) for _, meta in rows]
        return b"".join(
            (
                pack_piece(self.pack()),
                _COUNT.pack(len(rows)),
                _make_big_endian(array.array("I", sizes)).tobytes(),
                *(meta for _, meta in rows),
                *(body for body, _ in rows),
            )
        )

    @classmethod
    def unpack_with_rows(cls, rest: bytes) -> tuple[Self, Rows]:
        """Unpack the payload behind the name, with its rows. Raises Refusal."""
        at, raw = unpack_piece(rest, 0)
        asked = cls.unpack(raw)
        if len(rest) - at < _COUNT.size:
            raise Refusal.bad("its map is longer than the frame")
        count = _COUNT.unpack_from(rest, at)[0]
        at += _COUNT.size
        if count > (len(rest) - at) // 8:
            raise Refusal.bad(f"{count} rows are more than the frame can have")
        bodies, metas = _read_offsets(rest, at, count), _read_offsets(rest, at + 4 * count, count)
        data = memoryview(rest)[at + 8 * count :]
        if metas[-1] + bodies[-1] != len(data):
            raise Refusal.bad(
                f"its rows have {metas[-1] + bodies[-1]} bytes, and there are {len(data)}"
            )
        rows = Rows(
            data[metas[-1] :], _make_int32(bodies), None, data[: metas[-1]], _make_int32(metas)
        )
        return asked, rows


@dataclasses.dataclass(frozen=True, slots=True)
class Publish(Request):
    """A PUBLISH of a batch; the first one seals the batch with these parts, in order."""

    publisher: str
    batch: int
    parts: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Published(Reply):
    """The answer to a PUBLISH: how many rows became messages, and why some did not, or None."""

    rows: int
    left: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Staged(Request):
    """A STAGED; a sweep keeps the parts whose names begin with ``keep``."""

    publisher: str
    action: str
    keep: str | None = None

    def check(self) -> None:
        if self.action not in _ACTIONS:
            raise Refusal.bad(f"'action' must be one of {', '.join(_ACTIONS)}, not {self.action!r}")


@dataclasses.dataclass(frozen=True, slots=True)
class StagedState(Reply):
    """The answer to a STAGED: the newest sealed batch, and how many chunks a sweep removed."""

    sealed: int | None
    removed: int


def _make_big_endian(numbers: array.array[int]) -> array.array[int]:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _read_offsets(rest: bytes, at: int, count: int) -> list[int]:
    lengths = _make_big_endian(array.array("I", rest[at : at + 4 * count]))
    return list(itertools.accumulate(lengths, initial=0))


def _make_int32(offsets: list[int]) -> array.array[int]:
    try:
        return array.array("i", offsets)
    except OverflowError:
        raise Refusal.bad(f"its rows have {offsets[-1]} bytes: that is not a frame") from None
