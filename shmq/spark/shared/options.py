"""The options of a format: a table lists them, and a refused option has its reason.

Spark passes every option as text and folds the case of its name.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from shmq.errors import InvalidOption
from shmq.suggestions import suggest
from shmq.units import moment_of, seconds_of, size_of


class Use(enum.Flag):
    """What a format is used for."""

    BATCH = enum.auto()
    STREAM = enum.auto()
    WRITE = enum.auto()


BATCH: Final = Use.BATCH
STREAM: Final = Use.STREAM
WRITE: Final = Use.WRITE
READ: Final = BATCH | STREAM
ALWAYS: Final = READ | WRITE

#: The name of each use in an error.
_SAID: Final = {BATCH: "spark.read", STREAM: "spark.readStream", WRITE: "write and writeStream"}

#: Spark's own options, which it also passes to a source.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "pathglobfilter"})

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_US: Final = (1 << 63) - 1

Reading = Callable[[str], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, how its text is read, its default, and the uses that have it.

    ``read`` raises a ValueError that says what is allowed.
    """

    name: str
    read: Reading
    default: Any
    uses: Use


def parse(
    table: Sequence[Option],
    given: Mapping[str, str],
    use: Use,
    *,
    form: str,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The value of every option of that ``use`` by name: the ``given`` ones, else defaults.

    ``form`` is the format's name. ``refused`` has, by lower-case name, the reason why an option
    known from other formats does not exist here, or not for this use; ``prefix.*`` stands for
    all names with that prefix. Raises :class:`~shmq.InvalidOption` for an
    option that is unknown or of another use, and for a value that is not allowed.
    """
    known = {option.name.lower(): option for option in table}
    chosen = {option.name: option.default for option in table if use in option.uses}
    for key, text in given.items():
        folded = key.lower()
        if folded in _OF_SPARK or folded.startswith("__"):
            continue
        option = known.get(folded)
        if option is None:
            raise InvalidOption(_make_unknown_error(key, known, form, refused))
        if use not in option.uses:
            meant = " and ".join(said for each, said in _SAID.items() if each in option.uses)
            advice = refused.get(folded, "leave it out")
            raise InvalidOption(f"the option {option.name}={text!r} is for {meant}: {advice}")
        try:
            chosen[option.name] = option.read(text)
        except ValueError as error:
            raise InvalidOption(f"the option {option.name}={text!r} must be {error}") from None
    return chosen


def use_of(table: Sequence[Option], given: Mapping[str, str]) -> Use:
    """A use that these options fit: a stream, if one of the options is for streams only."""
    alone = {option.name.lower() for option in table if option.uses == STREAM}
    return STREAM if any(key.lower() in alone for key in given) else BATCH


def _make_unknown_error(
    key: str, known: Mapping[str, Option], form: str, refused: Mapping[str, str]
) -> str:
    folded = key.lower()
    if reason := refused.get(folded) or refused.get(f"{folded.partition('.')[0]}.*"):
        return f"format({form!r}) has no option {key!r}: {reason}"
    names = (option.name for option in known.values())
    return f"format({form!r}) has no option {key!r}: {suggest(key, names)}"


def text(given: str) -> str:
    """Any non-empty text."""
    if not given.strip():
        raise ValueError("some text")
    return given.strip()


def truth(given: str) -> bool:
    """``true`` or ``false``."""
    try:
        return {"true": True, "false": False}[given.strip().lower()]
    except KeyError:
        raise ValueError("true or false") from None


def names(given: str) -> tuple[str, ...]:
    """Names separated by commas: at least one, and no duplicates."""
    found = tuple(part.strip() for part in given.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("one or more names with commas between them, none of them twice")
    return found


def pattern(given: str) -> re.Pattern[str]:
    """A regular expression in Python's syntax."""
    try:
        return re.compile(text(given))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None


def whole(least: int, most: int) -> Reading:
    """A whole number within the bounds."""
    return _make_bounded(least, most, _parse_digits, f"a whole number from {least:,} to {most:,}")


def size(least: int, most: int) -> Reading:
    """A number of bytes within the bounds."""
    allowed = f"a number of bytes from {least:,} to {most:,}, as 64k, 16m or 1g"
    return _make_bounded(least, most, size_of, allowed)


def seconds(least: float, most: float) -> Reading:
    """A time within the bounds, in seconds."""
    allowed = f"a time from {least:g} to {most:g} seconds, as 30, 500ms or 10min"
    return _make_bounded(least, most, seconds_of, allowed)


def _make_bounded(
    least: float, most: float, number: Callable[[str], float | None], allowed: str
) -> Reading:
    def read(given: str) -> float:
        found = number(given)
        if found is None or not least <= found <= most:
            raise ValueError(allowed)
        return found

    return read


def _parse_digits(given: str) -> int | None:
    return int(given) if re.fullmatch(r"\s*\d{1,20}\s*", given, re.ASCII) else None


def moment(given: str) -> int:
    """A time in us since 1970, given in ms since 1970, as in Kafka's connector, or ISO 8601."""
    found: int | None = None
    if (whole := _parse_digits(given)) is not None:
        found = whole * 1000
    elif (moment := moment_of(given)) is not None:
        found = (moment - _EPOCH) // dt.timedelta(microseconds=1)
    if found is None or found > _LAST_US:
        raise ValueError(
            "ms since 1970, or a time such as 2026-01-31T12:00:00Z (UTC, unless it says where)"
        )
    return found


def one_of(*allowed: str) -> Reading:
    """One of these words."""

    def read(given: str) -> str:
        if given.strip() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return given.strip()

    return read


def several_of(*allowed: str) -> Reading:
    """Some of these words, separated by commas, each once, in any order."""

    def read(given: str) -> tuple[str, ...]:
        try:
            found = names(given)
        except ValueError:
            found = ("",)
        if not set(found) <= set(allowed):
            raise ValueError(f"some of {', '.join(allowed)}, with commas between them")
        return found

    return read


def stopped(chosen: Mapping[str, Any]) -> bool:
    """Whether the stop file of a stream exists."""
    return chosen["stopFile"] is not None and os.path.lexists(chosen["stopFile"])
