"""Numbers, times and sizes as the pages write them."""

from __future__ import annotations

import time
from typing import Any, Final

from shmq.api.names import shown_name

__all__ = ["amount", "moment", "number", "option", "rate", "size", "span"]

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None) -> str:
    """A count, with its thousands apart; nothing for None."""
    return "" if value is None else f"{value:,.0f}"


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


def moment(at: float | None) -> str:
    """A time in UTC, to the second."""
    if at is None:
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def amount(count: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def option(value: Any) -> str:
    """The value of an option."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else shown_name(str(value))
