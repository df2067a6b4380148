"""The flags that several commands share, those of an option table, and the broker of a command."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

import shmq
from shmq.api.options import Option, Options
from shmq.cli.shared import params
from shmq.cli.shared.target import target_of

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


#: The innermost context of the command line, in the `meta` of all of its contexts.
INNERMOST: Final = "shmq.innermost"


class _Context(click.Context):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.meta[INNERMOST] = self


class Group(click.Group):
    """A group whose help lists the commands in the order in which they were added."""

    context_class = _Context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, whose context `INNERMOST` will be."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            command.context_class = _Context
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of the commands, the everyday ones first."""
        return list(self.commands)


def connected(command: Callable[Concatenate[shmq.Broker, P], R]) -> Callable[P, R]:
    """Give ``command`` the broker that the command line chooses, and close it afterwards."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with target_of(click.get_current_context()).connect() as broker:
            return command(broker, *args, **kwargs)

    return run


def namespace_of(context: click.Context) -> str:
    """The chosen namespace of this host. Raises click.UsageError if a server is chosen."""
    return target_of(context).namespace


def data_dir_flag(command: F) -> F:
    """``-d/--data-dir DIR``, as the parameter ``data_dir``."""
    return click.option(
        "-d",
        "--data-dir",
        type=params.FilePath(path_type=Path, file_okay=False),
        metavar="DIR",
        help="The directory of durable queues and streams.  [default: $SHMQ_DATA_DIR, or a "
        "directory of this user]",
    )(command)


def json_flag(command: F) -> F:
    """``--json``, as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        command
    )


def all_flag(command: F) -> F:
    """``--all``, as the parameter ``every``."""
    return click.option(
        "--all",
        "every",
        is_flag=True,
        help="Show every row on a terminal, too, where more than 100 become totals and 20 rows.",
    )(command)


def yes_flag(command: F) -> F:
    """``-y/--yes``, as the parameter ``yes``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def plot_flag(help: str) -> Callable[[F], F]:
    """``--plot FILE``, as the parameter ``plot``: a path, or None."""
    return click.option(
        "--plot", type=params.FilePath(path_type=Path, dir_okay=False), metavar="FILE",
        help=f"{help} into FILE (.png, .svg, .pdf).",
    )  # fmt: skip


def quiet_flag(command: F) -> F:
    """``--quiet``, as the parameter ``quiet``."""
    return click.option("--quiet", is_flag=True, help="Show no progress.")(command)


def log_format_flag(command: F) -> F:
    """``--log-format``, for this process and those that it starts."""
    from shmq.host.supervision.stderr import LOG_FORMATS, set_log_format  # noqa: PLC0415 - for commands that run on

    def choose(_: click.Context, __: click.Parameter, form: str | None) -> str | None:
        if form is not None:
            set_log_format(form)
        return form

    return click.option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        callback=choose,
        expose_value=False,
        help="One line of text or JSON for each event in the log.  [default: text]",
    )(command)


def count_flag(help: str, default: int | None = None) -> Callable[[F], F]:
    """``-n/--count COUNT``, at least 1, as the parameter ``count``."""
    return click.option(
        "-n", "--count", type=params.WholeRange(min=1), metavar="COUNT", default=default, help=help
    )


def partition_flag(help: str) -> Callable[[F], F]:
    """``-p/--partition N``, as the parameter ``partition``."""
    return click.option(
        "-p", "--partition", type=params.WholeRange(min=0), metavar="N", default=None, help=help
    )


def where_flag(help: str) -> Callable[[F], F]:
    """``--where EXPR``, as the parameter ``where``: an expression, or None."""
    return click.option("--where", metavar="EXPR", help=help)


#: How a value is read, and what stands for it in the help; words are a choice.
_READ: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "count": (params.integer, "N"),
    "bytes": (params.size, "SIZE"),
    "seconds": (params.seconds, "TIME"),
    "name": (params.text, "NAME"),
}


def same_name_flag(other: str) -> Callable[[F], F]:
    """``--allow-same-name``, as the parameter of its name, which is None or True."""
    return click.option(
        "--allow-same-name",
        is_flag=True,
        default=None,
        help=f"Make it although a {other} has the name.",
    )


def option_flags(table: type[Options], *, alters: bool = False) -> Callable[[F], F]:
    """A flag for each option of ``table``, as the parameter of the option's name.

    ``alters``: those that are not given stay, and the help has only those that can be altered.
    """

    def decorate(command: F) -> F:
        for field in reversed(dataclasses.fields(table)):
            row = field.metadata["option"]
            command = _make_flag(field.name, row, field.default, alters)(command)
        return command

    return decorate


def given_options(flags: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, of the parameters that :func:`option_flags` makes."""
    return {
        name: None if value is params.NONE else value
        for name, value in flags.items()
        if value is not None
    }


def _make_flag(name: str, row: Option, default: Any, alters: bool) -> Callable[[F], F]:
    text = row.text.replace("`", "") + (f"; none: {row.none}" if row.none else "")
    if row.kind == "flag":
        flag = "--" + (row.flag or name.replace("_", "-"))
        return click.option(flag, name, is_flag=True, default=None, hidden=alters, help=f"{text}.")
    shown = "" if alters else f"  [default: {_describe_default(row, default).replace('`', '')}]"
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
        hidden=alters and not row.changed_by.startswith("alter"),
        help=f"{text}.{shown}",
    )


def _describe_default(row: Option, default: Any) -> str:
    """The default as one types it, or what it follows."""
    if row.follows or default is None:
        return str(row.follows or "none").replace("None", "none")
    if row.kind == "bytes":
        return size_in_words(default).replace(" ", "")
    return f"{default:g}s" if row.kind == "seconds" else str(default)


def size_in_words(size: int) -> str:
    """A number of bytes in the largest unit of which it is a whole number."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size:,}"
