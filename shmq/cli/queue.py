"""``shmq create``, ``delete``, ``purge`` and ``who``: one queue."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

import shmq
from shmq.api.names import MAX_NAME
from shmq.api.options import QueueOptions
from shmq.cli.shared.broker_target import is_this_process, typed
from shmq.cli.shared.flags import connected, json_flag, yes_flag
from shmq.cli.shared.names import (
    EXCHANGE,
    KINDS,
    QUEUE,
    STREAM,
    complete_names,
    kind_of,
    queue_name,
)
from shmq.cli.shared.option_flags import given_options, option_flags
from shmq.cli.shared.output import cell, clock, counted, note, show, show_json, show_table, table

__all__ = ["ask_first", "create", "delete", "delete_one", "purge", "who"]


@click.command(epilog="Example: shmq create shipments --capacity 100000 --visibility-timeout 5m")
@queue_name(help=f"The same as NAME: 1 to {MAX_NAME} of A-Z a-z 0-9 . _ : -")
@option_flags(QueueOptions)
@json_flag
@connected
def create(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Make a queue, and its dead-letter queue NAME.dlq.

    Repeating the command with the same options changes nothing; other options are refused.
    Sizes are 4096, 64KiB or 16MiB; times are 30, 30s, 500ms, 5m or 2h.
    """
    with broker.create_queue(name, **given_options(flags)) as queue:
        options = queue.options.as_dict()
    if as_json:
        show_json({"namespace": broker.namespace, "name": name, "options": options})
    else:
        show(f"queue {name!r} is ready in namespace {broker.namespace!r}")


@click.command(epilog="Example: shmq delete orders --yes")
@queue_name(help="Only a queue of that name.", complete=complete_names)
@click.option(
    "--kind", type=click.Choice(KINDS), help="What NAME is; needed if several kinds have the name."
)
@yes_flag
@json_flag
@click.pass_context
@connected
def delete(
    broker: shmq.Broker,
    context: click.Context,
    name: str,
    kind: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a queue, a stream or an exchange with all its contents.

    The dead-letter queue of a queue stays, and so do the queues bound to an exchange. With -q
    only a queue is deleted.
    """
    if typed(context, "name"):
        if kind not in {None, QUEUE}:
            raise click.UsageError(f"-q names a queue: for a {kind} give its name without -q")
        kind = QUEUE
    delete_one(broker, kind or kind_of(broker, name), name, yes=yes, as_json=as_json)


def delete_one(broker: shmq.Broker, kind: str, name: str, *, yes: bool, as_json: bool) -> None:
    """Delete what has that kind and name; ask first unless ``yes``."""
    contents, remove = {
        QUEUE: (_of_queue, broker.delete_queue),
        STREAM: (_of_stream, broker.delete_stream),
        EXCHANGE: (_of_exchange, broker.delete_exchange),
    }[kind]
    if not yes:
        ask_first("delete", f"Delete {kind} {name!r} {contents(broker, name)}?")
    remove(name)
    if as_json:
        show_json({"namespace": broker.namespace, "kind": kind, "deleted": name})
    else:
        show(f"{kind} {name!r} is deleted")


@click.command(epilog="Example: shmq purge orders --yes")
@queue_name()
@yes_flag
@json_flag
@connected
def purge(broker: shmq.Broker, name: str, yes: bool, as_json: bool) -> None:
    """Remove the waiting messages of a queue, visible and delayed.

    Leased messages stay.
    """
    with broker.queue(name) as queue:
        if not yes:
            numbers = queue.stats()
            held = counted(numbers.depth + numbers.delayed, "message")
            ask_first("purge", f"Remove {held} from queue {name!r}?")
        purged = queue.purge()
    if as_json:
        show_json({"queue": name, "purged": purged})
    else:
        show(f"{counted(purged, 'message')} removed from queue {name!r}")


def _of_queue(broker: shmq.Broker, name: str) -> str:
    """What is deleted with the queue; the messages of a damaged one cannot be counted."""
    try:
        with broker.queue(name) as queue:
            numbers = queue.stats()
    except (shmq.SegmentError, shmq.FileError) as error:
        return f"and all its contents ({error})"
    held = numbers.depth + numbers.delayed + numbers.in_flight
    return f"and the {counted(held, 'message')} in it"


def _of_stream(broker: shmq.Broker, name: str) -> str:
    """What is deleted with the stream; the records of a damaged one cannot be counted."""
    try:
        with broker.stream(name) as stream:
            held = sum(found.latest - found.earliest for found in stream.offsets())
    except (shmq.SegmentError, shmq.FileError) as error:
        return f"and all its contents ({error})"
    return f"and the {counted(held, 'record')} in it"


def _of_exchange(broker: shmq.Broker, name: str) -> str:
    with broker.exchange(name) as found:
        return f"with {counted(len(found.bindings()), 'binding')}"


def ask_first(what: str, question: str) -> None:
    """Return if the user agrees; otherwise raise."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f"there is no terminal to ask on: to {what} it, add --yes")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


@click.command(epilog="Example: shmq who orders")
@queue_name()
@json_flag
@connected
def who(broker: shmq.Broker, name: str, as_json: bool) -> None:
    """Show the processes attached to a queue, and how many messages each has leased.

    The process of this command is left out.
    """
    with broker.queue(name) as queue:
        attached = [one for one in queue.attachments() if not is_this_process(broker, one)]
    if as_json:
        show_json([dataclasses.asdict(one) for one in attached])
        return
    if not attached:
        note(f"nobody is attached to queue {name!r}")
        return
    made = table(["pid", "name", "leases", "since", "alive"], right=("pid", "leases"))
    for one in attached:
        row = (one.pid, one.name, one.leases, clock(one.since), "yes" if one.alive else "no")
        made.add_row(*(cell(value) for value in row))
    show_table(made)
