"""The flags that several commands share, and the broker they are carried out on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import click

import shmq
from shmq.cli.shared.broker_target import target_of

__all__ = [
    "BRIEFLY",
    "complete_queues",
    "connected",
    "count_flag",
    "data_dir_flag",
    "json_flag",
    "namespace_of",
    "queue_flag",
    "queue_name",
    "queues_flag",
    "where_flag",
    "yes_flag",
]

#: How long a shell waits for the names of a server's queues, in seconds.
BRIEFLY = 1.0

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


def connected(command: Callable[Concatenate[shmq.Broker, P], R]) -> Callable[P, R]:
    """Give ``command`` the broker of the place asked for, and close it behind it."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with target_of(click.get_current_context()).connect() as broker:
            return command(broker, *args, **kwargs)

    return run


def namespace_of(context: click.Context) -> str:
    """The namespace of this host to work on. Raises click.UsageError if it is a server's."""
    return target_of(context).namespace


def queue_flag(*, required: bool = True, help: str = "The queue's name.") -> Callable[[F], F]:
    """``-q/--queue NAME``, completed by the shell, as the parameter ``name``."""
    return click.option(
        "-q",
        "--queue",
        "name",
        metavar="NAME",
        required=required,
        help=help,
        shell_complete=complete_queues,
    )


def queue_name(
    *,
    required: bool = True,
    help: str = "The queue's name.",
    complete: Callable[[click.Context, click.Parameter, str], list[str]] | None = None,
) -> Callable[[F], F]:
    """``NAME`` or ``-q/--queue NAME``, completed by the shell, as the parameter ``name``."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(*args: Any, positional: str | None, name: str | None, **kwargs: Any) -> Any:
            if positional is not None and name is not None:
                raise click.UsageError(f"{positional!r} and -q {name!r} are two names: drop one")
            chosen = name if positional is None else positional
            if chosen is None and required:
                path = click.get_current_context().command_path
                raise click.UsageError(f"a name is missing: {path} NAME, or --queue NAME")
            return command(*args, name=chosen, **kwargs)

        place = click.argument(
            "positional",
            metavar="NAME" if required else "[NAME]",
            required=False,
            shell_complete=complete or complete_queues,
        )
        return cast("F", queue_flag(required=False, help=help)(place(run)))

    return decorate


def queues_flag(help: str) -> Callable[[F], F]:
    """``-q/--queue NAME``, any number of times, as the parameter ``names``."""
    return click.option(
        "-q",
        "--queue",
        "names",
        metavar="NAME",
        multiple=True,
        help=f"The queue; may be repeated. Without it, {help}.",
        shell_complete=complete_queues,
    )


def data_dir_flag(command: F) -> F:
    """``-d/--data-dir DIR``, as the parameter ``data_dir``."""
    return click.option(
        "-d",
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Where durable queues are kept.  [default: SHMQ_DATA_DIR, or see the manual]",
    )(command)


def json_flag(command: F) -> F:
    """``--json``, as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        command
    )


def yes_flag(command: F) -> F:
    """``-y/--yes``, as the parameter ``yes``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def count_flag(help: str, default: int | None = None) -> Callable[[F], F]:
    """``-n/--count COUNT``, at least 1, as the parameter ``count``."""
    return click.option(
        "-n",
        "--count",
        type=click.IntRange(min=1),
        metavar="COUNT",
        default=default,
        help=help,
    )


def where_flag(help: str) -> Callable[[F], F]:
    """``--where EXPR``, as the parameter ``where``: an expression over messages, or None."""
    return click.option("--where", metavar="EXPR", help=help)


def complete_queues(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The names of queues that begin so; none where they cannot be had."""
    try:
        target = target_of(context)
        with target.connect(connect_timeout=BRIEFLY, request_timeout=BRIEFLY) as broker:
            return [name for name in broker.queue_names() if name.startswith(begun)]
    except (shmq.ShmqError, OSError, click.ClickException):
        return []
