"""``shmq peek``: look at messages without leasing them."""

from __future__ import annotations

import click

import shmq
from shmq.cli.shared import render
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import connected, count_flag, json_flag, queue_name, where_flag
from shmq.cli.shared.output import amount, cell, show_json, show_table, table

__all__ = ["peek"]

#: The characters of a body that a table shows.
_SHOWN = 200


@click.command()
@queue_name()
@count_flag("How many messages to show at most.  [default: 10]", default=10)
@where_flag("Show those alone that EXPR means.")
@json_flag
@click.pass_context
@connected
def peek(
    broker: shmq.Broker,
    context: click.Context,
    name: str,
    count: int,
    where: str | None,
    as_json: bool,
) -> None:
    """Show the next messages; leave them there."""
    with broker.queue(name) as queue:
        messages = queue.peek(count, where=where)
        if as_json:
            show_json([render.as_dict(message) for message in messages])
        elif messages:
            _show(messages)
    context.exit(Code.OK if messages else Code.NOTHING)


def _show(messages: list[shmq.Message]) -> None:
    columns = ["sequence", "priority", "deliveries", "group", "codec", "size"]
    dead = any(message.dead for message in messages)
    made = table(
        [*columns, *(["dead letter"] if dead else []), "body"],
        right=("sequence", "priority", "deliveries", "size"),
    )
    for message in messages:
        row = [
            message.sequence,
            message.priority,
            message.delivery_count,
            message.group or "",
            message.codec,
            amount(len(render.raw(message))),
            *([_why(message)] if dead else []),
            _shortened(render.as_text(message)),
        ]
        made.add_row(*(cell(value) for value in row))
    show_table(made)


def _why(message: shmq.Message) -> str:
    if message.dead is None:
        return ""
    return f"{message.dead.reason} in {message.dead.queue} after {message.dead.deliveries}"


def _shortened(body: str) -> str:
    return body if len(body) <= _SHOWN else body[: _SHOWN - 1] + "…"
