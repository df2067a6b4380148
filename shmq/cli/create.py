"""``shmq create``: make a queue."""

from __future__ import annotations

from typing import Any

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag, queue_name
from shmq.cli.shared.output import show, show_json

__all__ = ["create"]

_seconds_or_none = params.or_none(params.seconds)


@click.command()
@queue_name(help="The queue's name: 1 to 100 of A-Z a-z 0-9 . _ : -")
@click.option("--capacity", type=params.whole, metavar="N", help="Most messages [16384].")
@click.option("--arena-bytes", type=params.size, metavar="SIZE", help="Bytes of bodies [16MiB].")
@click.option(
    "--max-message-bytes",
    type=params.size,
    metavar="SIZE",
    help="Largest message [a quarter of the arena].",
)
@click.option(
    "--visibility-timeout",
    type=params.seconds,
    metavar="TIME",
    help="How long a lease lasts [30s].",
)
@click.option(
    "--max-deliveries",
    type=params.or_none(params.whole),
    metavar="N|none",
    help="Deliveries before a message becomes a dead letter [5].",
)
@click.option(
    "--dead-letter",
    type=params.or_none(str),
    metavar="NAME|none",
    help="The queue for dead letters; none drops them [NAME.dlq].",
)
@click.option(
    "--ttl",
    type=_seconds_or_none,
    metavar="TIME|none",
    help="How long a message may wait [none: for ever].",
)
@click.option(
    "--on-expired",
    type=click.Choice(["dead-letter", "drop"]),
    help="What becomes of a message past its ttl [dead-letter].",
)
@click.option("--priorities", type=params.whole, metavar="N", help="Priorities, 1 to 16 [3].")
@click.option(
    "--retry-delay",
    type=params.seconds,
    metavar="TIME",
    help="The first delay of a returned message, doubled each time [1s].",
)
@click.option(
    "--retry-delay-max", type=params.seconds, metavar="TIME", help="The longest such delay [300s]."
)
@click.option(
    "--dedupe-window",
    type=params.seconds,
    metavar="TIME",
    help="How long a dedupe id is remembered [0: off].",
)
@click.option(
    "--overflow",
    type=click.Choice(["reject", "block", "drop-oldest"]),
    help="What a put to a full queue does [reject].",
)
@click.option(
    "--durability",
    type=click.Choice(["memory", "snapshot", "journal"]),
    help="What outlives the machine: nothing, the newest snapshot, every message [memory].",
)
@click.option(
    "--snapshot-interval",
    type=params.seconds,
    metavar="TIME",
    help="How often a queue with snapshots is written to disk [30s].",
)
@click.option(
    "--confirm",
    type=click.Choice(["memory", "disk"]),
    help="Where a message is when its put returns; disk takes a journal [memory].",
)
@json_flag
@connected
def create(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Make a queue, and its dead-letter queue.

    Making it again with the same options changes nothing; with others it is refused.
    Sizes are 4096, 64KiB, 16MiB; times are 30, 30s, 500ms, 5m, 2h.
    """
    given: dict[str, Any] = {
        option: None if value is params.NONE else value
        for option, value in flags.items()
        if value is not None
    }
    with broker.create_queue(name, **given) as queue:
        options = queue.options.as_dict()
    if as_json:
        show_json({"namespace": broker.namespace, "name": name, "options": options})
    else:
        show(f"queue {name!r} is ready in namespace {broker.namespace!r}")
