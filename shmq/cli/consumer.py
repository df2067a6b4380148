"""``shmq consume`` and ``shmq peek``: messages taken from a queue, or shown."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable

import click

import shmq
from shmq.api.message import error_of
from shmq.cli.shared import params, render
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import connected, count_flag, json_flag, quiet_flag, where_flag
from shmq.cli.shared.names import queue_name
from shmq.cli.shared.output import (
    age,
    amount,
    cell,
    counted,
    note,
    on_a_terminal,
    printable,
    show_json,
    show_table,
    table,
)
from shmq.cli.shared.progress import progress
from shmq.cli.unacked_window import Outlet, Window, open_outlet
from shmq.client.shared.outage import LONGEST, Outage
from shmq.host.supervision.signals import Stop

#: How long one wait for a message lasts before the loop looks for signals, in seconds.
SLICE = 0.25


@click.command(epilog="Example: shmq consume orders -n 10 --format json")
@queue_name()
@click.option("--follow", is_flag=True, help="Wait for more messages until stopped.")
@count_flag("Stop after COUNT messages.")
@where_flag("Take only messages for which EXPR is true: see docs/reference/cli.md.")
@click.option(
    "--timeout",
    type=params.seconds,
    metavar="TIME",
    help="Stop if no message arrives for TIME.  [default: 0s; with --follow: never]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(render.FORMATS),
    help="What to print of a message; json is one object per line.  [default: body]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--delimiter",
    type=params.delimiter,
    metavar="TEXT",
    help=r"Print TEXT after each message, not a newline; \0, \n, \r\n, \t are escapes.",
)
@click.option(
    "--ahead",
    type=params.WholeRange(min=1),
    default=64,
    show_default=True,
    metavar="COUNT",
    help="In a pipe: how many messages to write ahead of a slow reader.",
)
@click.pass_context
@connected
def consume(
    broker: shmq.Broker,
    context: click.Context,
    name: str,
    follow: bool,
    count: int | None,
    where: str | None,
    timeout: float | None,
    form: str | None,
    as_json: bool,
    delimiter: bytes | None,
    ahead: int,
) -> None:
    """Take messages from a queue, print them, and acknowledge them.

    Without --follow, -n or --timeout it stops when the queue is empty. A message is
    acknowledged once it is written; in a pipe, once the reader has read it. A message that
    cannot be written goes back to the queue.
    """
    outlet = open_outlet()
    write = _choose_writer(form, as_json, delimiter)
    patience = float("inf") if follow and timeout is None else timeout or 0.0
    with broker.queue(name) as queue, Stop() as stop:
        window = Window(queue, outlet, lambda: bool(stop.signal), ahead)
        seen = _Pump(queue, outlet, stop, write, where).run(window, count, patience)
    context.exit(_choose_exit_code(seen, follow, stop.signal, outlet))


class _Pump:
    """Carries messages from a queue to an outlet."""

    def __init__(
        self,
        queue: shmq.Queue,
        outlet: Outlet,
        stop: Stop,
        write: Callable[[shmq.Message], bytes],
        where: str | None,
    ) -> None:
        self._queue = queue
        self._outlet = outlet
        self._stop = stop
        self._write = write
        self._where = where

    def run(self, window: Window, count: int | None, patience: float) -> int:
        """Carry ``count`` messages, or until none came for ``patience`` seconds.

        Returns how many were written.
        """
        try:
            with window:
                return self._carry(window, count, patience)
        except BrokenPipeError:
            return 1
        except KeyboardInterrupt:
            if not self._stop.signal:
                raise
            return 1
        finally:
            _report(window)

    def _carry(self, window: Window, count: int | None, patience: float) -> int:
        since = time.monotonic()
        outage = Outage(functools.partial(_note_loss, window), min(patience, LONGEST))
        while not self._is_done(window.count, count):
            most = min(self._outlet.batch, count - window.count) if count else self._outlet.batch
            left = patience - (time.monotonic() - since)
            with outage if left > 0 else contextlib.nullcontext():
                messages = self._queue.get_many(
                    most, min(max(left, 0.0), SLICE), block=left > 0, where=self._where
                )
                if messages:
                    window.write(messages, self._write)
                    since = time.monotonic()
                elif left <= 0:
                    break
                else:
                    window.settle()
        return window.count

    def _is_done(self, seen: int, count: int | None) -> bool:
        return bool(self._stop.signal) or seen == count or self._outlet.abandoned()


def _note_loss(window: Window, error: shmq.ShmqError) -> None:
    note(f"waiting for the server: {error}")
    window.abandon()


def _choose_writer(
    form: str | None, as_json: bool, delimiter: bytes | None
) -> Callable[[shmq.Message], bytes]:
    """The function that turns a message into its bytes of output."""
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} exclude each other: drop one")
    if as_json or form == "json":
        if delimiter is not None:
            raise click.UsageError("--delimiter works with the formats body and raw: drop it")
        return lambda message: render.as_json(message).encode() + b"\n"
    end = b"\n" if delimiter is None else delimiter
    if form == "raw":
        return lambda message: render.raw(message) + end
    show = _render_safely if on_a_terminal() else render.as_text
    return lambda message: show(message).encode(errors="backslashreplace") + end


def _render_safely(message: shmq.Message) -> str:
    return printable(render.as_text(message), keep="\n\t")


def _report(window: Window) -> None:
    if window.late:
        note(
            f"{counted(window.late, 'message')} written after the lease had expired will be "
            f"delivered again: make the queue with a longer --visibility-timeout"
        )


def _choose_exit_code(seen: int, follow: bool, signal: int, outlet: Outlet) -> int:
    if signal:
        return 0 if follow else 128 + signal
    if seen or outlet.abandoned():
        return Code.OK
    return Code.NOTHING


#: A table shows so many characters of a body.
_SHOWN = 200


@click.command(epilog="Example: shmq peek orders -n 3")
@queue_name()
@count_flag("Show at most COUNT messages.  [default: 10]", default=10)
@where_flag("Show only messages for which EXPR is true: see docs/reference/cli.md.")
@click.option("--leased", is_flag=True, help="Show the leased messages: who has which, how long.")
@json_flag
@quiet_flag
@click.pass_context
@connected
def peek(
    broker: shmq.Broker,
    context: click.Context,
    name: str,
    count: int,
    where: str | None,
    leased: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show the next messages of a queue without taking them."""
    if leased:
        if where is not None:
            raise click.UsageError("--where looks into messages that nobody has: drop --leased")
        context.exit(_peek_at_leases(broker, name, count, as_json))
    with broker.queue(name) as queue:
        with progress("peek", "messages", quiet=quiet):
            messages = queue.peek(count, where=where)
        if as_json:
            show_json([render.as_dict(message) for message in messages])
        elif messages:
            _show(messages)
    context.exit(Code.OK if messages else Code.NOTHING)


