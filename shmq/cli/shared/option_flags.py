"""The flags of a command that makes something, from the table of its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from shmq.api.options import Option, Options
from shmq.cli.shared import params

__all__ = ["given_options", "option_flags"]

F = TypeVar("F", bound=Callable[..., Any])

_METAVARS: Final = {"count": "N", "bytes": "SIZE", "seconds": "TIME", "name": "NAME"}
_TYPES: Final[dict[str, Callable[[str], Any]]] = {
    "count": params.whole,
    "bytes": params.size,
    "seconds": params.seconds,
    "name": str,
}


def option_flags(table: type[Options]) -> Callable[[F], F]:
    """A flag for each option of ``table``, as the parameter of the option's name."""

    def decorate(command: F) -> F:
        for field in reversed(dataclasses.fields(table)):
            command = _flag(field.name, field.metadata["option"], field.default)(command)
        return command

    return decorate


def given_options(flags: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, of the parameters that :func:`option_flags` makes."""
    return {
        name: None if value is params.NONE else value
        for name, value in flags.items()
        if value is not None
    }


def _flag(name: str, row: Option, default: Any) -> Callable[[F], F]:
    text = row.text.replace("`", "") + (f"; none: {row.none}" if row.none else "")
    shown = _default_in_words(row, default).replace("`", "")
    convert = _TYPES.get(row.kind)
    if row.none and convert is not None:
        convert = params.or_none(convert)
    return click.option(
        "--" + (row.flag or name.replace("_", "-")),
        name,
        type=click.Choice(row.choices) if convert is None else convert,
        metavar=None if convert is None else _metavar_of(row),
        help=f"{text} [{shown}].",
    )


def _metavar_of(row: Option) -> str:
    """What stands behind the flag."""
    if row.kind == "choice":
        return "|".join(row.choices)
    return _METAVARS[row.kind] + ("|none" if row.none else "")


def _default_in_words(row: Option, default: Any) -> str:
    """The default as one types it, or what it follows."""
    if row.follows or default is None:
        return str(row.follows or "none")
    if row.kind == "bytes":
        return f"{default >> 20}MiB"
    return f"{default:g}s" if row.kind == "seconds" else str(default)
