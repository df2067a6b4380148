"""``shmq stats``: a queue, or all of them, in numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

import shmq
from shmq.cli.failure import Code, code_of, describe
from shmq.cli.flags import connected, json_flag, queue_flag
from shmq.cli.output import age, amount, cell, note, show_json, show_table, table
from shmq.health.journals import journal_problem

__all__ = ["stats"]

_IN_BYTES = (
    "arena_bytes",
    "arena_used",
    "arena_largest_free",
    "shm_bytes",
    "max_message_bytes",
    "journal_bytes",
)
_IN_SECONDS = (
    "oldest_age",
    "visibility_timeout",
    "ttl",
    "retry_delay",
    "retry_delay_max",
    "dedupe_window",
    "snapshot_interval",
    "snapshot_age",
)
_PER_SECOND = ("rate_in", "rate_out")


@click.command()
@queue_flag(required=False, help="The queue's name; without it, every queue of the namespace.")
@json_flag
@click.pass_context
@connected
def stats(broker: shmq.Broker, context: click.Context, name: str | None, as_json: bool) -> None:
    """Show a queue, or all of them, in numbers.

    Depths, the age of the oldest message, rates, totals and memory; of one queue also
    its options.
    """
    if name is not None:
        with broker.queue(name) as queue:
            numbers, options = queue.stats(), queue.options
        if as_json:
            show_json(_as_dict(numbers, options))
        else:
            _show_one(numbers, options)
        return
    measured, failed = _measure_all(broker)
    if as_json:
        show_json([_as_dict(*one) for one in measured])
    elif measured:
        _show_all([numbers for numbers, _ in measured])
    context.exit(failed)


def _measure_all(
    broker: shmq.Broker,
) -> tuple[list[tuple[shmq.QueueStats, shmq.QueueOptions]], Code]:
    """Every queue that can be read, and what the others end the command with."""
    measured, failed = [], Code.OK
    for summary in broker.list_queues():
        try:
            with broker.queue(summary.name) as queue:
                measured.append((queue.stats(), queue.options))
        except (shmq.NoSuchQueue, shmq.QueueDeleted):
            continue
        except shmq.ShmqError as error:
            note(describe(error))
            failed = code_of(error)
    return measured, failed


def _as_dict(numbers: shmq.QueueStats, options: shmq.QueueOptions) -> dict[str, Any]:
    return {**dataclasses.asdict(numbers), "options": options.as_dict()}


def _show_one(numbers: shmq.QueueStats, options: shmq.QueueOptions) -> None:
    for heading, values in (
        (numbers.name, dataclasses.asdict(numbers)),
        ("options", options.as_dict()),
    ):
        made = table([heading, "value"], right=("value",))
        for key, value in values.items():
            if key != "name":
                made.add_row(cell(key.replace("_", " ")), cell(_shown(key, value)))
        show_table(made)
    _warn(numbers)


def _show_all(every: list[shmq.QueueStats]) -> None:
    columns = {
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
    }
    made = table(["queue", *columns], right=columns)
    for numbers in every:
        values = (_shown(key, getattr(numbers, key)) for key in columns.values())
        made.add_row(cell(numbers.name), *(cell(value) for value in values))
    show_table(made)
    for numbers in every:
        _warn(numbers)


def _warn(numbers: shmq.QueueStats) -> None:
    """Say what is wrong with the queue's disk, where that can be missed in a table."""
    problem = journal_problem(numbers)
    if problem is not None:
        note(f"{numbers.name}: {problem}")


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
