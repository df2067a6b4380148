"""``shmq stream hot``: which partitions get more than their share."""

from __future__ import annotations

import dataclasses

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.output import cell, show_json, show_table, table
from shmq.cli.shared.stream_name import stream_argument

__all__ = ["hot"]


@click.command()
@stream_argument
@click.option(
    "--over", type=params.seconds, metavar="TIME", default="10s", help="Rates of so long [10s]."
)
@json_flag
@connected
def hot(broker: shmq.Broker, name: str, over: float, as_json: bool) -> None:
    """Show how many records a second each partition gets, the hottest first.

    Hot is one that gets more than 3 times the mean of all.
    """
    with broker.stream(name) as stream:
        rates = sorted(stream.rates(over), key=lambda rate: -rate.rate)
    if as_json:
        show_json([dataclasses.asdict(rate) for rate in rates])
        return
    made = table(
        ["partition", "records/s", "of the mean", ""],
        right=["partition", "records/s", "of the mean"],
    )
    for rate in rates:
        row = [rate.partition, f"{rate.rate:.1f}", f"{rate.share:.2f}", "hot" if rate.hot else ""]
        made.add_row(*(cell(value) for value in row))
    show_table(made)
