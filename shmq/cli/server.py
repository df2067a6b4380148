"""``shmq serve``, ``ping`` and ``token``: a server."""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shmq import plugins
from shmq.cli.shared import params
from shmq.cli.shared.flags import count_flag, data_dir_flag, json_flag
from shmq.cli.shared.output import duration, show, show_json
from shmq.cli.shared.target import target_of
from shmq.client.remote.broker import RemoteBroker
from shmq.host.supervision.audit import AuditFile
from shmq.host.supervision.signals import Stop
from shmq.host.supervision.stderr import (
    LOG_FORMATS,
    set_log_format,
    show_on_stderr,
    show_stack_on_demand,
)
from shmq.protocol.opcodes import DEFAULT_PORT
from shmq.server import listener
from shmq.server.config.settings import LEVELS, Source
from shmq.server.config.tokens import hash_of, make_token
from shmq.server.supervisor import Supervisor

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
    help="The address to listen on; a public one needs tokens and TLS.  [default: 127.0.0.1]",
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65_535),
    help=f"The port; 0 chooses a free one.  [default: {DEFAULT_PORT}]",
)
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(min=1),
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
    type=click.Path(path_type=Path, dir_okay=False),
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
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="SHMQ_CONFIG",
    help="All settings, tokens, TLS and limits too, as TOML; flags override them.  "
    "[default: $SHMQ_CONFIG]",
)
@click.option(
    "--insecure", is_flag=True, default=None, help="Allow other hosts without tokens or TLS."
)
@click.option("--check", is_flag=True, help="Check the settings and serve nothing.")
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
        _check(source)
        return
    supervisor = Supervisor(source, [child for start in starts for child in start(source)])
    set_log_format(supervisor.settings.log_format)
    logging.getLogger("shmq").handlers.clear()
    show_on_stderr("shmq", supervisor.settings.level)
    show_stack_on_demand()
    supervisor.run()


def _check(source: Source) -> None:
    """Raise what a start would, as far as it can be known without one."""
    settings = source.read()
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


#: The largest PING, in bytes.
_MOST = 64


@click.command(epilog="Example: shmq --url shmq://127.0.0.1:9999 ping -n 2")
@count_flag("Send COUNT pings.  [default: 4]", default=4)
@click.option(
    "--interval", type=params.seconds, default="200ms", metavar="TIME", show_default=True,
    help="The time between two pings.",
)  # fmt: skip
@click.option(
    "--timeout", type=params.seconds, default="5s", metavar="TIME", show_default=True,
    help="How long an answer may take.",
)  # fmt: skip
@click.option(
    "--size", type=click.IntRange(0, _MOST), default=8, metavar="BYTES", show_default=True,
    help=f"Bytes in a ping, at most {_MOST}.",
)  # fmt: skip
@json_flag
@click.pass_context
def ping(
    context: click.Context, count: int, interval: float, timeout: float, size: int, as_json: bool
) -> None:
    """Measure how long a server takes to answer.

    The time to connect, with TLS and the token, is shown separately.
    """
    target = target_of(context)
    if target.place.url is None:
        raise click.UsageError("only a server can be pinged: name it, shmq --url URL ping")
    if not timeout > 0:
        raise click.BadParameter("it must be more than 0", param_hint="'--timeout'")
    server = target.server()
    times: list[float] = []
    began = time.perf_counter()
    with RemoteBroker(server) as broker, Stop() as stop:
        connected = time.perf_counter() - began
        if not as_json:
            show(f"{broker.server} at {broker.url}: connected in {duration(connected)}")
        try:
            with stop.interruptible():
                for number in range(1, count + 1):
                    times.append(broker.ping(bytes(size), timeout))
                    if not as_json:
                        show(f"{number}: {size} bytes in {duration(times[-1])}")
                    time.sleep(interval if number < count else 0)
        except KeyboardInterrupt:
            context.exit(128 + stop.signal)
        found = {"url": broker.url, "server": broker.server, "connect": connected, "times": times}
    if as_json:
        show_json(found)
    else:
        show(
            f"least {duration(min(times))}, median {duration(statistics.median(times))}, "
            f"most {duration(max(times))}"
        )


@click.command(epilog="Example: shmq token")
@click.option(
    "--hash", "given", is_flag=True, help="Read a token from standard input and print its hash."
)
@json_flag
def token(given: bool, as_json: bool) -> None:
    """Make a token for a client, and the hash of it for the server's configuration.

    The token is not stored. With --hash the token is read from standard input; a terminal
    does not show it.
    """
    if not given:
        made = make_token()
        made_and_hash = {"token": made, "hash": hash_of(made)}
        if as_json:
            click.echo(json.dumps(made_and_hash))
        else:
            for name, value in made_and_hash.items():
                click.echo(f"{name}  {value}")
        return
    if sys.stdin.isatty():
        shown = click.prompt("token", hide_input=True, err=True)
    else:
        shown = sys.stdin.readline().rstrip("\r\n")
    hashed = hash_of(shown)
    click.echo(json.dumps({"hash": hashed}) if as_json else hashed)
