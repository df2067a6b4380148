"""``shmq ping``: whether a server answers, and how fast."""

from __future__ import annotations

import statistics
import time

import click

from shmq.cli.shared import params
from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.flags import count_flag, json_flag
from shmq.cli.shared.output import duration, show, show_json
from shmq.cli.shared.stop_signal import Stop
from shmq.client.remote.broker import RemoteBroker

__all__ = ["ping"]

#: The most bytes that a PING carries.
_MOST = 64


@click.command(short_help="See whether a server answers, and how fast.")
@count_flag("Ping COUNT times.  [default: 4]", default=4)
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
    help=f"Bytes to send and to get back, at most {_MOST}.",
)  # fmt: skip
@json_flag
@click.pass_context
def ping(
    context: click.Context, count: int, interval: float, timeout: float, size: int, as_json: bool
) -> None:
    """Send PINGs to a server, and show how long the answers take.

    To connect, with TLS and the token, stands apart.
    """
    target = target_of(context)
    if target.place.url is None:
        raise click.UsageError("only a server can be pinged: say which one with --url")
    if not timeout > 0:
        raise click.BadParameter("it must be more than 0", param_hint="'--timeout'")
    times: list[float] = []
    began = time.perf_counter()
    with target.connect() as broker, Stop() as stop:
        connected = time.perf_counter() - began
        assert isinstance(broker, RemoteBroker)
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
