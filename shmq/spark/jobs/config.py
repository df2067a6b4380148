"""A job's file: TOML that is checked by the structs of the job.

A wrong file raises one :class:`~shmq.InvalidOption` that names the file, the table, the key and
the value, and what to write instead.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from shmq.errors import InvalidOption
from shmq.model.codec.toml import read_toml
from shmq.spark.jobs.values import Location, Master, Options, Trigger
from shmq.suggestions import suggest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: No place.
NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})

T = TypeVar("T", bound="Base")

#: The end of msgspec's message: where in the file it is wrong.
_WHERE: Final = re.compile(r"^(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_TYPE: Final = re.compile(r"Expected `(.*?)`(.*?)(?:, got `.*`)?")
_TYPES: Final = {"object": "a table", "str": "text", "int": "a whole number", "float": "a number"}


def key(about: str, example: Any = None, *, shown: bool = False) -> Meta:
    """The description of a key, and its value in the template, where an optional table is off.

    ``shown``: it is on.
    """
    return Meta(description=about, extra={"example": example, "shown": shown})


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a job's file."""

    def prepared(self, place: Mapping[str, str]) -> Table:  # noqa: ARG002 - for those with a place
        """The table, its options checked. ``place`` says where queues are if it does not.

        Raises :class:`~shmq.InvalidOption`.
        """
        return self


class Spark(Table, frozen=True, kw_only=True):
    """Spark itself."""

    master: Annotated[
        Master | None,
        key("The cluster, as spark://host:7077; this machine's cores without it.", "local[*]"),
    ] = None
    log: Annotated[
        Literal["off", "error", "warn", "info"],
        key("The least that Spark logs to stderr: off, error, warn or info."),
    ] = "off"
    conf: Annotated[Options, key("Any settings of Spark.", {"spark.driver.memory": "4g"})] = (
        msgspec.field(default_factory=Options)
    )


class Base(Table, frozen=True, kw_only=True):
    """The file of a job."""

    spark: Annotated[Spark, key("Spark itself.")] = Spark()

    def check(self) -> None:
        """Check what no type can express, such as keys that exclude each other, without a session.

        The tables are prepared. Raises :class:`~shmq.InvalidOption`.
        """

    @property
    def has_sql(self) -> bool:
        """Whether the file has SQL, which only a session can check."""
        return False

    def check_sql(self, session: SparkSession) -> None:
        """Check the SQL of the file. Raises :class:`~shmq.InvalidOption`."""


class StreamBase(Base, frozen=True, kw_only=True):
    """The file of a stream."""

    checkpoint: Annotated[
        Location,
        key(
            "Where it remembers how far it is. One for each job, and never to be shared.",
            "checkpoint",
        ),
    ]
    trigger: Annotated[
        Trigger,
        key(
            'How often a batch begins, as "10s"; "available-now": what is there now, then end.',
            "10s",
        ),
    ] = Trigger(10.0)


def read(path: Path, kind: type[T], place: Mapping[str, str] = NOWHERE) -> T:
    """Read and check the file. Raises :class:`~shmq.InvalidOption` for the first problem in it.

    ``place`` has the options of ``format("shmq")`` that say where queues are. It applies to
    tables that do not say it themselves.
    """
    try:
        found = read_toml(path)[0]
        config = _convert(found, kind, path.parent)
        config = msgspec.structs.replace(config, **dict(_prepare(config, place)))
        config.check()
    except InvalidOption as error:
        raise InvalidOption(f"{path}: {error}") from error
    return config


def _convert(found: dict[str, Any], kind: type[T], folder: Path) -> T:
    try:
        return msgspec.convert(found, kind, dec_hook=lambda wanted, value: wanted.of(value, folder))
    except msgspec.ValidationError as error:
        raise InvalidOption(_explain(str(error), found, kind)) from None


def _prepare(config: Base, place: Mapping[str, str]) -> Iterator[tuple[str, Table]]:
    for name in config.__struct_fields__:
        table = getattr(config, name)
        if isinstance(table, Table):
            try:
                yield name, table.prepared(place)
            except InvalidOption as error:
                raise InvalidOption(f"[{name}]: {error}") from error


# ---- errors ----


