"""``shmq list``: the queues, streams and exchanges of a namespace."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import click

import shmq
from shmq.cli.shared.escape import one_line
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.kinds import EXCHANGE, QUEUE, STREAM, exchange_as_dict, found_of, kinds_flag
from shmq.cli.shared.output import amount, cell, counted, note, show, show_json, show_table, table

__all__ = ["list_queues"]

#: What makes one of each kind.
_MAKE: Final = {
    QUEUE: "shmq create NAME",
    STREAM: "shmq stream create NAME",
    EXCHANGE: "shmq exchange create NAME",
}


@click.command("list")
@click.option(
    "--names", is_flag=True, help="Print the queues' names alone, one a line: none is looked into."
)
@kinds_flag
@json_flag
@connected
def list_queues(broker: shmq.Broker, as_json: bool, kinds: tuple[str, ...], names: bool) -> None:
    """List the queues with their depths, the streams and the exchanges."""
    if names:
        _show_names(broker, kinds, as_json)
        return
    queues = found_of(broker, QUEUE, kinds)
    streams = found_of(broker, STREAM, kinds)
    exchanges = found_of(broker, EXCHANGE, kinds)
    if as_json:
        show_json(
            [
                *({"kind": QUEUE, **dataclasses.asdict(one)} for one in queues),
                *({"kind": STREAM, **dataclasses.asdict(one)} for one in streams),
                *(exchange_as_dict(one) for one in exchanges),
            ]
        )
    elif queues or streams or exchanges:
        _show(queues, streams, exchanges)
    else:
        wanted = kinds or (QUEUE,)
        told = " and no ".join(f"{kind}s" for kind in wanted)
        note(f"namespace {broker.namespace!r} has no {told}: make one with {_MAKE[wanted[0]]}")


def _show_names(broker: shmq.Broker, kinds: tuple[str, ...], as_json: bool) -> None:
    if any(kind != QUEUE for kind in kinds):
        raise click.UsageError("--names is of queues: drop --kind, or say --kind queue")
    names = broker.queue_names()
    if as_json:
        show_json(names)
    else:
        for name in names:
            show(one_line(name))


def _show(
    queues: list[shmq.QueueSummary],
    streams: list[shmq.StreamSummary],
    exchanges: list[shmq.ExchangeSummary],
) -> None:
    rows: list[list[Any]] = [
        [one.name, QUEUE, one.depth, one.delayed, one.in_flight, one.capacity, "", one.problem]
        for one in queues
    ]
    rows += (
        [one.name, STREAM, one.records, "", "", "", _about_stream(one), one.problem]
        for one in streams
    )
    rows += (
        [one.name, EXCHANGE, "", "", "", "", f"{one.kind}, {counted(one.bindings, 'binding')}", ""]
        for one in exchanges
    )
    numbers = ("visible", "delayed", "in flight", "capacity")
    columns = ["name", "kind", *numbers, "also", "problem"]
    shown = [
        at
        for at, column in enumerate(columns)
        if column not in {"also", "problem"} or any(row[at] for row in rows)
    ]
    made = table([columns[at] for at in shown], right=numbers)
    for row in rows:
        made.add_row(*(cell("" if row[at] is None else row[at]) for at in shown))
    show_table(made)


def _about_stream(one: shmq.StreamSummary) -> str:
    partitions = counted(one.partitions, "partition")
    return f"{partitions}, {amount(one.bytes)}, {one.durability}"
