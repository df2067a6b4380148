"""``shmq delete`` and ``shmq purge``: what cannot be undone asks first."""

from __future__ import annotations

import sys

import click

import shmq
from shmq.cli.flags import connected, json_flag, queue_flag, yes_flag
from shmq.cli.output import counted, show, show_json

__all__ = ["ask_first", "delete", "purge"]


@click.command()
@queue_flag()
@yes_flag
@json_flag
@connected
def delete(broker: shmq.Broker, name: str, yes: bool, as_json: bool) -> None:
    """Delete a queue and all its messages.

    Its dead-letter queue stays.
    """
    if not yes:
        ask_first("delete", f"Delete queue {name!r} and {_contents(broker, name)}?")
    broker.delete_queue(name)
    if as_json:
        show_json({"namespace": broker.namespace, "deleted": name})
    else:
        show(f"queue {name!r} is deleted")


@click.command()
@queue_flag()
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


def _contents(broker: shmq.Broker, name: str) -> str:
    """What is lost with the queue; a damaged one can be deleted, but not counted."""
    try:
        with broker.queue(name) as queue:
            numbers = queue.stats()
    except shmq.SegmentError as error:
        return f"whatever it holds ({error})"
    held = numbers.depth + numbers.delayed + numbers.in_flight
    return f"the {counted(held, 'message')} in it"


def ask_first(what: str, question: str) -> None:
    """Return if the user agrees; otherwise raise."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f"there is no terminal to ask on: to {what} it, add --yes")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")