def _explain(text: str, found: Any, kind: type[Struct]) -> str:
    """Msgspec's message with the table, the value, and what is allowed."""
    parts_of = _WHERE.fullmatch(text)
    assert parts_of is not None
    problem, parts = parts_of[1], [part for part in (parts_of[2] or "").split(".") if part]
    field: Any = kind
    for part in parts:
        found = found.get(part) if isinstance(found, dict) else None
        field = _strip_optional(typing.get_type_hints(field)[part])
    if isinstance(field, type) and issubclass(field, Struct):
        table = f" in [{'.'.join(parts)}]" if parts else ""
        if unknown := _UNKNOWN.fullmatch(problem):
            nearest = _suggest_nearest(unknown[1], kind, field, parts)
            return f"unknown key {unknown[1]!r}{table}: {nearest}"
        if missing := _MISSING.fullmatch(problem):
            about = _get_meta(field, missing[1]).description
            return f"{missing[1]!r} is missing{table}: {about}"
        if not _TYPE.fullmatch(problem):
            return f"{problem}{table}"
    *tables, name = parts
    where = f" in [{'.'.join(tables)}]" if tables else ""
    return f"{name} = {found!r:.80}{where} must be {_describe_allowed(problem, field)}"


def _describe_allowed(problem: str, field: Any) -> str:
    if typing.get_origin(field) is Literal:
        return f"one of {', '.join(typing.get_args(field))}"
    expected = _TYPE.fullmatch(problem)
    if expected is None:
        return problem
    kind = expected[1].partition(" | ")[0]
    return f"{_TYPES.get(kind, kind)}{expected[2]}"


def _strip_optional(hint: Any) -> Any:
    """The type of a field that may be None."""
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint


def _suggest_nearest(name: str, top: type[Struct], table: type[Struct], parts: list[str]) -> str:
    names = list(table.__struct_fields__)
    if hint := suggest(name, names, ""):
        return hint
    if "options" in names:
        return f"options of the format stand in [{'.'.join([*parts, 'options'])}]"
    for other in _list_tables(top):
        if name in _strip_optional(typing.get_type_hints(top)[other]).__struct_fields__:
            return f"it stands in [{other}]"
    return f"known are {', '.join(names)}"


def _list_tables(kind: type[Struct]) -> list[str]:
    """The fields that are tables with keys of their own."""
    hints = {name: _strip_optional(hint) for name, hint in typing.get_type_hints(kind).items()}
    return [name for name, hint in hints.items() if _is_table(hint) and hint is not Options]


def _get_meta(kind: type[Struct], name: str) -> Meta:
    hint = typing.get_type_hints(kind, include_extras=True)[name]
    return next(each for each in hint.__metadata__ if isinstance(each, Meta) and each.description)


# ---- the template ----


def template(kind: type[Struct]) -> str:
    """A TOML file: required keys are set, the others are in comments."""
    return "\n".join(_format_lines(kind, (), "", {})).strip() + "\n"


def _format_lines(
    kind: type[Struct], table: tuple[str, ...], off: str, shown: Mapping[str, Any]
) -> Iterator[str]:
    """The lines of a table; the keys in ``shown`` are set, ``off`` is before what is not."""
    hints = {name: _strip_optional(hint) for name, hint in typing.get_type_hints(kind).items()}
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    tables = [name for name in fields if _is_table(hints[name])]
    for name in [each for each in fields if each not in tables]:
        meta = _get_meta(kind, name)
        yield f"# {meta.description}"
        example = shown.get(name, (meta.extra or {})["example"])
        value = fields[name].default if example is None else example
        dark = off if fields[name].required or name in shown else "# "
        yield f"{dark}{name} = {json.dumps(value)}"
    for name in sorted(tables, key=lambda each: (each == "spark", each != "source")):
        meta = _get_meta(kind, name)
        extra = meta.extra or {}
        example = shown.get(name, extra["example"]) or {}
        dark = off or ("# " if fields[name].default is None and not extra["shown"] else "")
        yield ""
        yield f"# {meta.description}"
        if issubclass(hints[name], Struct):
            yield f"{dark}[{'.'.join((*table, name))}]"
            yield from _format_lines(hints[name], (*table, name), dark, example)
        else:
            yield from _format_options((*table, name), dark if name in shown else "# ", example)


def _format_options(table: tuple[str, ...], off: str, example: Mapping[str, Any]) -> Iterator[str]:
    yield f"{off}[{'.'.join(table)}]"
    for option, value in example.items():
        yield f"{off}{json.dumps(option) if '.' in option else option} = {json.dumps(value)}"


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct | Options)
