"""``shmq stream delete``: it asks first."""

from __future__ import annotations

import click

import shmq
from shmq.cli.delete import ask_first, delete_one
from shmq.cli.shared.flags import connected, json_flag, yes_flag
from shmq.cli.shared.kinds import STREAM
from shmq.cli.shared.output import show, show_json
from shmq.cli.shared.stream_name import stream_argument

__all__ = ["delete"]


@click.command()
@stream_argument
@click.option("--group", metavar="NAME", help="Delete this group of it alone.")
@yes_flag
@json_flag
@connected
def delete(broker: shmq.Broker, name: str, group: str | None, yes: bool, as_json: bool) -> None:
    """Delete a stream, its records and its groups; or one group and its offsets."""
    if group is None:
        delete_one(broker, STREAM, name, yes=yes, as_json=as_json)
        return
    with broker.stream(name) as stream:
        if not yes:
            ask_first("delete", f"Delete group {group!r} of stream {name!r} and its offsets?")
        stream.delete_group(group)
    if as_json:
        show_json({"namespace": broker.namespace, "deleted": name, "group": group})
    else:
        show(f"group {group!r} of stream {name!r} is deleted")
