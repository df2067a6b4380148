"""``shmq list``: the queues of a namespace."""

from __future__ import annotations

import dataclasses

import click

import shmq
from shmq.cli.escape import one_line
from shmq.cli.flags import connected, json_flag
from shmq.cli.output import cell, note, show, show_json, show_table, table

__all__ = ["list_queues"]


@click.command("list")
@click.option(
    "--names", is_flag=True, help="Print the names alone, one a line: no queue is looked into."
)
@json_flag
@connected
def list_queues(broker: shmq.Broker, as_json: bool, names: bool) -> None:
    """List the queues and their depths."""
    if names:
        _show_names(broker.queue_names(), as_json)
        return
    queues = broker.list_queues()
    if as_json:
        show_json([dataclasses.asdict(queue) for queue in queues])
    elif queues:
        _show(queues)
    else:
        note(f"namespace {broker.namespace!r} has no queues: make one with shmq create -q NAME")


def _show_names(names: list[str], as_json: bool) -> None:
    if as_json:
        show_json(names)
    else:
        for name in names:
            show(one_line(name))


def _show(queues: list[shmq.QueueSummary]) -> None:
    numbers = ("visible", "delayed", "in flight", "capacity")
    broken = any(queue.problem for queue in queues)
    made = table(["queue", *numbers, *(["problem"] if broken else [])], right=numbers)
    for queue in queues:
        row = [queue.name, queue.depth, queue.delayed, queue.in_flight, queue.capacity]
        problem = [queue.problem or ""] if broken else []
        made.add_row(*(cell(value) for value in (*row, *problem)))
    show_table(made)
