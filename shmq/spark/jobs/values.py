"""The types of a job's values that TOML does not have: times, sizes, places, options.

``of`` makes one of the file's value, given the folder of the file. It raises a ValueError that
says what is allowed; the configuration adds the key and the value.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from shmq.units import moment_of, seconds_of, size_of

#: The trigger of a stream that ends when it has read everything that existed at its start.
AVAILABLE_NOW: Final = "available-now"

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_MASTER: Final = re.compile(
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[\d+, *\d+, *\d+\]|"
    r"spark://[^\s:/,]+:\d+(,[^\s:/,]+:\d+)*|yarn|k8s://\S+"
)
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class Seconds(float):
    """A time, as 30 or ``"500ms"``, ``"5m"``, ``"2h"``."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, _: Path) -> Self:
        """The time in seconds."""
        found = seconds_of(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int | float):
            found = math.nan
        if not 0 <= found <= 366 * 86400:
            raise ValueError('a time of at most 366 days, as 30 or "500ms", "5m", "2h"')
        return cls(found)


class Size(int):
    """A size, as 4096 or ``"64K"``, ``"16MiB"``."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, _: Path) -> Self:
        """The size in bytes."""
        found = size_of(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= 1 << 40:
            raise ValueError('a size of at most 1 TiB, as 4096 or "64K", "16MiB", "1G"')
        return cls(found)


class Location(str):
    """A path, relative to the folder of the file, or a URL such as ``hdfs://…``."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, folder: Path) -> Self:
        """The path; a relative one begins at the folder."""
        if not isinstance(value, str) or not value.strip():
            raise ValueError('a path, as "archive", "/srv/archive" or "hdfs://host/archive"')
        return cls(value if _SCHEME.match(value) else folder / value)


class Names(tuple[str, ...]):
    """One name, or a list of names without duplicates."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, _: Path) -> Self:
        """The names."""
        found = value if isinstance(value, list) else [value]
        named = bool(found) and all(isinstance(each, str) and each.strip() for each in found)
        if not named or len(set(found)) < len(found):
            raise ValueError('a name as "a", or several as ["a", "b"], none of them twice')
        return cls(found)


class FunctionName(str):
    """The name of a function, as ``module:function``."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, _: Path) -> Self:
        """The name."""
        if isinstance(value, str) and _FUNCTION.fullmatch(value):
            return cls(value)
        raise ValueError('of the form "module:function", as "app.flights:delays"')


class Master(str):
    """A master URL that Spark knows."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, _: Path) -> Self:
        """The URL."""
        if isinstance(value, str) and _MASTER.fullmatch(value):
            return cls(value)
        raise ValueError('"local[N]", "local[*]", "spark://HOST:PORT", "yarn" or "k8s://…"')


class Trigger:
    """When a batch begins."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None) -> None:
        #: From the start of a batch to that of the next; None: what is there now, then end.
        self.seconds = seconds

    @classmethod
    def of(cls, value: Any, folder: Path) -> Self:
        """The trigger of a time, or of :data:`AVAILABLE_NOW`."""
        try:
            return cls(None if value == AVAILABLE_NOW else Seconds.of(value, folder))
        except ValueError as error:
            raise ValueError(f'"{AVAILABLE_NOW}", or {error}') from None


class Moment:
    """A point in time, in UTC if it has no zone. A date means its beginning."""

    __slots__ = ("at",)

    def __init__(self, at: dt.datetime) -> None:
        self.at = at

    @classmethod
    def of(cls, value: Any, _: Path) -> Self:
        """The moment of a text or of one of TOML's times."""
        text = value.isoformat() if isinstance(value, dt.date) else value
        found = moment_of(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError("a time as 2026-11-22T10:00:00Z, or a date as 2026-11-22")
        return cls(found.astimezone(dt.UTC))


class Options(dict[str, str]):
    """Options of a format, or settings of Spark; nested tables are names with dots."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, _: Path) -> Self:
        """The options, as the text that Spark takes."""
        if not isinstance(value, dict):
            raise ValueError("a table of options")
        return cls({name: _format_value(name, each) for name, each in _flatten(value).items()})


def _flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": each for inner, each in _flatten(value).items()}
        else:
            flat[key] = value
    return flat


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise ValueError(f"options, and {name} = {value!r:.80} is not text, a number, true, false "
                     f"or a list of text")  # fmt: skip
