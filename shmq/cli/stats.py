"""``shmq stats``: a queue, a stream or an exchange, or all of them, in numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

import shmq
from shmq.api.options import QueueOptions, options_of
from shmq.cli.shared.broker_target import typed
from shmq.cli.shared.exit_codes import Code, code_of, describe
from shmq.cli.shared.flags import connected, json_flag, queue_name
from shmq.cli.shared.kinds import (
    EXCHANGE,
    KINDS,
    QUEUE,
    STREAM,
    complete_names,
    exchange_as_dict,
    found_of,
    kind_of,
    kinds_flag,
    stream_activity,
)
from shmq.cli.shared.output import age, amount, cell, note, show_json, show_table, table
from shmq.diagnose.journals import journal_problem

__all__ = ["stats"]

_IN_BYTES: Final = {
    *(name for name, row in options_of(QueueOptions).items() if row.kind == "bytes"),
    *("arena_used", "arena_largest_free", "shm_bytes", "journal_bytes"),
}
_IN_SECONDS: Final = {
    *(name for name, row in options_of(QueueOptions).items() if row.kind == "seconds"),
    *("oldest_age", "snapshot_age"),
}
_PER_SECOND = ("rate_in", "rate_out")

#: What is told of one as JSON, and what is wrong with it.
_Measured = tuple[dict[str, Any], str | None]

#: What is raised for what was deleted since it was listed.
_GONE: Final = (
    shmq.NoSuchQueue,
    shmq.QueueDeleted,
    shmq.NoSuchStream,
    shmq.StreamDeleted,
    shmq.NoSuchExchange,
)


@click.command()
@queue_name(
    required=False,
    help="A queue's name; without a name, everything in the namespace.",
    complete=complete_names,
)
@kinds_flag
@json_flag
@click.pass_context
@connected
def stats(
    broker: shmq.Broker,
    context: click.Context,
    name: str | None,
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show a queue, a stream or an exchange, or all of them, in numbers.

    Depths, the age of the oldest message, rates, totals and memory; of one queue or stream
    also its options.
    """
    if name is not None:
        if typed(context, "name"):
            kinds = (QUEUE,)
        _tell_one(broker, name, kinds, as_json)
        return
    failed = [Code.OK]
    told = {kind: list(_of_each(broker, kind, kinds, failed)) for kind in KINDS}
    if as_json:
        show_json([one for every in told.values() for one, _ in every])
    else:
        for kind, every in told.items():
            _show_all(kind, every)
    context.exit(failed[-1])


def _tell_one(broker: shmq.Broker, name: str, kinds: tuple[str, ...], as_json: bool) -> None:
    kind = kinds[0] if len(kinds) == 1 else kind_of(broker, name, kinds)
    one, wrong = _MEASURES[kind](broker, name)
    if as_json:
        show_json(one)
    else:
        _show_one(one)
        _warn(name, wrong)


def _of_each(
    broker: shmq.Broker, kind: str, kinds: Sequence[str], failed: list[Code]
) -> Iterator[_Measured]:
    """Each that can be read; ``failed`` gets what the others end the command with."""
    for summary in found_of(broker, kind, kinds):
        try:
            yield _MEASURES[kind](broker, summary.name)
        except _GONE:
            continue
        except shmq.ShmqError as error:
            note(describe(error))
            failed.append(code_of(error))


def _queue(broker: shmq.Broker, name: str) -> _Measured:
    with broker.queue(name) as queue:
        numbers, options = queue.stats(), queue.options
    told = {"kind": QUEUE, **dataclasses.asdict(numbers), "options": options.as_dict()}
    return told, journal_problem(numbers)


def _stream(broker: shmq.Broker, name: str) -> _Measured:
    with broker.stream(name) as stream:
        told = {
            "kind": STREAM,
            "name": name,
            "partitions": stream.options.partitions,
            **stream_activity(stream),
            "groups": len(stream.groups()),
            "options": stream.options.as_dict(),
        }
    return told, None


def _exchange(broker: shmq.Broker, name: str) -> _Measured:
    for found in broker.list_exchanges():
        if found.name == name:
            return exchange_as_dict(found), None
    raise shmq.NoSuchExchange(f"there is no exchange {name!r} in namespace {broker.namespace!r}")


_MEASURES: Final = {QUEUE: _queue, STREAM: _stream, EXCHANGE: _exchange}

#: The columns of the table of each kind, and the numbers in them.
_COLUMNS: Final = {
    QUEUE: {
        "visible": "depth",
        "delayed": "delayed",
        "in flight": "in_flight",
        "oldest": "oldest_age",
        "in": "rate_in",
        "out": "rate_out",
        "put": "put",
        "acked": "acked",
        "dead letters": "dead_lettered",
        "arena used": "arena_used",
    },
    STREAM: {
        "partitions": "partitions",
        "records": "records",
        "oldest": "oldest_age",
        "in": "rate_in",
        "groups": "groups",
    },
    EXCHANGE: {"type": "type", "bindings": "bindings", "alternate": "alternate"},
}


def _show_one(one: dict[str, Any]) -> None:
    numbers = {key: value for key, value in one.items() if key not in {"name", "options"}}
    for heading, values in ((one["name"], numbers), ("options", one.get("options"))):
        if values is None:
            continue
        made = table([heading, "value"], right=("value",))
        for key, value in values.items():
            made.add_row(cell(key.replace("_", " ")), cell(_shown(key, value)))
        show_table(made)


def _show_all(kind: str, every: list[_Measured]) -> None:
    if not every:
        return
    columns = _COLUMNS[kind]
    made = table([kind, *columns], right=columns)
    for one, _ in every:
        values = (_shown(key, one[key]) for key in columns.values())
        made.add_row(cell(one["name"]), *(cell(value) for value in values))
    show_table(made)
    for one, wrong in every:
        _warn(one["name"], wrong)


def _warn(name: str, wrong: str | None) -> None:
    """Say what is wrong with a queue's disk, where that can be missed in a table."""
    if wrong is not None:
        note(f"{name}: {wrong}")


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key in _IN_BYTES:
        return amount(value)
    if key in _IN_SECONDS:
        return age(value)
    if key in _PER_SECOND:
        return f"{value:,.1f}/s"
    return f"{value:,}" if isinstance(value, int) else str(value)
