"""Numbers, times and sizes as the pages write them."""

from __future__ import annotations

import time
from typing import Any

from shmq.api.names import shown_name
from shmq.units import rate, size, span  # noqa: F401 - the templates use them


def number(value: float | None) -> str:
    """A count, with its thousands apart; nothing for None."""
    return "" if value is None else f"{value:,.0f}"


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
