"""``shmq stream offsets``: what each partition of a stream holds."""

from __future__ import annotations

import dataclasses

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.output import amount, cell, clock, show_json, show_table, table
from shmq.cli.shared.stream_name import stream_argument

__all__ = ["offsets"]


@click.command()
@stream_argument
@click.option(
    "--at",
    "when",
    type=params.moment,
    metavar="TIME",
    help="Show the first offset from then on, too: seconds since 1970, or an age such as 5m.",
)
@json_flag
@connected
def offsets(broker: shmq.Broker, name: str, when: float | None, as_json: bool) -> None:
    """Show the oldest and the next offset of each partition."""
    with broker.stream(name) as stream:
        found = stream.offsets()
        at = [None if when is None else stream.at(when, one.partition) for one in found]
    if as_json:
        more = [{} if offset is None else {"at": offset} for offset in at]
        show_json(
            [{**dataclasses.asdict(one), **also} for one, also in zip(found, more, strict=True)]
        )
    else:
        _show(found, at)


def _show(found: list[shmq.PartitionOffsets], at: list[int | None]) -> None:
    numbers = ["partition", "earliest", "latest", "records", "size"]
    timed = any(offset is not None for offset in at)
    made = table(
        [*numbers, *(["at"] if timed else []), "oldest", "newest", ""], right=[*numbers, "at"]
    )
    for one, offset in zip(found, at, strict=True):
        row = [
            one.partition,
            one.earliest,
            one.latest,
            one.latest - one.earliest,
            amount(one.bytes),
            *([offset] if timed else []),
            _moment(one.earliest_timestamp),
            _moment(one.latest_timestamp),
            "sealed" if one.sealed else "",
        ]
        made.add_row(*(cell(value) for value in row))
    show_table(made)


def _moment(timestamp: float | None) -> str:
    return "" if timestamp is None else clock(timestamp)
