"""``shmq schema``: the JSON Schema of a queue or a stream."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_args

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.audited import audited
from shmq.cli.shared.flags import Group, connected, json_flag
from shmq.cli.shared.names import complete_names, queue_name
from shmq.cli.shared.output import cell, clock, show, show_json, show_table, table
from shmq.host.supervision.audit import Event
from shmq.model.codec.strict_json import decode_json
from shmq.model.schema.asyncapi import document
from shmq.model.schema.compare import Compatibility

F = TypeVar("F", bound=Callable[..., Any])

_RULE = click.option(
    "--compatibility", type=click.Choice(get_args(Compatibility)),
    help="The rule towards every earlier version.  [default: the newest version's, or backward]",
)  # fmt: skip
_named = queue_name(help="The same as NAME: a queue or a stream.", complete=complete_names)


def _name_and_file(command: F) -> F:
    """``NAME FILE``, or ``-q NAME FILE``, as the parameters ``name`` and ``file``."""

    @functools.wraps(command)
    def run(*args: Any, words: tuple[str, ...], name: str | None, **more: Any) -> Any:
        context = click.get_current_context()
        if len(words) != (2 if name is None else 1):
            path = context.command_path
            raise click.UsageError(f"give a name and a file, and no more: {path} NAME FILE")
        file = click.File("rb").convert(words[-1], None, context)
        return command(*args, name=name or params.name(words[0]), file=file, **more)

    place = click.argument("words", metavar="NAME FILE", nargs=-1, shell_complete=complete_names)
    flag = click.option(
        "-q", "--queue", "name", type=params.name, metavar="NAME", shell_complete=complete_names,
        help="The same as NAME: a queue or a stream.",
    )  # fmt: skip
    return cast("F", flag(place(run)))


@click.group(cls=Group, epilog="Example: shmq schema set orders order.json")
def schema() -> None:
    """Set, check and show the JSON Schema of a queue or a stream."""


@schema.command("set", epilog="Example: shmq schema set orders order.json --compatibility full")
@_name_and_file
@_RULE
@json_flag
@connected
def set_schema(
    broker: shmq.Broker, name: str, file: Any, compatibility: str | None, as_json: bool
) -> None:
    """Make the JSON Schema in FILE the newest version; -: standard input."""
    wanted = _read(file)
    with audited(broker, Event.SCHEMA_SET, name) as details:
        details["version"] = version = broker.set_schema(name, wanted, compatibility)
    if as_json:
        show_json({"name": name, "version": version})
    else:
        show(f"version {version} is the schema of {name!r}")


@schema.command("check", epilog="Example: shmq schema check orders order.json")
@_name_and_file
@_RULE
@connected
def check(broker: shmq.Broker, name: str, file: Any, compatibility: str | None) -> None:
    """Say whether the JSON Schema in FILE could be set; set nothing."""
    broker.check_schema(name, _read(file), compatibility)
    show(f"this can be the next schema of {name!r}")


@schema.command("show", epilog="Example: shmq schema show invoices --version 1")
@_named
@click.option(
    "--version",
    type=params.WholeRange(min=1),
    metavar="N",
    help="Version N.  [default: the newest]",
)
@connected
def show_schema(broker: shmq.Broker, name: str, version: int | None) -> None:
    """Print a version of the schema as JSON."""
    show_json(dict(broker.schema(name, version).schema))


@schema.command("list", epilog="Example: shmq schema list invoices")
@_named
@json_flag
@connected
def list_versions(broker: shmq.Broker, name: str, as_json: bool) -> None:
    """List the versions of the schema."""
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


@schema.command("export", epilog="Example: shmq schema export --asyncapi")
@click.option(
    "--asyncapi", is_flag=True, expose_value=False, help="As AsyncAPI 3.0, in JSON: the only form."
)
@connected
def export(broker: shmq.Broker) -> None:
    """Print queues and streams with their newest schemas."""
    queues = [("queue", name) for name in broker.queue_names()]
    streams = [("stream", each.name) for each in broker.list_streams()]
    channels = [(kind, name, _find_newest(broker, name)) for kind, name in (*queues, *streams)]
    url = getattr(broker, "url", None)
    show_json(document(broker.namespace, url, shmq.__version__, channels))


def _find_newest(broker: shmq.Broker, name: str) -> Mapping[str, Any] | None:
    found = broker.schemas(name)
    return found[-1].schema if found else None


def _read(file: Any) -> dict[str, Any]:
    try:
        found = decode_json(file.read())
    except ValueError as error:
        raise click.ClickException(f"{file.name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.ClickException(f"{file.name} is not a JSON object: a schema must be one")
    return found
