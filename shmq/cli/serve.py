"""``shmq serve``: a server, until it is stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import click

from shmq import plugins
from shmq.cli.shared import params
from shmq.cli.shared.flags import data_dir_flag
from shmq.cli.shared.output import show
from shmq.cli.shared.target import target_of
from shmq.host.supervision.audit import AuditFile
from shmq.host.supervision.child_process import ChildProcess
from shmq.host.supervision.stderr import (
    LOG_FORMATS,
    set_log_format,
    show_on_stderr,
    show_stack_on_demand,
)
from shmq.protocol.opcodes import DEFAULT_PORT
from shmq.server import listener
from shmq.server.config.settings import LEVELS, Source
from shmq.server.supervisor import Supervisor

#: Makes the processes that a plugin adds: see `shmq.plugins`.
_Start: TypeAlias = Callable[[Source], list[ChildProcess]]

#: What plugins add to ``shmq serve``: see `shmq.plugins`.
_extensions: list[Any] = list(plugins.load_all("shmq.serve").values())


def _add_options(command: Callable[..., None]) -> Callable[..., None]:
    for extension in reversed(_extensions):
        command = extension.add_options(command)
    return command


@click.command(epilog="Example: shmq serve --port 0")
@click.option(
    "-b",
    "--bind",
    metavar="ADDRESS",
    help="The address to listen on, or unix:/PATH; a public address needs tokens and TLS.  "
    "[default: 127.0.0.1]",
)
@click.option(
    "-p",
    "--port",
    type=params.WholeRange(0, 65_535),
    help=f"The port; 0 chooses a free one.  [default: {DEFAULT_PORT}]",
)
@click.option(
    "-w",
    "--workers",
    type=params.WholeRange(min=1),
    metavar="N",
    help="Front-end processes.  [default: one per CPU, at most 4]",
)
@click.option(
    "-n", "--namespace", metavar="NAME", help="The same as in shmq -n NAME serve: the namespace."
)
@click.option(
    "-l",
    "--log-level",
    type=click.Choice(LEVELS),
    help="The least severe events in the log.  [default: $SHMQ_LOG, or info]",
)
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="One line of text or JSON for each event in the log.  [default: text]",
)
@click.option(
    "--audit-log",
    type=params.FilePath(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append audit events to FILE too, as JSON.  [default: $SHMQ_AUDIT_LOG]",
)
@data_dir_flag
@click.option(
    "--persist/--no-persist",
    default=None,
    help="Whether to recover and write durable queues and streams.  [default: persist]",
)
@click.option(
    "-c",
    "--config",
    type=params.FilePath(path_type=Path),
    metavar="FILE",
    envvar="SHMQ_CONFIG",
    help="All settings, tokens, TLS and limits too, as TOML; flags override them.  "
    "[default: $SHMQ_CONFIG]",
)
@click.option(
    "--insecure", is_flag=True, default=None, help="Allow other hosts without tokens or TLS."
)
@click.option(
    "--check",
    is_flag=True,
    help="Check the settings, on the host that is to serve, and serve nothing.",
)
@_add_options
def serve(config: Path | None, check: bool, **given: Any) -> None:
    """Serve the queues, streams and exchanges of a namespace over TCP, until stopped.

    Local processes do not need a server; they keep working beside it. SIGTERM and Ctrl-C let
    open requests be answered; SIGHUP reads the configuration again.
    """
    context = click.get_current_context()
    for key in ("data_dir", "audit_log"):
        if given[key] is not None:
            given[key] = Path(given[key]).absolute()
    starts = [extension.take_options(given) for extension in _extensions]
    over = {key: value for key, value in given.items() if value is not None}
    if "namespace" not in over and (target := target_of(context)).origin is not None:
        over["namespace"] = target.namespace
    source = Source(config, over)
    if check:
        _check(source, starts)
        return
    supervisor = Supervisor(source, [child for start in starts for child in start(source)])
    set_log_format(supervisor.settings.log_format)
    logging.getLogger("shmq").handlers.clear()
    show_on_stderr("shmq", supervisor.settings.level)
    show_stack_on_demand()
    supervisor.run()


def _check(source: Source, starts: Iterable[_Start]) -> None:
    """Raise what a start would, as far as it can be known without one."""
    settings = source.read()
    for start in starts:
        start(source)  # no process starts before the supervisor does
    if settings.tls is not None:
        settings.tls.context()
    if settings.audit_log is not None:
        AuditFile(settings.audit_log).check()
    listener.check(settings)
    tokens = f"tokens: {len(settings.tokens)}" if settings.tokens else "no tokens"
    sealed = "TLS" if settings.tls is not None else "no TLS"
    where = (
        settings.bind
        if settings.bind.startswith(listener.UNIX)
        else f"{settings.bind} port {settings.port}"
    )
    show(f"{source.path or 'the settings'}: fine: {where}, {tokens}, {sealed}")
