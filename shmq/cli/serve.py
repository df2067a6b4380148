"""``shmq serve``: the queues of a namespace for remote clients."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.flags import data_dir_flag
from shmq.protocol.opcodes import DEFAULT_PORT
from shmq.server.settings import LEVELS, Source
from shmq.server.supervisor import Supervisor
from shmq.supervision.log_lines import show_on_stderr

__all__ = ["serve"]


@click.command(short_help="Serve the queues to remote clients.")
@click.option(
    "-b",
    "--bind",
    metavar="ADDRESS",
    help="Where to listen; beyond this host it takes tokens and TLS.  [default: 127.0.0.1]",
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65_535),
    help=f"The port; 0: one that is free.  [default: {DEFAULT_PORT}]",
)
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many front-end processes.  [default: one a CPU, at most 4]",
)
@click.option("-n", "--namespace", metavar="NAME", help="The namespace; as in shmq -n NAME serve.")
@click.option("-l", "--log-level", type=click.Choice(LEVELS), help="[default: info]")
@data_dir_flag
@click.option(
    "--persist/--no-persist",
    default=None,
    help="Whether durable queues are recovered and written.  [default: persist]",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="All settings, as TOML: tokens, TLS and limits, too. The flags go over it.",
)
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Listen beyond this host without tokens or TLS.",
)
def serve(config: Path | None, **given: Any) -> None:
    """Serve the queues of a namespace over TCP, until SIGTERM or Ctrl-C.

    Local processes go on without it: it attaches to the queues as they do. SIGTERM lets
    what is under way be answered, SIGHUP reads the configuration again.
    """
    context = click.get_current_context()
    if given["data_dir"] is not None:
        given["data_dir"] = Path(given["data_dir"]).absolute()
    over = {key: value for key, value in given.items() if value is not None}
    if "namespace" not in over and (target := target_of(context)).origin is not None:
        over["namespace"] = target.namespace
    supervisor = Supervisor(Source(config, over))
    logging.getLogger("shmq").handlers.clear()
    show_on_stderr("shmq", supervisor.settings.level)
    supervisor.run()
