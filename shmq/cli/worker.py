"""``shmq worker``: processes that have a Python function handle a queue's messages."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from typing import Any

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.broker_target import target_of
from shmq.cli.shared.flags import queue_flag
from shmq.supervision.log_lines import show_on_stderr
from shmq.workers.handler import load
from shmq.workers.plan import MODES, Plan
from shmq.workers.supervisor import Supervisor

__all__ = ["worker"]


@click.command()
@click.argument("handler", metavar="MODULE:HANDLER")
@queue_flag(required=False, help="The queue's name [the one that the handler declares].")
@click.option(
    "--processes", type=click.IntRange(min=1), metavar="N", help="How many processes.  [default: 1]"
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="In which order messages are handled.  [default: parallel]",
)
@click.option(
    "--prefetch",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="How many messages a process leases at a time.  [default: 1]",
)
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Replace a process after COUNT messages.",
)
@click.option(
    "--timeout",
    type=params.seconds,
    metavar="TIME",
    help="End a process that takes longer than TIME for one message.",
)
@click.option(
    "--idle-timeout",
    type=params.seconds,
    metavar="TIME",
    help="End when no message came for TIME.",
)
@click.option(
    "--drain-timeout",
    type=params.seconds,
    metavar="TIME",
    help="When stopped, wait at most TIME for the messages at hand.",
)
def worker(handler: str, drain_timeout: float | None, **given: Any) -> None:
    """Have a Python function handle the messages of a queue.

    MODULE:HANDLER is imported by every process and called with one message at a time. The
    message is acknowledged when it returns, and comes back later when it raises. Ctrl-C
    and SIGTERM let the messages at hand be finished; a second one does not.
    """
    if "" not in sys.path and os.getcwd() not in sys.path:  # noqa: PTH109 - as sys.path has it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    plan = _plan(click.get_current_context(), handler, given)
    if logging.getLogger().handlers:  # the application shows everything itself
        logging.getLogger("shmq").handlers.clear()
    show_on_stderr("shmq.workers")
    Supervisor([plan], drain_timeout).run()


def _plan(context: click.Context, handler: str, given: dict[str, Any]) -> Plan:
    """What the handler declares, and over that what the command line says."""
    given["queue"] = given.pop("name")
    chosen = {key: value for key, value in given.items() if value is not None}
    found = load(handler)
    target = target_of(context)
    if target.place.url is None:
        place: dict[str, Any] = {"namespace": target.namespace, "server": None}
    else:
        place = {"server": target.server()}
    if isinstance(found, shmq.Worker):
        if found.namespace is None or target.origin is not None:
            chosen |= place
        return dataclasses.replace(found.plan, handler=handler, **chosen)
    if "queue" not in chosen:
        raise click.UsageError(f"Missing option '-q': {handler} declares no queue")
    return Plan(handler=handler, **place, **chosen)
