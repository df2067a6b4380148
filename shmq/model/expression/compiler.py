"""Compiles expressions to programs that the core runs: see shmq/core/queue/filter.h.

The language is that of :mod:`shmq.model.expression.parse`, with the same meaning, but without the
body: the core tests a message in its slot, before it is leased.
"""

from __future__ import annotations

import functools
import struct
from typing import Final

from shmq.errors import InvalidOption
from shmq.model.expression.parse import Comparison, Joined, Node, Not, parse
from shmq.native import _core

#: The most bytes of an expression, in UTF-8: the limit of a request of the protocol.
LONGEST: Final = 0xFFFF

_NOT, _AND, _OR, _TEST = (
    bytes([_core.FILTER_OPERATIONS[name]]) for name in ("not", "and", "or", "test")
)
_NIL, _BOOL, _INT, _REAL, _TEXT = (
    _core.FILTER_CONSTANTS[name] for name in ("nil", "bool", "int", "real", "text")
)


@functools.lru_cache(maxsize=256)
def _compile(text: str, most: int | None) -> _core.Filter:
    return _core.Filter(program_of(parse(text, most=most)))


def compile_filter(text: str, most: int | None = None) -> _core.Filter:
    """Compile an expression to a filter.

    Raises :class:`~shmq.InvalidOption` for one that cannot be parsed, has more than ``most``
    comparisons, or refers to the body, and TypeError if it is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"where={text!r:.60} must be a str, not {type(text).__name__}")
    size = len(text.encode(errors="surrogatepass"))  # the parser refuses those
    if size > LONGEST:
        raise InvalidOption(f"where has {size} bytes: it may have {LONGEST} at most")
    return _compile(text, most)


def program_of(node: Node) -> bytes:
    """The program of a parsed expression."""
    if isinstance(node, Not):
        return program_of(node.part) + _NOT
    if isinstance(node, Joined):
        first, *rest = (program_of(part) for part in node.parts)
        join = _AND if node.word == "and" else _OR
        return first + b"".join(part + join for part in rest)
    return _test(node)


def _test(node: Comparison) -> bytes:
    field = node.field
    if field.name not in _core.FILTER_FIELDS:
        raise InvalidOption(
            f"where: {'.'.join((field.name, *field.path))} is in the body, which is not read "
            f"before a message is leased: put what is to be chosen by into a header"
        )
    name = b""
    if field.name == "header":
        (key,) = field.path
        name = struct.pack("!H", len(key.encode())) + key.encode()
    head = _TEST + bytes([_core.FILTER_FIELDS[field.name]])
    return (
        head + name + bytes([_core.FILTER_RELATIONS[node.relation]]) + _encode_constant(node.value)
    )


def _encode_constant(value: str | float | bool | None) -> bytes:
    if value is None:
        return bytes([_NIL])
    if isinstance(value, bool):
        return bytes([_BOOL, value])
    if isinstance(value, int):
        return struct.pack("!Bq", _INT, value)
    if isinstance(value, float):
        return struct.pack("!Bd", _REAL, value)
    raw = value.encode()
    return struct.pack("!BI", _TEXT, len(raw)) + raw
