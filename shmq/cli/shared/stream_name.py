"""The arguments that say what is read of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

import shmq
from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.flags import BRIEFLY
from shmq.cli.shared.output import counted, note

__all__ = ["damage_flag", "partition_flag", "stream_argument", "tell_damage"]

F = TypeVar("F", bound=Callable[..., Any])


def stream_argument(command: F) -> F:
    """``STREAM``, completed by the shell, as the parameter ``name``."""
    return click.argument("name", metavar="STREAM", shell_complete=_complete)(command)


def partition_flag(help: str) -> Callable[[F], F]:
    """``-p/--partition N``, as the parameter ``partition``."""
    return click.option(
        "-p", "--partition", type=click.IntRange(min=0), metavar="N", default=None, help=help
    )


def damage_flag() -> Callable[[F], F]:
    """``--on-damage raise|skip``, as the parameter ``on_damage``."""
    return click.option(
        "--on-damage",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        help="Where a file is damaged: fail, or pass over those records and count them [raise].",
    )


def tell_damage(records: int) -> None:
    """Say how many records were passed over, if any were."""
    if records:
        note(f"{counted(records, 'record')} passed over: they cannot be read, a file is damaged")


def _complete(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The names of streams that begin so; none where they cannot be had."""
    try:
        target = target_of(context)
        with target.connect(connect_timeout=BRIEFLY, request_timeout=BRIEFLY) as broker:
            return [s.name for s in broker.list_streams() if s.name.startswith(begun)]
    except (shmq.ShmqError, OSError, click.ClickException):
        return []
