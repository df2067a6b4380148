"""``shmq redrive``: send dead letters back."""

from __future__ import annotations

import click

import shmq
from shmq.cli.flags import connected, count_flag, json_flag, queue_flag
from shmq.cli.output import counted, show, show_json

__all__ = ["redrive"]


@click.command()
@queue_flag(help="The queue whose dead letters go back, or the dead-letter queue itself.")
@count_flag("How many to send back at most.")
@json_flag
@connected
def redrive(broker: shmq.Broker, name: str, count: int | None, as_json: bool) -> None:
    """Send dead letters back where they came from."""
    with broker.queue(name) as queue:
        redriven = queue.redrive(count)
    if as_json:
        show_json({"queue": name, "redriven": redriven})
    else:
        show(f"{counted(redriven, 'dead letter')} sent back")
