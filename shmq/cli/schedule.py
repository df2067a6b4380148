"""``shmq schedule``: the schedules of workers, with their next and last runs."""

from __future__ import annotations

import dataclasses
import datetime as dt

import click

import shmq
from shmq.cli.queue import ask_first
from shmq.cli.shared.flags import Group, connected, json_flag, yes_flag
from shmq.cli.shared.names import queue_name
from shmq.cli.shared.output import (
    cell,
    clock,
    name_cell,
    note,
    quoted,
    show,
    show_json,
    show_table,
    table,
)
from shmq.workers.ledger import (
    HEADER,
    PUBLISHER,
    Ledger,
    ScheduleSummary,
    find_schedule,
    list_schedules,
)


@click.group(cls=Group, epilog="Example: shmq schedule list")
def schedule() -> None:
    """Show the schedules of workers, run a job now, or delete a schedule."""


@schedule.command("list", epilog="Example: shmq schedule list --json")
@json_flag
@connected
def list_all(broker: shmq.Broker, /, as_json: bool) -> None:
    """List schedules with their next and last runs.

    A schedule is declared by a worker, and listed from its first start on. OUTCOME says what became
    of the last run: its message is waiting, running, failed (a dead letter), done, or was skipped.
    """
    found = list_schedules(broker)
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
        return
    if not found:
        note(
            f"namespace {broker.namespace!r} has no schedules: a worker declares one with "
            f"@shmq.worker(..., schedule=...)"
        )
        return
    made = table(["queue", "handler", "schedule", "zone", "next run", "last run", "outcome"])
    for one in found:
        row = (one.handler, *_describe(one))
        made.add_row(name_cell(one.queue), *(cell(value) for value in row))
    show_table(made)


def _describe(one: ScheduleSummary) -> tuple[str, ...]:
    """The cells of the schedule, its zone, its runs and their outcome."""
    times = one.schedule or f"every {one.every:g} s"
    overdue = " (overdue)" if one.overdue else ""
    last = "never" if one.last_run is None else clock(one.last_run)
    outcome = ": ".join(part for part in (one.outcome, one.error) if part)
    return times, one.timezone, f"{clock(one.next_run)}{overdue}", last, outcome


def _check_schedule(broker: shmq.Broker, name: str) -> None:
    """Raise NotFound unless the queue has a schedule."""
    if find_schedule(broker, name) is None:
        raise shmq.NotFound(f"queue {name!r} has no schedule: see `shmq schedule list`", name)


@schedule.command(epilog="Example: shmq schedule run orders")
@queue_name()
@json_flag
@connected
def run(broker: shmq.Broker, /, name: str, as_json: bool) -> None:
    """Put the message of a run now, whatever the schedule says.

    Its time is the present one. The runs of the schedule are not changed.
    """
    _check_schedule(broker, name)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    with broker.put_target(name) as queue:
        put = queue.put(None, headers={HEADER: now})
    if as_json:
        show_json({"queue": name, "sequence": put.sequence, HEADER: now})
    else:
        show(f"message {put.sequence} put on queue {quoted(name)}")


@schedule.command(epilog="Example: shmq schedule delete orders --yes")
@queue_name()
@yes_flag
@json_flag
@connected
def delete(broker: shmq.Broker, /, name: str, yes: bool, as_json: bool) -> None:
    """Forget a schedule and its last run.

    For a schedule that no worker declares any more, and for one whose last run is in the future,
    because the clock was wrong. A worker that starts declares it again.
    """
    _check_schedule(broker, name)
    if not yes:
        ask_first("delete", f"Delete the schedule of queue {quoted(name)}?")
    with broker.queue(name) as queue:
        Ledger(broker, queue).forget()
        queue.staged_publisher(PUBLISHER).discard()
    if as_json:
        show_json({"queue": name, "deleted": True})
    else:
        show(f"the schedule of queue {quoted(name)} is deleted")
