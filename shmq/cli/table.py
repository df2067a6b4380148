"""``shmq table``: tables, and their values by key."""

from __future__ import annotations

import sys
from typing import Any, Final, get_args

import click

import shmq
from shmq.api.table import MAX_KEYS, MAX_VALUE, TableDurability
from shmq.cli.queue import ask_first
from shmq.cli.shared import params
from shmq.cli.shared.audited import audited
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import Group, connected, json_flag, yes_flag
from shmq.cli.shared.messages import decode
from shmq.cli.shared.names import table_name
from shmq.cli.shared.output import (
    amount,
    cell,
    counted,
    note,
    on_a_terminal,
    one_line,
    printable,
    show,
    show_json,
    show_table,
)
from shmq.cli.shared.output import table as output_table
from shmq.cli.shared.render import as_text, body_of
from shmq.host.supervision.audit import Event
from shmq.model.codec.codecs import encode_body

#: How the VALUE of a set is given; msgpack is given as JSON.
_CODECS: Final = ("text", "bytes", "json")


@click.group(cls=Group, epilog="Example: shmq table set results job-1 done --ttl 10m")
def table() -> None:
    """Make, read, change and delete tables: values by key, with a ttl."""


@table.command(epilog="Example: shmq table create limits --max-bytes 16MiB")
@table_name
@click.option(
    "--durability",
    type=click.Choice(get_args(TableDurability)),
    help="Where it is: in shared memory, or in the data directory.  [default: memory]",
)
@click.option(
    "--max-bytes",
    type=params.size,
    metavar="SIZE",
    help="The most that it may take.  [default: no limit]",
)
@json_flag
@connected
def create(
    broker: shmq.Broker,
    /,
    name: str,
    durability: TableDurability | None,
    max_bytes: int | None,
    as_json: bool,
) -> None:
    """Make a table, unless there is one with these options."""
    options: Any = {"durability": durability, "max_bytes": max_bytes}
    with (
        audited(broker, Event.TABLE_CREATE, name, **options),
        broker.ensure_table(name, if_different="refuse", **options) as made,
    ):
        found = _describe(made)
    if as_json:
        show_json({"namespace": broker.namespace, **found})
    else:
        where = found["durability"]
        show(f"table {name!r} ({where}) is ready in namespace {broker.namespace!r}")


@table.command("list", epilog="Example: shmq table list --json")
@json_flag
@connected
def list_tables(broker: shmq.Broker, /, as_json: bool) -> None:
    """List the tables."""
    found = [_summarize(broker, name) for name in broker.list_tables()]
    if as_json:
        show_json(found)
    elif not found:
        note(f"namespace {broker.namespace!r} has no tables: make one with shmq table create NAME")
    else:
        made = output_table(["table", "durability", "keys", "max"], right=("keys", "max"))
        for each in found:
            numbers = each["keys"], "" if each["max_bytes"] is None else amount(each["max_bytes"])
            cells = [each["problem"], "", ""] if each["problem"] else [each["durability"], *numbers]
            made.add_row(*map(cell, (each["table"], *cells)))
        show_table(made)


def _summarize(broker: shmq.Broker, name: str) -> dict[str, Any]:
    """What the list says of a table; of one that cannot be used, why."""
    try:
        with broker.table(name) as found:
            return {**_describe(found), "keys": len(found), "problem": None}
    except (shmq.ShmqError, OSError) as error:
        nothing = {"durability": None, "max_bytes": None, "keys": None}
        return {"table": name, **nothing, "problem": one_line(str(error))}


def _describe(found: shmq.Table) -> dict[str, Any]:
    return {"table": found.name, "durability": found.durability, "max_bytes": found.max_bytes}


@table.command(epilog="Example: shmq table keys results --prefix job-")
@table_name
@click.option("--prefix", type=params.text, default="", metavar="TEXT", help="Only keys with it.")
@click.option("--after", type=params.text, default="", metavar="KEY", help="Only keys after it.")
@click.option(
    "--limit",
    type=params.WholeRange(1, MAX_KEYS),
    default=1000,
    show_default=True,
    metavar="N",
    help="So many keys at most.",
)
@json_flag
@connected
def keys(
    broker: shmq.Broker, /, name: str, prefix: str, after: str, limit: int, as_json: bool
) -> int:
    """Print the keys of a table, sorted."""
    with broker.table(name) as found:
        keys = found.keys(prefix, limit, after)
    if as_json:
        show_json(keys)
    for key in [] if as_json else keys:
        show(one_line(key))
    return Code.OK if keys else Code.NOTHING