def _peek_at_leases(broker: shmq.Broker, name: str, count: int, as_json: bool) -> Code:
    with broker.queue(name) as queue:
        found = queue.leases(count)
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
    elif found:
        _show_leases(found)
    return Code.OK if found else Code.NOTHING


def _show_leases(found: list[shmq.Lease]) -> None:
    numbers = ("sequence", "priority", "deliveries", "size", "pid", "time left")
    made = table(
        ["sequence", "priority", "deliveries", "size", "pid", "holder", "time left"], right=numbers
    )
    for one in found:
        row = (
            *(one.sequence, one.priority, one.deliveries, amount(one.size)),
            *(one.holder_pid, one.holder_name, age(one.expires_in)),
        )
        made.add_row(*(cell(value) for value in row))
    show_table(made)


def _show(messages: list[shmq.Message]) -> None:
    columns = ["sequence", "priority", "deliveries", "group", "codec", "size"]
    dead = any(message.dead for message in messages)
    failed = any(map(_explain_error, messages))
    made = table(
        [*columns, *(["dead letter"] if dead else []), *(["error"] if failed else []), "body"],
        right=("sequence", "priority", "deliveries", "size"),
    )
    for message in messages:
        row = [
            message.sequence,
            message.priority,
            message.delivery_count,
            message.group or "",
            message.codec,
            amount(len(render.raw(message))),
            *([_explain(message)] if dead else []),
            *([_shorten(_explain_error(message))] if failed else []),
            _shorten(render.as_text(message)),
        ]
        made.add_row(*(cell(value) for value in row))
    show_table(made)


def _explain(message: shmq.Message) -> str:
    if message.dead is None:
        return ""
    return f"{message.dead.reason} in {message.dead.queue} after {message.dead.deliveries}"


def _explain_error(message: shmq.Message) -> str:
    return str(error_of(message) or "")


def _shorten(body: str) -> str:
    return body if len(body) <= _SHOWN else body[: _SHOWN - 1] + "…"
