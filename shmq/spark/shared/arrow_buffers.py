"""Arrow arrays over buffers, without a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["constant", "plain", "words"]

#: How many numbers a word can have: the values of a byte.
_NUMBERS: Final = 256


def plain(buffer: Any, count: int, kind: pa.DataType) -> pa.Array:
    """An array over the buffer's numbers, none of them null."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)])


def constant(text: bytes, count: int, kind: pa.DataType) -> pa.Array:
    """The same text in every row."""
    offsets = np.arange(count + 1, dtype=np.int32) * len(text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(kind, count, buffers)


def words(
    numbers: np.ndarray[Any, Any], names: Mapping[int, str | None], kind: pa.DataType
) -> pa.Array:
    """The word for each number below 256; null for a number without a word."""
    count = len(numbers)
    if count and (numbers == numbers[0]).all():
        word = names.get(int(numbers[0]))
        return constant(word.encode(), count, kind) if word else pa.nulls(count, kind)
    table = pa.array([names.get(number) for number in range(_NUMBERS)], kind)
    return table.take(pa.array(numbers))
