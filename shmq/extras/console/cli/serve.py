"""What the console adds to ``shmq serve``: see `shmq.plugins`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from shmq.extras.console.cli.console import check_console
from shmq.host.supervision.child_process import ChildProcess
from shmq.server.config.settings import Source

_F = TypeVar("_F", bound=Callable[..., None])


def add_options(command: _F) -> _F:
    """Add the options of the console to ``shmq serve``."""
    for option in reversed(
        (
            click.option("--console", metavar="ADDRESS", help="Run shmq console there as well."),
            click.option(
                "--metrics", metavar="ADDRESS", help="Serve /metrics there, without a token."
            ),
            click.option(
                "--allow-changes", is_flag=True, help="Let callers of the console change things."
            ),
        )
    ):
        command = option(command)
    return command


def take_options(values: dict[str, Any]) -> Callable[[Source], list[ChildProcess]]:
    """Remove the values of these options; the result starts the processes that they ask for."""
    console, metrics = values.pop("console"), values.pop("metrics")
    allow_changes = values.pop("allow_changes")
    if console is None and metrics is None:
        if allow_changes:
            raise click.UsageError("--allow-changes belongs to --console ADDRESS")
        return lambda _: []
    return lambda source: [_start(source, console, metrics, allow_changes=allow_changes)]


def _start(
    source: Source, console: str | None, metrics: str | None, *, allow_changes: bool
) -> ChildProcess:
    check_console()
    from shmq.extras.console.server.process import main  # noqa: PLC0415 - it needs its packages
    from shmq.extras.console.settings import Address, ConsoleSettings  # noqa: PLC0415 - it needs its packages

    read = source.read()
    settings = ConsoleSettings(
        bind=Address.parse(console) if console is not None else Address(),
        metrics_bind=Address.parse(metrics) if metrics is not None else None,
        metrics_only=console is None,
        allow_changes=allow_changes,
        insecure=read.insecure,
        tls=read.tls,
        tokens=read.tokens,
    )
    child = ChildProcess(
        "console",
        main,
        lambda: (source, settings, child.heartbeat, os.getpid()),
        logging.getLogger("shmq.server"),
        expected={0},
    )
    return child
