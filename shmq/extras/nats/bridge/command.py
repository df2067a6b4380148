"""``shmq bridge``: a process between the queues of this host and a cluster."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shmq.cli.shared import params
from shmq.cli.shared.extra import check_extra
from shmq.cli.shared.flags import log_format_flag, namespace_of, quiet_flag
from shmq.cli.shared.metrics import serve_metrics
from shmq.cli.shared.progress import progress
from shmq.cli.shared.target import target_of
from shmq.extras.nats.bridge.progress import render_bridge
from shmq.host.supervision.signals import caught, ended_by
from shmq.host.supervision.stderr import show_on_stderr
from shmq.server.systemd import Manager

# With its packages alone.
if TYPE_CHECKING:
    from shmq.extras.nats.bridge.config import Bridge

log = logging.getLogger("shmq.bridge")

#: How often the thread that waits can be interrupted, in seconds.
_LOOK: Final = 0.2


@click.command(epilog="Example: shmq bridge --to nats://a:4222,b:4222,c:4222 --forward orders")
@click.option(
    "--config",
    "path",
    type=params.FilePath(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The routes, as TOML; instead of the flags.",
)
@click.option("--to", "url", metavar="URL", help="The cluster: nats://HOST:PORT,HOST:PORT/NAME.")
@click.option("--forward", multiple=True, metavar="NAME[=TO]", help="Send a queue to the cluster.")
@click.option("--backward", multiple=True, metavar="NAME[=TO]", help="Take a queue of the cluster.")
@click.option("--mirror", multiple=True, metavar="NAME[=TO]", help="Copy a stream to the cluster.")
@click.option("--drain", is_flag=True, help="End, with code 0, once nothing is left to take.")
@click.option("--metrics", metavar="HOST:PORT", help="Give the numbers to Prometheus there.")
@log_format_flag
@quiet_flag
@click.pass_context
def bridge(
    context: click.Context,
    path: Path | None,
    url: str | None,
    forward: tuple[str, ...],
    backward: tuple[str, ...],
    mirror: tuple[str, ...],
    drain: bool,
    metrics: str | None,
    quiet: bool,
) -> None:
    """Take messages between this host and a cluster, each once.

    While the cluster is away, a forwarded queue keeps what is put, and the bridge goes on when the
    cluster is back. Ctrl-C and SIGTERM end it between two batches, a second one at once; nothing
    is lost, and the next bridge goes on.
    """
    flags = (url, forward, backward, mirror)
    if (path is None) is not any(flags):
        raise click.UsageError("give either --config FILE, or --to URL with the routes")
    if path is None and url is None:
        raise click.UsageError(
            "the routes lead nowhere: name the cluster with --to nats://HOST:PORT"
        )
    check_extra("the bridge", "nats", ("msgspec", "nats"))
    from msgspec.structs import replace  # noqa: PLC0415

    from shmq.extras.nats.bridge.config import read  # noqa: PLC0415

    config = read(path) if path is not None else _make_bridge(*flags)
    if target_of(context).origin is not None or not config.namespace:
        config = replace(config, namespace=namespace_of(context))
    show_on_stderr("shmq.bridge")
    _run(config, metrics or config.metrics, drain=drain, quiet=quiet)


def _make_bridge(
    url: str | None, forward: tuple[str, ...], backward: tuple[str, ...], mirror: tuple[str, ...]
) -> Bridge:
    from shmq.extras.nats.bridge.config import Backward, Bridge, Forward, Mirror, check  # noqa: PLC0415

    return check(
        Bridge(
            url=url or "",
            forward=tuple(Forward(queue=a, to=b) for a, b in map(_split_pair, forward)),
            backward=tuple(Backward(queue=a, to=b) for a, b in map(_split_pair, backward)),
            mirror=tuple(Mirror(stream=a, to=b) for a, b in map(_split_pair, mirror)),
        )
    )


def _split_pair(text: str) -> tuple[str, str]:
    """The names of both sides; the second is empty if it is the first."""
    source, _, target = text.partition("=")
    return params.name(source), params.name(target) if target else ""


def _run(config: Bridge, metrics: str, *, drain: bool, quiet: bool) -> None:
    from shmq.extras.nats.bridge.bridge import RunningBridge  # noqa: PLC0415

    manager = Manager()
    ended: list[int] = []

    def on_signal(number: int) -> None:
        if ended:
            raise ended_by(number)
        ended.append(number)
        running.stop()

    running = RunningBridge(config, drain=drain)
    with contextlib.ExitStack() as stack:
        if metrics:
            serve_metrics(
                metrics, lambda: render_bridge(running.namespace, running.numbers()), stack, log
            )
        stack.enter_context(running)
        stack.enter_context(caught(on_signal))
        manager.ready(f"{len(config.routes)} routes")
        # A service has its log and its metrics: only one that ends has lines of progress.
        on_progress = stack.enter_context(progress("bridge", "messages", quiet=quiet, lines=drain))
        while not running.wait(_LOOK):
            numbers = running.numbers()
            sent = sum(one.sent + one.refused for one in numbers)
            lag = sum(one.lag_messages for one in numbers)
            on_progress(
                sent, sent + lag, text="" if all(one.connected for one in numbers) else "waiting"
            )
        manager.stopping()
    for route in running.numbers():
        log.info(
            "%s of %r to %r: %d taken, %d of them twice, %d refused",
            route.direction, route.source, route.target,
            route.sent, route.duplicates, route.refused,
        )  # fmt: skip
    if ended:
        raise ended_by(ended[0])
