"""``shmq ping`` and ``token``: what clients of a server need."""

from __future__ import annotations

import json
import statistics
import sys
import time

import click

from shmq.cli.shared import params
from shmq.cli.shared.flags import count_flag, json_flag
from shmq.cli.shared.output import duration, show, show_json
from shmq.cli.shared.target import target_of
from shmq.client.remote.broker import RemoteBroker
from shmq.host.supervision.signals import Stop
from shmq.server.config.tokens import hash_of, make_token

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
    "--size", type=params.WholeRange(0, _MOST), default=8, metavar="BYTES", show_default=True,
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
