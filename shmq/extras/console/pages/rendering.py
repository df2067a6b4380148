"""Templates and their filters: each value is escaped, and an unknown name is an error."""

from __future__ import annotations

import functools
import time
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2

from shmq.api.names import shown_name
from shmq.units import rate, size, span


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


def as_text(text: str) -> str:
    """The text with what cannot be seen, or turns the direction, as an escape."""
    return "".join(one if one in "\n\t" or not _hides(one) else _escape(one) for one in text)


def _hides(one: str) -> bool:
    return unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _escape(one: str) -> str:
    point = ord(one)
    return f"\\x{point:02x}" if point < 256 else f"\\u{point:04x}"


_TEMPLATES: Final = Path(__file__).with_name("templates")


@functools.cache
def _make_environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for one in (amount, as_text, moment, number, option, rate, size, span):
        made.filters[one.__name__] = one
    made.filters["shown"] = shown_name
    return made


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """The page."""
    return _make_environment().get_template(template).render(values)
