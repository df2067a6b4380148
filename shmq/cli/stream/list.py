"""``shmq stream list``: the streams of a namespace."""

from __future__ import annotations

import dataclasses

import click

import shmq
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.output import amount, cell, note, show_json, show_table, table

__all__ = ["list_streams"]


@click.command("list")
@json_flag
@connected
def list_streams(broker: shmq.Broker, as_json: bool) -> None:
    """List the streams, and how much is in them."""
    streams = broker.list_streams()
    if as_json:
        show_json([dataclasses.asdict(stream) for stream in streams])
    elif streams:
        _show(streams)
    else:
        note(
            f"namespace {broker.namespace!r} has no streams: make one with shmq stream create NAME"
        )


def _show(streams: list[shmq.StreamSummary]) -> None:
    numbers = ("partitions", "records", "size")
    broken = any(stream.problem for stream in streams)
    columns = ["stream", *numbers, "durability", *(["problem"] if broken else [])]
    made = table(columns, right=numbers)
    for stream in streams:
        row = [stream.name, stream.partitions, stream.records, amount(stream.bytes)]
        problem = [stream.problem or ""] if broken else []
        made.add_row(*(cell(value) for value in (*row, stream.durability, *problem)))
    show_table(made)
