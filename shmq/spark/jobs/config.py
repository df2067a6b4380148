"""A job's configuration: tables define what its file may have, and the file is checked by them.

A wrong file raises one :class:`~shmq.InvalidOption` that names the file, the table, the key and
the value, and what to write instead.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from shmq.errors import InvalidOption
from shmq.spark.jobs.values import Check, flattened

__all__ = ["NOWHERE", "Config", "Key", "Rest", "Table", "read", "template"]

#: No place.
NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})

#: Checks the entries of a table other than its keys. It gets these entries, the values of the
#: keys, and the default place, and returns the table's ``options`` for the job. Raises
#: InvalidOption.
Rest = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, str]], Mapping[str, str]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a table; without a default it has an example for the template."""

    name: str
    #: Its purpose in one line: the comment above it in the template.
    about: str
    #: Converts the file's value to the job's.
    check: Check
    #: The job's value if the file has none.
    default: Any = None
    #: Whether the file must have it.
    required: bool = False
    #: The value in the template, as in TOML.
    example: Any = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the file; the table without a name is the top of the file."""

    name: str
    about: str
    keys: tuple[Key, ...] = ()
    #: Whether the file may lack it; the job then gets None for it.
    optional: bool = False
    #: Whether the template has it even if it is optional.
    begun: bool = False
    #: Takes the entries that are not keys; None: there must be none.
    rest: Rest | None = None
    #: Example lines for the template, of entries that ``rest`` takes.
    examples: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """The checked configuration of a job."""

    #: The file.
    path: Path
    _tables: Mapping[str, Mapping[str, Any] | None]

    def __getitem__(self, table: str) -> Mapping[str, Any]:
        """The values of a table, with every key; ``""`` is the top of the file.

        Raises LookupError for an optional table that the file does not have.
        """
        values = self._tables[table]
        if values is None:
            raise LookupError(f"{self.path} has no table [{table}]")
        return values

    def __contains__(self, table: str) -> bool:
        """Whether the job has that table: it is in the file, or not optional."""
        return self._tables.get(table) is not None

    def wrong(self, problem: str) -> InvalidOption:
        """The error for that problem of the file."""
        return InvalidOption(f"{self.path}: {problem}")


def read(path: Path, tables: Sequence[Table], place: Mapping[str, str] = NOWHERE) -> Config:
    """Read and check the file. Raises :class:`~shmq.InvalidOption` for the first problem in it.

    ``place`` has the options of ``format("shmq")`` that say where queues are. It applies to
    tables that do not say it themselves.
    """
    try:
        found = _parsed(path)
        top = next((table for table in tables if not table.name), Table(name="", about=""))
        named = {table.name: table for table in tables if table.name}
        loose = {key: value for key, value in found.items() if key not in named}
        _refuse_unknown_tables(loose, top, named)
        made: dict[str, Mapping[str, Any] | None] = {"": _checked(top, loose, path.parent, place)}
        for name, table in named.items():
            made[name] = _table(table, found.get(name), path.parent, place)
    except InvalidOption as error:
        raise InvalidOption(f"{path}: {error}") from error
    return Config(path, made)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOption(f"it cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidOption(f"it is not TOML: {error}") from error


def _refuse_unknown_tables(
    loose: Mapping[str, Any], top: Table, named: Mapping[str, Table]
) -> None:
    own = {key.name for key in top.keys}
    for key, value in loose.items():
        if key in own:
            continue
        if isinstance(value, dict):
            raise InvalidOption(f"unknown table [{key}]: {_nearest(key, named, '[{}]')}")
        place = next((name for name, table in named.items() if key in _names_of(table)), None)
        if place is not None:
            raise InvalidOption(
                f"unknown key {key!r} at the top: it stands in [{place}], and keys of the top "
                f"before the first table"
            )


def _table(
    table: Table, found: Any, folder: Path, place: Mapping[str, str]
) -> Mapping[str, Any] | None:
    if found is None and table.optional:
        return None
    if found is not None and not isinstance(found, dict):
        raise InvalidOption(f"{table.name} must be a table, [{table.name}], not {found!r:.80}")
    return _checked(table, found or {}, folder, place)


def _checked(
    table: Table, found: Mapping[str, Any], folder: Path, place: Mapping[str, str]
) -> Mapping[str, Any]:
    where = f" in [{table.name}]" if table.name else ""
    known = {key.name: key for key in table.keys}
    values: dict[str, Any] = {key.name: key.default for key in table.keys}
    others: dict[str, Any] = {}
    for name, value in found.items():
        if name in known:
            values[name] = _value(known[name], value, folder, where)
        elif table.rest is None:
            raise InvalidOption(f"unknown key {name!r}{where}: {_nearest(name, known, '{!r}')}")
        else:
            others |= flattened({name: value})
    for key in table.keys:
        if key.required and key.name not in found:
            raise InvalidOption(f"{key.name!r} is missing{where}: {key.about}")
    if table.rest is None:
        return values
    try:
        return {**values, "options": table.rest(others, values, place)}
    except InvalidOption as error:
        raise InvalidOption(f"[{table.name}]: {error}") from error


def _value(key: Key, value: Any, folder: Path, where: str) -> Any:
    try:
        return key.check(value, folder)
    except ValueError as error:
        raise InvalidOption(f"{key.name} = {value!r:.80}{where} must be {error}") from None


def _names_of(table: Table) -> set[str]:
    return {key.name for key in table.keys}


def _nearest(name: str, known: Iterable[str], form: str) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {form.format(near[0])}?"
    return "there " + ("are " + ", ".join(map(form.format, names)) if names else "is none")


def template(tables: Iterable[Table]) -> str:
    """A TOML file of these tables: required keys are set, the others are commented out."""
    named = sorted(tables, key=lambda table: bool(table.name))
    return "\n".join(filter(None, ("\n".join(_lines(table)) for table in named)))


def _lines(table: Table) -> Iterator[str]:
    off = "# " if table.optional and not table.begun else ""
    if table.name:
        if table.about:
            yield f"# {table.about}"
        yield f"{off}[{table.name}]"
    for line in table.examples:
        yield f"{off}{line}"
    for key in table.keys:
        yield from _of_key(key, off)
    yield ""


def _of_key(key: Key, off: str) -> Iterator[str]:
    yield f"# {key.about}"
    value = key.example if key.example is not None else key.default
    if key.required:
        yield f"{off}{key.name} = {_toml(value)}"
    elif value is None:
        yield f"# {key.name} = "
    else:
        yield f"# {key.name} = {_toml(value)}"


def _toml(value: Any) -> str:
    """The value in TOML. For plain values and lists of them, JSON's form is also TOML's."""
    return json.dumps(value)
