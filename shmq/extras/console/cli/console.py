"""``shmq console``: pages, the HTTP API and metrics, in a process beside the queues."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.extra import check_extra
from shmq.cli.shared.flags import connected, log_format_flag
from shmq.host.supervision.audit import to_file
from shmq.host.supervision.stderr import show_on_stderr, show_stack_on_demand
from shmq.server.config.settings import LEVELS, Settings, Source

_NEEDED: Final = ("jinja2", "msgspec", "starlette", "uvicorn", "websockets")


def check_console() -> None:
    """Raise :class:`~shmq.ShmqError` if a package of the console is not installed."""
    check_extra("the console", "console", _NEEDED)


@click.command(epilog="Example: shmq console --bind 127.0.0.1:0")
@click.option(
    "-b",
    "--bind",
    metavar="ADDRESS",
    default="127.0.0.1:9990",
    show_default=True,
    help="HOST:PORT or unix:PATH; beyond this host with tokens and TLS only.",
)
@click.option(
    "-c",
    "--config",
    type=params.FilePath(path_type=Path),
    metavar="FILE",
    help="The tokens and TLS of a server, as for shmq serve.",
)
@click.option("--allow-changes", is_flag=True, help="Let callers with the right change things.")
@click.option("--prefix", metavar="PATH", default="", help="The path behind a reverse proxy.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Another name of this host in a browser's address; may be repeated.",
)
@click.option("--metrics-open", is_flag=True, help="Give /metrics to callers without a token.")
@click.option(
    "--metrics-bind", metavar="ADDRESS", help="Serve /metrics there as well, without a token."
)
@click.option(
    "--metrics-queues",
    type=params.WholeRange(0, 1_000_000),
    metavar="N",
    default=1000,
    show_default=True,
    help="With more queues, totals and the worst 100 are in /metrics.",
)
@click.option(
    "-l",
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    envvar="SHMQ_LOG",
    help="The least severe events in the log.  [default: $SHMQ_LOG, or info]",
)
@log_format_flag
@click.option("--insecure", is_flag=True, help="Let other hosts in without tokens or TLS.")
@connected
def console(
    broker: shmq.Broker,
    bind: str,
    config: Path | None,
    allow_changes: bool,
    prefix: str,
    hosts: tuple[str, ...],
    metrics_open: bool,
    metrics_bind: str | None,
    metrics_queues: int,
    log_level: str,
    insecure: bool,
) -> None:
    """Show the queues, streams and exchanges of a namespace or a server in a browser.

    It only shows, unless --allow-changes is given. It is beside the queues, not in the way of
    messages: when it ends, nothing stops. SIGHUP reads the tokens again.
    """
    check_console()
    from shmq.extras.console.server.process import ConsoleProcess  # noqa: PLC0415
    from shmq.extras.console.settings import Address, ConsoleSettings  # noqa: PLC0415

    source = Source(config)
    server = source.read() if config is not None else Settings()
    settings = ConsoleSettings(
        bind=Address.parse(bind),
        metrics_bind=Address.parse(metrics_bind) if metrics_bind is not None else None,
        metrics_open=metrics_open,
        metrics_queues=metrics_queues,
        prefix=prefix,
        hosts=hosts,
        allow_changes=allow_changes,
        insecure=insecure,
        tls=server.tls,
        tokens=server.tokens,
    )
    logging.getLogger("shmq").handlers.clear()
    show_on_stderr("shmq", logging.getLevelNamesMapping()[log_level.upper()])
    show_stack_on_demand()
    reread = (lambda: source.read().tokens) if config is not None else None
    with to_file(server.audit_log):
        ConsoleProcess(broker, settings, reread).run()
