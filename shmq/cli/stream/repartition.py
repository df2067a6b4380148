"""``shmq stream repartition``: more partitions for a stream."""

from __future__ import annotations

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.output import show, show_json
from shmq.cli.shared.stream_name import stream_argument

__all__ = ["repartition"]


@click.command()
@stream_argument
@click.option(
    "--partitions",
    type=params.whole,
    metavar="N",
    required=True,
    help="How many take records from now on; more than do so now.",
)
@json_flag
@connected
def repartition(broker: shmq.Broker, name: str, partitions: int, as_json: bool) -> None:
    """Have records go to N new partitions, while the stream is used.

    Those that took them until now keep what they have, and get no more. Members of groups read
    the new ones once their group has committed all of the old ones, so that the records of a
    key stay in order.
    """
    with broker.stream(name) as stream:
        opened = stream.repartition(partitions)
    if as_json:
        show_json({"name": name, "open": list(opened), "partitions": opened.stop})
    else:
        show(f"records of stream {name!r} go to partitions {opened.start} to {opened.stop - 1} now")
