"""The flags of a command that makes something, from the table of its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from shmq.api.options import Option, Options
from shmq.cli.shared import params

__all__ = ["given_options", "option_flags", "size_in_words"]

F = TypeVar("F", bound=Callable[..., Any])

#: How a value is read, and what stands for it in the help; words are a choice.
_READ: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "count": (params.whole, "N"),
    "bytes": (params.size, "SIZE"),
    "seconds": (params.seconds, "TIME"),
    "name": (str, "NAME"),
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
    kind: Any = click.Choice(row.choices)
    metavar = None
    if row.kind in _READ:
        kind, metavar = _READ[row.kind]
        if row.none:
            kind, metavar = params.or_none(kind), f"{metavar}|none"
    return click.option(
        "--" + (row.flag or name.replace("_", "-")),
        name,
        type=kind,
        metavar=metavar,
        help=f"{text}.  [default: {shown}]",
    )


def _default_in_words(row: Option, default: Any) -> str:
    """The default as one types it, or what it follows."""
    if row.follows or default is None:
        return str(row.follows or "none")
    if row.kind == "bytes":
        return size_in_words(default).replace(" ", "")
    return f"{default:g}s" if row.kind == "seconds" else str(default)


def size_in_words(size: int) -> str:
    """A number of bytes in the largest unit of which it is a whole number."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size:,}"
