"""Checks that turn a TOML value into a job's value.

A check takes the file's value and returns the job's. It raises a ValueError that says what is
allowed; the configuration adds the key and the value.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from shmq.spark.shared import options

__all__ = [
    "Check",
    "flag",
    "function",
    "master",
    "moment",
    "names",
    "number",
    "one_of",
    "option",
    "path",
    "seconds",
    "size",
    "text",
    "whole",
]

#: Converts the file's value to the job's, given the folder of the file.
Check = Callable[[Any, Path], Any]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_MASTER: Final = re.compile(
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[\d+, *\d+, *\d+\]|"
    r"spark://[^\s:/,]+:\d+(,[^\s:/,]+:\d+)*|yarn|k8s://\S+"
)
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def text(value: Any, _: Path) -> str:
    """Non-empty text."""
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("text, in quotes")


def flag(value: Any, _: Path) -> bool:
    """``true`` or ``false``."""
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def names(value: Any, folder: Path) -> tuple[str, ...]:
    """One name, or a list of names without duplicates."""
    found = value if isinstance(value, list) else [value]
    try:
        kept = tuple(text(each, folder) for each in found)
    except ValueError:
        kept = ()
    if not kept or len(set(kept)) < len(kept):
        raise ValueError('a name as "a", or several as ["a", "b"], none of them twice')
    return kept


def whole(least: int, most: int) -> Check:
    """A whole number within the bounds."""

    def check(value: Any, _: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least:,} to {most:,}")
        return value

    return check


def number(least: float, most: float) -> Check:
    """A number within the bounds."""

    def check(value: Any, _: Path) -> float:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not least <= value <= most:
            raise ValueError(f"a number from {least:g} to {most:g}")
        return float(value)

    return check


def seconds(least: float, most: float) -> Check:
    """A time within the bounds, as 30 or ``"500ms"``, ``"5m"``, ``"2h"``; in seconds."""
    allowed = f'a time from {least:g} to {most:g} seconds, as 30 or "500ms", "5m", "2h"'
    return _within(least, most, _seconds, allowed)


def size(least: int, most: int) -> Check:
    """A number of bytes within the bounds, as 4096 or ``"64K"``, ``"16MiB"``."""
    allowed = f'a size from {least:,} to {most:,} bytes, as 4096 or "64K", "16MiB", "1G"'
    return _within(least, most, _size, allowed)


def _within(least: float, most: float, read: Callable[[Any], float | None], allowed: str) -> Check:
    """A check that ``read`` accepts the value and its result is within the bounds."""

    def check(value: Any, _: Path) -> float:
        found = read(value)
        if found is None or not least <= found <= most:
            raise ValueError(allowed)
        return found

    return check


def one_of(*allowed: str) -> Check:
    """One of these words."""

    def check(value: Any, _: Path) -> str:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return str(value)

    return check


def path(value: Any, folder: Path) -> str:
    """A path, relative to the folder of the file, or a URL such as ``s3a://…``."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError('a path, as "archive", "/srv/archive" or "hdfs://host/archive"')
    return value if _SCHEME.match(value) else str(folder / value)


def function(value: Any, _: Path) -> str:
    """The name of a function, as ``module:function``."""
    if isinstance(value, str) and _FUNCTION.fullmatch(value):
        return value
    raise ValueError('of the form "module:function", as "app.flights:delays"')


def master(value: Any, _: Path) -> str:
    """A master URL that Spark knows. Raises a :class:`ValueError` that says what is allowed."""
    if not isinstance(value, str) or not _MASTER.fullmatch(value):
        raise ValueError('"local[N]", "local[*]", "spark://HOST:PORT", "yarn" or "k8s://…"')
    return value


def moment(value: Any, _: Path) -> dt.datetime:
    """A point in time, in UTC if it has no zone. A date means its beginning."""
    found = value
    if isinstance(value, str):
        try:
            found = dt.datetime.fromisoformat(value)
        except ValueError:
            found = None
    if isinstance(found, dt.date) and not isinstance(found, dt.datetime):
        found = dt.datetime.combine(found, dt.time())
    if not isinstance(found, dt.datetime):
        raise ValueError("a time as 2026-11-22T10:00:00Z, or a date as 2026-11-22")
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def option(value: Any, _: Path) -> str:
    """A value for a Spark option: text, a number, true or false, or a list of text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise ValueError("text, a number, true or false, or a list of text")


def flattened(table: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables as one table with dotted keys, as TOML nests ``a.b = 1``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": each for inner, each in flattened(value).items()}
        else:
            flat[key] = value
    return flat


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else None
    return options.seconds_of(value) if isinstance(value, str) else None


def _size(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return options.size_of(value) if isinstance(value, str) else None
