"""The values of flags, parsed from text: sizes, times, priorities, headers.

Each function raises :class:`click.BadParameter`, which click completes with the
flag's name.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, get_args

import click

import shmq
from shmq.api.names import given_name
from shmq.api.options import Level
from shmq.units import seconds_of, size_of

T = TypeVar("T")


class WholeRange(click.IntRange):
    """A whole number in a range, written as for :func:`integer`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        return super().convert(integer(value) if isinstance(value, str) else value, param, ctx)


class FilePath(click.Path):
    """A path. An empty one, which would be the current directory, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


class Nothing(enum.Enum):
    """The type of :data:`NONE`."""

    NONE = "none"


#: The word ``none`` on the command line; None itself means that the flag was not given.
NONE: Final = Nothing.NONE

#: The most that an offset or a number of records may be.
_MOST: Final = (1 << 63) - 1

_ESCAPES: Final = {"\\0": b"\0", "\\n": b"\n", "\\r\\n": b"\r\n", "\\t": b"\t"}


def size(value: str) -> int:
    """Bytes: ``4096``, ``64KiB``, ``16MiB`` (``16M``), ``1.5GiB``; ``KB`` is 1000."""
    found = size_of(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a size such as 4096, 64KiB or 16MiB")
    return found


def seconds(value: str) -> float:
    """Seconds: ``30``, ``0.5``, ``30s``, ``500ms``, ``5m``, ``2h``, ``1d``."""
    found = seconds_of(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time such as 30, 30s, 500ms, 5m or 2h")
    return found


def moment(value: str) -> float:
    """Seconds since 1970: a number, or with a unit an age: ``90s``, ``5m``, ``2h``."""
    number = seconds(value)
    return number if re.fullmatch(r"[0-9.]+", value) else time.time() - number


def moment_or_end(value: str) -> float | str:
    """:func:`moment`, or one of the words ``earliest`` and ``latest``."""
    return value if value in {"earliest", "latest"} else moment(value)


def integer(value: str) -> int:
    """A whole number, of which the option that it is for checks the range."""
    if not re.fullmatch(r"-?[0-9]{1,100}", value, re.ASCII):
        raise click.BadParameter(f"{value!r:.120} is not a whole number")
    return int(value)


def whole(value: str) -> int:
    """A whole number, 0 or more."""
    number = integer(value)
    if not 0 <= number <= _MOST:
        raise click.BadParameter(f"{value!r} is out of range: 0 to {_MOST}")
    return number


def priority(value: str) -> int | str:
    """A priority: a number from 0, or ``low``, ``normal``, ``high``."""
    if value.lower() in get_args(Level):
        return value.lower()
    try:
        return whole(value)
    except click.BadParameter:
        raise click.BadParameter(f"{value!r} is not a number, low, normal or high") from None


def text(value: str) -> str:
    """Valid Unicode; text in another encoding is refused."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{value!r} is not UTF-8") from None
    return value


def name(value: str) -> str:
    """A name of a queue, a stream, an exchange or a group; text that is none is escaped."""
    try:
        return given_name(value)
    except shmq.InvalidName as error:
        raise click.BadParameter(str(error)) from None


def header(value: str) -> tuple[str, str]:
    """One header, ``KEY=VALUE``."""
    key, equals, content = text(value).partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
    return key, content


def wanted_header(value: str) -> tuple[str, str | None]:
    """A header that a message must have: ``KEY=VALUE``, or ``KEY`` for any value."""
    key, equals, content = text(value).partition("=")
    if not key:
        raise click.BadParameter(f"{value!r} is not of the form KEY or KEY=VALUE")
    return key, content if equals else None


def delimiter(value: str) -> bytes:
    r"""What stands between messages: any text, with ``\0``, ``\n``, ``\r\n``, ``\t``."""
    return _ESCAPES.get(value, value.encode(errors="surrogateescape"))


def separator(value: str) -> bytes:
    """Text between two values on a line, as in :func:`delimiter`; not empty."""
    if not value:
        raise click.BadParameter("it is empty: name the text that separates the key")
    return delimiter(value)


def or_none(convert: Callable[[str], T]) -> Callable[[str], T | Nothing]:
    """``convert``, or :data:`NONE` for the word ``none``."""

    def converted(value: str) -> T | Nothing:
        return NONE if value.lower() == "none" else convert(value)

    converted.__name__ = f"{convert.__name__}|none"
    return converted
