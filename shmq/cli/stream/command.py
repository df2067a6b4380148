"""``shmq stream``: make, feed and read streams, and look at their groups."""

from __future__ import annotations

import click

from shmq.cli.streams.append import append
from shmq.cli.streams.create import create
from shmq.cli.streams.groups import groups, reset
from shmq.cli.streams.hot import hot
from shmq.cli.streams.listing import list_streams
from shmq.cli.streams.offsets import offsets
from shmq.cli.streams.read import read, tail
from shmq.cli.streams.remove import delete
from shmq.cli.streams.repartition import repartition

__all__ = ["stream"]


@click.group(short_help="Make, feed and read streams.")
def stream() -> None:
    """Make, feed and read streams: records that many read and nobody takes away."""


for _command in (
    create,
    append,
    read,
    tail,
    offsets,
    groups,
    reset,
    hot,
    repartition,
    list_streams,
    delete,
):
    stream.add_command(_command)
