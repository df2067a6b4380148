"""JSON as RFC 8259 defines it: no NaN, no Infinity, no number that a float cannot hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

#: What may be a number beyond the range of a float.
_LARGE: Final = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{308}")
#: The escape of a surrogate, which is valid only as one of a pair.
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_SHOWN: Final = 40


def decode_json(text: bytes | str) -> Any:
    """Return the value of ``text``. Raises ValueError, also where it is nested too deeply."""
    if not isinstance(text, str):
        text = text.decode(json.detect_encoding(text))
    try:
        value = (_RANGED if _LARGE.search(text) else _PLAIN).decode(text)
        if _SURROGATE.search(text):
            encode_json(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"a text has the lone surrogate {error.object[error.start]!a}") from None
    return value


def encode_json(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return ``value`` as JSON. Raises TypeError and ValueError for what JSON cannot hold."""
    text = json.dumps(
        value, allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=default
    )
    return text.encode()


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _parse_integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(
            f"the integer {digits[:_MOST_SHOWN]}… has {len(digits)} digits, which is too many"
        ) from None


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:_MOST_SHOWN]} is out of the range of a float")
    return number


_PLAIN: Final = json.JSONDecoder(parse_constant=_reject_constant)
_RANGED: Final = json.JSONDecoder(
    parse_constant=_reject_constant, parse_float=_parse_finite, parse_int=_parse_integer
)
