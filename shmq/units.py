"""Sizes, times and rates as people read and write them, in one way everywhere."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Final

_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", re.ASCII)

_SIZES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1024**n for n, k in enumerate("kmgt", 1) for unit in (k, f"{k}ib")},
    **{f"{k}b": 1000**n for n, k in enumerate("kmgt", 1)},
}

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")

_TIMES: Final[Mapping[str, float]] = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def size_of(text: str) -> int | None:
    """The bytes in ``4096``, ``64k``, ``16MiB``, ``1.5GiB``; ``KB`` is 1000. None: no size."""
    found = fraction_of(text)
    return int(found) if found is not None and found == int(found) else None


def fraction_of(text: str) -> float | None:
    """As :func:`size_of`, of sizes that need not be whole bytes: ``0.3KiB``."""
    found = _number_and_factor(text, _SIZES)
    if found is None:
        return None
    number, factor = found
    return (float(number) if "." in number else int(number)) * factor


def seconds_of(text: str) -> float | None:
    """The seconds in ``30``, ``0.5``, ``500ms``, ``10min``, ``2h``, ``1d``. None: no time."""
    found = _number_and_factor(text, _TIMES)
    return None if found is None else float(found[0]) * found[1]


def moment_of(text: str) -> dt.datetime | None:
    """The moment in ``2026-01-31T12:00:00Z``, or in a date its beginning. None: no moment.

    It is in UTC if the text names no zone.
    """
    try:
        found = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _number_and_factor(text: str, units: Mapping[str, float]) -> tuple[str, float] | None:
    found = _QUANTITY.fullmatch(text.strip())
    factor = units.get(found[2].lower()) if found else None
    return None if found is None or factor is None else (found[1], factor)


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
    """A length of time as :func:`span` has it, and a short one in ``ms`` or ``µs``, to the ns."""
    if not math.isfinite(seconds):
        return "for ever"
    if seconds < 1e-9:
        return "0 s"
    if seconds >= 1:
        return span(seconds)
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
