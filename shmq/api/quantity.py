"""Sizes, times and rates as people read and write them: ``64KiB``, ``5m``."""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = ["brief", "parse_seconds", "parse_size", "rate", "size", "span"]

_NUMBER = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", re.ASCII)

_SIZES: Final = {
    "": 1,
    "b": 1,
    **{unit: 1024**n for n, k in enumerate("kmgt", 1) for unit in (k, f"{k}ib")},
    **{f"{k}b": 1000**n for n, k in enumerate("kmgt", 1)},
}

_TIMES: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def parse_size(text: str) -> int:
    """Bytes: ``4096``, ``64KiB``, ``16MiB`` (``16M``), ``1.5GiB``; ``KB`` is 1000.

    Raises ValueError, with what is wrong.
    """
    number, factor = _split(text, _SIZES, "a size such as 4096, 64KiB or 16MiB")
    exact = number * factor
    if exact != int(exact):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(exact)


def parse_seconds(text: str) -> float:
    """Seconds: ``30``, ``0.5``, ``30s``, ``500ms``, ``5m``, ``2h``, ``1d``.

    Raises ValueError, with what is wrong.
    """
    number, factor = _split(text, _TIMES, "a time such as 30, 30s, 500ms, 5m or 2h")
    return float(number * factor)


def _split(text: str, units: dict[str, int] | dict[str, float], form: str) -> tuple[float, float]:
    match = _NUMBER.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not {form}")
    number = float(match[1]) if "." in match[1] else int(match[1])
    if not math.isfinite(number * factor):
        raise ValueError(f"{text!r} is too large")
    return number, factor


def rate(value: float | None) -> str:
    """Something per second: one digit after the point where it is small."""
    if value is None:
        return ""
    return f"{value:,.1f}" if 0 < value < 100 else f"{value:,.0f}"


def span(seconds: float | None) -> str:
    """A length of time in its largest unit: ``3.2 s``, ``12 min``, ``4.5 h``, ``3 days``."""
    if seconds is None:
        return ""
    for most, unit, length in ((60, "s", 1), (3600, "min", 60), (86_400, "h", 3600)):
        if abs(seconds) < most:
            return f"{_short(seconds / length)} {unit}"
    return f"{_short(seconds / 86_400)} days"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if abs(value) < 10 else f"{value:.0f}"


def size(value: float | None) -> str:
    """A size in its largest unit: ``512 bytes``, ``1.5 MiB``."""
    if value is None:
        return ""
    at, left = 0, float(value)
    while abs(left) >= 1024 and at < len(_UNITS) - 1:
        at, left = at + 1, left / 1024
    return f"{value:,.0f} {_UNITS[0]}" if at == 0 else f"{left:.1f} {_UNITS[at]}"


def brief(seconds: float) -> str:
    """A length of time as :func:`span` has it, and a short one in ``ms`` or ``µs``."""
    if not math.isfinite(seconds):
        return "for ever"
    if seconds >= 1 or not seconds:
        return span(seconds)
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
