"""``shmq schema``: what the bodies of a queue, or of a stream, are to be like."""

from __future__ import annotations

import json
from typing import Any, get_args

import click

import shmq
from shmq.cli.shared.flags import connected, json_flag, queue_flag
from shmq.cli.shared.output import cell, clock, show, show_json, show_table, table
from shmq.schema.compare import Compatibility

__all__ = ["schema"]

_FILE = click.argument("file", type=click.File("rb"), metavar="FILE")
_RULE = click.option(
    "--compatibility", type=click.Choice(get_args(Compatibility)),
    help="What it must be to every version before [that of the newest, or backward].",
)  # fmt: skip


@click.group()
def schema() -> None:
    """Set, show and check the schema of a queue or a stream."""


@schema.command("set")
@queue_flag(help="The queue's or the stream's name.")
@_FILE
@_RULE
@json_flag
@connected
def set_schema(
    broker: shmq.Broker, name: str, file: Any, compatibility: str | None, as_json: bool
) -> None:
    """Make the JSON Schema in FILE (-: stdin) the newest version."""
    version = broker.set_schema(name, _read(file), compatibility)
    if as_json:
        show_json({"name": name, "version": version})
    else:
        show(f"version {version} is the schema of {name!r}")


@schema.command("check")
@queue_flag(help="The queue's or the stream's name.")
@_FILE
@_RULE
@connected
def check(broker: shmq.Broker, name: str, file: Any, compatibility: str | None) -> None:
    """See whether the JSON Schema in FILE could be set, and set nothing."""
    broker.check_schema(name, _read(file), compatibility)
    show(f"it can be the next schema of {name!r}")


@schema.command("show")
@queue_flag(help="The queue's or the stream's name.")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Version N [the newest].")
@connected
def show_schema(broker: shmq.Broker, name: str, version: int | None) -> None:
    """Print a version as JSON."""
    show_json(dict(broker.schema(name, version).schema))


@schema.command("list")
@queue_flag(help="The queue's or the stream's name.")
@json_flag
@connected
def list_versions(broker: shmq.Broker, name: str, as_json: bool) -> None:
    """List the versions."""
    found = broker.schemas(name)
    if as_json:
        show_json(
            [
                {
                    "version": each.version,
                    "compatibility": each.compatibility,
                    "at": each.at,
                    "schema": each.schema,
                }
                for each in found
            ]
        )
        return
    made = table(["version", "compatibility", "set at", "fields"], right=("version",))
    for each in found:
        fields = ", ".join(each.schema.get("properties", ()))
        made.add_row(
            *(cell(value) for value in (each.version, each.compatibility, clock(each.at), fields))
        )
    show_table(made)


def _read(file: Any) -> dict[str, Any]:
    try:
        found = json.load(file)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{file.name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.ClickException(f"{file.name} has no JSON object: a schema is one")
    return found
