"""``shmq stream``: make, feed and read streams, and look at their groups."""

from __future__ import annotations

import click

from shmq.cli.stream.append import append
from shmq.cli.stream.create import create
from shmq.cli.stream.delete import delete
from shmq.cli.stream.groups import groups, reset
from shmq.cli.stream.hot import hot
from shmq.cli.stream.list import list_streams
from shmq.cli.stream.offsets import offsets
from shmq.cli.stream.read import read, tail
from shmq.cli.stream.repartition import repartition

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
