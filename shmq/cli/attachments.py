"""``shmq who``: the processes attached to a queue."""

from __future__ import annotations

import dataclasses

import click

import shmq
from shmq.cli.shared.broker_target import is_this_process
from shmq.cli.shared.flags import connected, json_flag, queue_name
from shmq.cli.shared.output import cell, clock, note, show_json, show_table, table

__all__ = ["who"]


@click.command()
@queue_name()
@json_flag
@connected
def who(broker: shmq.Broker, name: str, as_json: bool) -> None:
    """Show who is attached to a queue.

    With the number of messages they hold leased. This command itself is left out.
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
