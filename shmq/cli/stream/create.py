"""``shmq stream create``: make a stream."""

from __future__ import annotations

from typing import Any

import click

import shmq
from shmq.api.stream_options import StreamOptions
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.option_flags import given_options, option_flags
from shmq.cli.shared.output import counted, show, show_json
from shmq.cli.shared.stream_name import stream_argument

__all__ = ["create"]


@click.command()
@stream_argument
@option_flags(StreamOptions)
@json_flag
@connected
def create(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Make a stream.

    Making it again with the same options changes nothing; with others it is refused.
    """
    with broker.create_stream(name, **given_options(flags)) as stream:
        options = stream.options.as_dict()
    if as_json:
        show_json({"namespace": broker.namespace, "name": name, "options": options})
    else:
        show(
            f"stream {name!r} of {counted(options['partitions'], 'partition')} is ready in "
            f"namespace {broker.namespace!r}"
        )
