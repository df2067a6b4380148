"""``shmq delete`` and ``shmq purge``: what cannot be undone asks first."""

from __future__ import annotations

import sys

import click

import shmq
from shmq.cli.shared.broker_target import typed
from shmq.cli.shared.flags import connected, json_flag, queue_name, yes_flag
from shmq.cli.shared.kinds import EXCHANGE, KINDS, QUEUE, STREAM, complete_names, kind_of
from shmq.cli.shared.output import counted, show, show_json

__all__ = ["ask_first", "delete", "delete_one", "purge"]


@click.command()
@queue_name(help="The name of a queue.", complete=complete_names)
@click.option("--kind", type=click.Choice(KINDS), help="What the NAME is [what has that name].")
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
    """Delete a queue, a stream or an exchange, and all that it holds.

    With -q it is a queue. The dead-letter queue of a queue stays, and so do the queues that an
    exchange is bound to.
    """
    if typed(context, "name"):
        if kind not in {None, QUEUE}:
            raise click.UsageError(f"-q names a queue: for a {kind} give its name without -q")
        kind = QUEUE
    delete_one(broker, kind or kind_of(broker, name), name, yes=yes, as_json=as_json)


def delete_one(broker: shmq.Broker, kind: str, name: str, *, yes: bool, as_json: bool) -> None:
    """Delete what has that kind and name, after a question unless ``yes``; and say so."""
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


@click.command()
@queue_name()
@yes_flag
@json_flag
@connected
def purge(broker: shmq.Broker, name: str, yes: bool, as_json: bool) -> None:
    """Remove the messages of a queue.

    The visible and the delayed ones; what is leased stays.
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
    """What is lost with the queue; a damaged one can be deleted, but not counted."""
    try:
        with broker.queue(name) as queue:
            numbers = queue.stats()
    except (shmq.SegmentError, shmq.FileError) as error:
        return f"and whatever it holds ({error})"
    held = numbers.depth + numbers.delayed + numbers.in_flight
    return f"and the {counted(held, 'message')} in it"


def _of_stream(broker: shmq.Broker, name: str) -> str:
    """What is lost with the stream; a damaged one can be deleted, but not counted."""
    try:
        with broker.stream(name) as stream:
            held = sum(found.latest - found.earliest for found in stream.offsets())
    except (shmq.SegmentError, shmq.FileError) as error:
        return f"and whatever it holds ({error})"
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
