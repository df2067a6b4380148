"""``shmq keeper``: do what is due in queues that nobody touches."""

from __future__ import annotations

import contextlib
import time

import click

from shmq.cli.shared import params
from shmq.cli.shared.flags import namespace_of
from shmq.cli.shared.output import note
from shmq.cli.shared.stop_signal import Stop
from shmq.server.keeper import Keeper

__all__ = ["keeper"]


@click.command(short_help="Do what is due where nobody looks.")
@click.option(
    "--interval",
    type=params.seconds,
    default="50ms",
    metavar="TIME",
    show_default=True,
    help="How long something may be overdue.",
)
@click.option("--once", is_flag=True, help="Do what is due now, and end.")
@click.pass_context
def keeper(context: click.Context, interval: float, once: bool) -> None:
    """Do what is due in every queue of the namespace, until Ctrl-C or SIGTERM.

    Ends leases, delays and ttls, and returns what dead processes held, in queues that
    nobody touches, too.
    """
    if not interval > 0:
        raise click.BadParameter("it must be more than 0", param_hint="'--interval'")
    namespace = namespace_of(context)
    kept = Keeper(namespace, interval)
    with Stop() as stop, contextlib.closing(kept):
        kept.tend()
        if once:
            return
        note(f"keeping namespace {namespace!r}; Ctrl-C or SIGTERM ends it")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                with stop.interruptible():
                    time.sleep(interval)
                kept.tend()
