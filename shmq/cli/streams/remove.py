"""``shmq stream delete``: it asks first."""

from __future__ import annotations

import click

import shmq
from shmq.cli.flags import connected, json_flag, yes_flag
from shmq.cli.output import counted, show, show_json
from shmq.cli.remove import ask_first
from shmq.cli.streams.naming import stream_argument

__all__ = ["delete"]


@click.command()
@stream_argument
@click.option("--group", metavar="NAME", help="Delete this group of it alone.")
@yes_flag
@json_flag
@connected
def delete(broker: shmq.Broker, name: str, group: str | None, yes: bool, as_json: bool) -> None:
    """Delete a stream, its records and its groups; or one group and its offsets."""
    if group is not None:
        with broker.stream(name) as stream:
            if not yes:
                ask_first("delete", f"Delete group {group!r} of stream {name!r} and its offsets?")
            stream.delete_group(group)
        what = f"group {group!r} of stream {name!r}"
    else:
        if not yes:
            ask_first("delete", f"Delete stream {name!r} and {_contents(broker, name)}?")
        broker.delete_stream(name)
        what = f"stream {name!r}"
    if as_json:
        gone = {} if group is None else {"group": group}
        show_json({"namespace": broker.namespace, "deleted": name, **gone})
    else:
        show(f"{what} is deleted")


def _contents(broker: shmq.Broker, name: str) -> str:
    """What is lost with it; a damaged one can be deleted, but not counted."""
    try:
        with broker.stream(name) as stream:
            held = sum(found.latest - found.earliest for found in stream.offsets())
    except shmq.SegmentError as error:
        return f"whatever it holds ({error})"
    return f"the {counted(held, 'record')} in it"
