"""``shmq worker``: processes that have a Python function handle a queue's messages."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
from typing import Any

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.flags import log_format_flag
from shmq.cli.shared.names import queue_name
from shmq.cli.shared.target import target_of
from shmq.host.supervision.stderr import show_on_stderr
from shmq.workers.plan import MODES, Plan, load
from shmq.workers.supervisor import Supervisor


@click.command(epilog="Example: shmq worker shop:handle orders --processes 2 --idle-timeout 1s")
@click.argument("handler", metavar="MODULE:HANDLER")
@queue_name(required=False, help="The same as NAME: the queue.  [default: declared by the handler]")
@click.option(
    "--processes",
    type=params.WholeRange(min=1),
    metavar="N",
    help="Worker processes.  [default: 1]",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="The order: any, in order per group, or strictly in order.  [default: parallel]",
)
@click.option(
    "--prefetch",
    type=params.WholeRange(min=1),
    metavar="COUNT",
    help="Messages that a process leases at a time.  [default: 1]",
)
@click.option(
    "--max-messages",
    type=params.WholeRange(min=1),
    metavar="COUNT",
    help="Replace a process after COUNT messages.",
)
@click.option(
    "--timeout",
    type=params.seconds,
    metavar="TIME",
    help="Kill and replace a process that takes longer than TIME for one message.",
)
@click.option(
    "--idle-timeout",
    type=params.seconds,
    metavar="TIME",
    help="Stop if no message arrives for TIME.  [default: never]",
)
@click.option(
    "--drain-timeout",
    type=params.seconds,
    metavar="TIME",
    help="When stopped, wait at most TIME for current messages.  [default: no limit]",
)
@click.option(
    "--metrics", metavar="HOST:PORT", help="Give how long messages took to Prometheus there."
)
@log_format_flag
def worker(handler: str, drain_timeout: float | None, metrics: str | None, **given: Any) -> None:
    """Call a Python function for each message of a queue.

    Every worker process imports MODULE:HANDLER and calls it with one message at a time. If the
    call returns, the message is acknowledged; if it raises, the message is delivered again
    later. Ctrl-C and SIGTERM let the current messages be finished; a second one does not.
    """
    if "" not in sys.path and os.getcwd() not in sys.path:  # noqa: PTH109 - as sys.path has it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    plan = _plan(click.get_current_context(), handler, given)
    if logging.getLogger().handlers:  # the application shows everything itself
        logging.getLogger("shmq").handlers.clear()
    show_on_stderr("shmq.workers")
    supervisor = Supervisor([plan], drain_timeout, timed=metrics is not None)
    with contextlib.ExitStack() as stack:
        if metrics is not None:
            _serve(supervisor, metrics, stack)
        supervisor.run()


def _serve(supervisor: Supervisor, address: str, stack: contextlib.ExitStack) -> None:
    from shmq.cli.shared.metrics import serve_metrics  # noqa: PLC0415 - with --metrics alone
    from shmq.metrics.workers import render_workers  # noqa: PLC0415

    log = logging.getLogger("shmq.workers")
    serve_metrics(address, lambda: render_workers(supervisor.timings()), stack, log)


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
        raise click.UsageError(f"{handler} declares no queue: name one, shmq worker {handler} NAME")
    return Plan(handler=handler, **place, **chosen)
