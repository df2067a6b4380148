"""The flags that several commands share, and the broker that a command works on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

import shmq
from shmq.cli.shared.broker_target import target_of

__all__ = [
    "Group",
    "connected",
    "count_flag",
    "data_dir_flag",
    "json_flag",
    "namespace_of",
    "partition_flag",
    "where_flag",
    "yes_flag",
]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Group(click.Group):
    """A group whose help lists the commands in the order in which they were added."""

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
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="The directory of durable queues and streams.  [default: $SHMQ_DATA_DIR, or a "
        "directory of this user]",
    )(command)


def json_flag(command: F) -> F:
    """``--json``, as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        command
    )


def yes_flag(command: F) -> F:
    """``-y/--yes``, as the parameter ``yes``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


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


def partition_flag(help: str) -> Callable[[F], F]:
    """``-p/--partition N``, as the parameter ``partition``."""
    return click.option(
        "-p", "--partition", type=click.IntRange(min=0), metavar="N", default=None, help=help
    )


def where_flag(help: str) -> Callable[[F], F]:
    """``--where EXPR``, as the parameter ``where``: an expression, or None."""
    return click.option("--where", metavar="EXPR", help=help)
