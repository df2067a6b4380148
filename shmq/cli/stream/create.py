"""``shmq stream create``: make a stream."""

from __future__ import annotations

from typing import Any

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.output import counted, show, show_json
from shmq.cli.shared.stream_name import stream_argument

__all__ = ["create"]


@click.command()
@stream_argument
@click.option("--partitions", type=params.whole, metavar="N", help="Partitions, 1 to 1024 [4].")
@click.option(
    "--ring-bytes",
    type=params.size,
    metavar="SIZE",
    help="Room of each partition in shared memory [16MiB].",
)
@click.option(
    "--retention-bytes",
    type=params.or_none(params.size),
    metavar="SIZE|none",
    help="Of each partition, older records than so many bytes go [none].",
)
@click.option(
    "--retention",
    "retention_seconds",
    type=params.or_none(params.seconds),
    metavar="TIME|none",
    help="Records that are older go [none].",
)
@click.option(
    "--durability",
    type=click.Choice(["memory", "journal"]),
    help="What outlives the machine: nothing, or every record [memory].",
)
@click.option(
    "--overflow",
    type=click.Choice(["drop-oldest", "block"]),
    help="What an append to a full partition does [drop-oldest].",
)
@click.option(
    "--max-record-bytes",
    type=params.size,
    metavar="SIZE",
    help="Largest record [a quarter of the ring].",
)
@click.option(
    "--confirm",
    type=click.Choice(["memory", "disk"]),
    help="Where a record is when its append returns; disk takes a journal [memory].",
)
@click.option(
    "--segment-bytes",
    type=params.size,
    metavar="SIZE",
    help="With a journal: how long a file grows before the next one begins [64MiB].",
)
@json_flag
@connected
def create(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Make a stream.

    Making it again with the same options changes nothing; with others it is refused.
    """
    given: dict[str, Any] = {
        option: None if value is params.NONE else value
        for option, value in flags.items()
        if value is not None
    }
    with broker.create_stream(name, **given) as stream:
        options = stream.options.as_dict()
    if as_json:
        show_json({"namespace": broker.namespace, "name": name, "options": options})
    else:
        show(
            f"stream {name!r} of {counted(options['partitions'], 'partition')} is ready in "
            f"namespace {broker.namespace!r}"
        )
