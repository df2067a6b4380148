"""What a client asks of staged rows, read from the bytes that it sent."""

from __future__ import annotations

import array
import itertools
import struct
import sys
from typing import Any, Final

import msgpack

from shmq.api import Rows
from shmq.errors import InvalidOption

__all__ = ["StagingRequest", "rows_of"]

_SIZE: Final = struct.Struct("!I")

_ACTIONS: Final = ("sealed", "sweep", "discard")


class StagingRequest:
    """The map of a request. Raises InvalidOption for what it lacks, or has in another type."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    @property
    def publisher(self) -> str:
        """Whose rows they are."""
        return self.text("publisher")

    @property
    def action(self) -> str:
        """What a STAGED is to do."""
        action = self.text("action")
        if action not in _ACTIONS:
            raise InvalidOption(f"'action' must be one of {', '.join(_ACTIONS)}, not {action!r}")
        return action

    @property
    def keep(self) -> str | None:
        """What the names begin with of parts that a sweep leaves; None: it leaves none."""
        return None if self._found.get("keep") is None else self.text("keep")

    def text(self, key: str) -> str:
        """A str."""
        value = self._found.get(key)
        if not isinstance(value, str):
            raise InvalidOption(f"it needs a {key!r} of type str")
        return value

    def number(self, key: str) -> int:
        """A whole number."""
        value = self._found.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidOption(f"it needs a {key!r} of type int")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of str."""
        value = self._found.get(key)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidOption(f"it needs {key!r}, a list of str")
        return value


def rows_of(rest: bytes) -> tuple[StagingRequest, Rows]:
    """What a STAGE has behind the name. Raises InvalidOption."""
    size = _SIZE.unpack_from(rest)[0]
    if size > len(rest) - 8:
        raise InvalidOption("its map is longer than the frame")
    try:
        found = msgpack.unpackb(rest[4 : 4 + size], strict_map_key=False)
    except Exception as error:  # its own kinds, ValueError, UnicodeDecodeError, RecursionError
        raise InvalidOption(f"that is not msgpack: {error}") from error
    if not isinstance(found, dict):
        raise InvalidOption("behind the name is no map")
    count = _SIZE.unpack_from(rest, 4 + size)[0]
    at = 8 + size
    if count > (len(rest) - at) // 8:
        raise InvalidOption(f"{count} rows are more than the frame can have")
    bodies, metas = _offsets(rest, at, count), _offsets(rest, at + 4 * count, count)
    data = memoryview(rest)[at + 8 * count :]
    if metas[-1] + bodies[-1] != len(data):
        raise InvalidOption(
            f"its rows have {metas[-1] + bodies[-1]} bytes, and there are {len(data)}"
        )
    return StagingRequest(found), Rows(
        data[metas[-1] :], _int32(bodies), None, data[: metas[-1]], _int32(metas)
    )


def _offsets(rest: bytes, at: int, count: int) -> list[int]:
    lengths = array.array("I", rest[at : at + 4 * count])
    if sys.byteorder == "little":
        lengths.byteswap()
    return list(itertools.accumulate(lengths, initial=0))


def _int32(offsets: list[int]) -> array.array[int]:
    try:
        return array.array("i", offsets)
    except OverflowError:
        raise InvalidOption(f"its rows have {offsets[-1]} bytes: that is no frame") from None
