"""``shmq locks``: locks and semaphores with those who hold them and wait for them."""

from __future__ import annotations

import dataclasses

import click

import shmq
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.output import cell, clock, note, one_line, show_json, show_table, table
from shmq.host.diagnose.users import has_users, user_of


@click.command(epilog="Example: shmq locks")
@json_flag
@connected
def locks(broker: shmq.Broker, as_json: bool) -> None:
    """List locks and semaphores with their holders and waiters.

    A lock that no process has open is not listed. The holder of a remote client's lock is the
    server's process.
    """
    found = broker.list_locks()
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
        return
    if not found:
        note(f"namespace {broker.namespace!r} has no locks: a program makes one with broker.lock")
        return
    users = ["user"] if has_users(broker) else []
    made = table(["name", "kind", "state", *users, "pid", "process", "since"], right=("pid",))
    for lock in found:
        kind = lock.kind if lock.kind == "lock" else f"semaphore of {lock.permits}"
        who = [("holds", one) for one in lock.holders] + [("waits", one) for one in lock.waiters]
        rows: list[tuple[object, ...]] = [
            (
                state,
                *(user_of(one.pid) for _ in users),
                one.pid,
                one_line(one.name),
                clock(one.since),
            )
            for state, one in who
        ]
        for row in rows or [("free", *("" for _ in users), "", "", "")]:
            made.add_row(*(cell(value) for value in (lock.name, kind, *row)))
    show_table(made)
