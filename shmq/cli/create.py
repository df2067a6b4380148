"""``shmq create``: make a queue."""

from __future__ import annotations

from typing import Any

import click

import shmq
from shmq.api.names import MAX_NAME
from shmq.api.options import QueueOptions
from shmq.cli.shared.flags import connected, json_flag, queue_name
from shmq.cli.shared.option_flags import given_options, option_flags
from shmq.cli.shared.output import show, show_json

__all__ = ["create"]


@click.command()
@queue_name(help=f"The queue's name: 1 to {MAX_NAME} of A-Z a-z 0-9 . _ : -")
@option_flags(QueueOptions)
@json_flag
@connected
def create(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Make a queue, and its dead-letter queue.

    Making it again with the same options changes nothing; with others it is refused.
    Sizes are 4096, 64KiB, 16MiB; times are 30, 30s, 500ms, 5m, 2h.
    """
    with broker.create_queue(name, **given_options(flags)) as queue:
        options = queue.options.as_dict()
    if as_json:
        show_json({"namespace": broker.namespace, "name": name, "options": options})
    else:
        show(f"queue {name!r} is ready in namespace {broker.namespace!r}")