@table.command(epilog="Example: shmq table get results job-0")
@table_name
@click.argument("key", type=params.text, metavar="KEY")
@click.option("--wait", type=params.seconds, metavar="TIME", help="Wait for the key, at most TIME.")
@json_flag
@connected
def get(broker: shmq.Broker, /, name: str, key: str, wait: float | None, as_json: bool) -> int:
    """Print the value of a key."""
    with broker.table(name) as found:
        if wait is not None:
            found.wait(key, wait)
        values = found.get_many([key])
    if not values:
        note(f"table {name!r} has no key {key!r}")
        return Code.NOTHING
    value = _Value(values[key])
    if as_json:
        shown, encoding = body_of(value)
        show_json({"table": name, "key": key, "value": shown, "encoding": encoding})
    else:
        text = as_text(value)
        show(printable(text, keep="\n\t") if on_a_terminal() else text)
    return Code.OK


class _Value:
    """A value with the attributes of :class:`~shmq.cli.shared.render.WithBody`."""

    def __init__(self, body: Any) -> None:
        self.body = body

    @property
    def view(self) -> memoryview:
        """Its encoded bytes."""
        return memoryview(encode_body(self.body, None)[0])


@table.command("set", epilog="Example: shmq table set results job-1 done --ttl 10m")
@table_name
@click.argument("key", type=params.text, metavar="KEY")
@click.argument("value", metavar="[VALUE]", required=False)
@click.option("--ttl", type=params.seconds, metavar="TIME", help="Forget it after TIME.")
@click.option(
    "--codec",
    type=click.Choice(_CODECS),
    default="text",
    show_default=True,
    help="What the VALUE is.",
)
@click.option("--add", is_flag=True, help="Only if the key is not there.")
@json_flag
@connected
def set_value(
    broker: shmq.Broker,
    /,
    name: str,
    key: str,
    value: str | None,
    ttl: float | None,
    codec: str,
    add: bool,
    as_json: bool,
) -> int:
    """Set a key to VALUE, or without one to all of standard input."""
    given = _decode_value(value, codec)
    with broker.table(name) as found:
        done = True
        if add:
            done = found.add(key, given, ttl)
        else:
            found.set(key, given, ttl)
    if as_json:
        show_json({"table": name, "key": key, "set": done})
    elif done:
        show(f"{key!r} is set in table {name!r}")
    if not done:
        note(f"{key!r} is in table {name!r} already, and is not set")
    return Code.OK if done else Code.EXISTS


def _decode_value(value: str | None, codec: str) -> Any:
    if value is None:
        raw = sys.stdin.buffer.read(MAX_VALUE + 1)
    else:
        raw = value.encode(errors="surrogateescape")
    try:
        return decode(raw, codec)
    except ValueError as error:
        raise click.ClickException(f"the value cannot be set: {error}") from error


@table.command(epilog="Example: shmq table delete results job-0 job-2")
@table_name
@click.argument("keys", nargs=-1, type=params.text, metavar="[KEY]...")
@yes_flag
@json_flag
@connected
def delete(
    broker: shmq.Broker, /, name: str, keys: tuple[str, ...], yes: bool, as_json: bool
) -> int:
    """Delete keys of a table, or without a KEY the table itself."""
    if not keys:
        _delete_table(broker, name, yes=yes, as_json=as_json)
        return Code.OK
    with broker.table(name) as found:
        deleted = found.delete(*keys)
    if as_json:
        show_json({"table": name, "deleted": deleted})
    else:
        show(f"{counted(deleted, 'key')} deleted from table {name!r}")
    return Code.OK if deleted else Code.NOTHING


def _delete_table(broker: shmq.Broker, name: str, *, yes: bool, as_json: bool) -> None:
    if not yes:
        held = _summarize(broker, name)["keys"]
        contents = "" if held is None else f" with {counted(held, 'key')}"
        ask_first("delete", f"Delete table {name!r}{contents}?")
    with audited(broker, Event.TABLE_DELETE, name):
        broker.delete_table(name)
    if as_json:
        show_json({"namespace": broker.namespace, "kind": "table", "deleted": name})
    else:
        show(f"table {name!r} is deleted")
