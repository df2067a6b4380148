"""Locks and semaphores: those who hold them, and those who wait."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shmq.api.lock import LockHolder, LockSummary
from shmq.api.names import LOCK_PERMITS
from shmq.extras.console.api.operation import Call, operation
from shmq.extras.console.api.rows import PAGE, Page, Table
from shmq.host.supervision.heartbeat import is_stopped

#: The columns of the list.
COLUMNS: Final = {
    "name": "text",
    "kind": "text",
    "permits": "number",
    "held": "number",
    "waiting": "number",
    "stopped": "number",
}
_TABLE: Final = Table(COLUMNS)


class HolderView(msgspec.Struct, frozen=True, kw_only=True):
    """One who holds a lock or a permit, or waits for it."""

    #: The process id; of a remote client, that of the server's process; 0: it is not visible.
    pid: int
    #: The name of that process.
    name: str
    #: Since when it has held it, or waited for it, in seconds since 1970.
    since: float
    #: Whether a signal or a debugger has stopped it: it holds what it holds until it goes on. Null:
    #: unknown, as it is a process of another host.
    stopped: bool | None


@operation("GET", "/locks", *PAGE, answer=Page, tag="locks")
def list_locks(call: Call) -> Page:
    """List locks and semaphores with their holders and waiters, in pages.

    They are asked for at each call; those that no process has open do not exist.
    """
    local = call.latest.host is not None
    found = {
        one.name: _make_row(one, local=local)
        for one in call.console.broker.list_locks()
        if call.caller.sees("queue", LOCK_PERMITS + one.name)
    }
    return _TABLE.page(call, found, found.get)


def _make_row(lock: LockSummary, *, local: bool) -> dict[str, Any]:
    holders = [_view(one, local=local) for one in lock.holders]
    return {
        "name": lock.name,
        "kind": lock.kind,
        "permits": lock.permits,
        "held": len(holders),
        "waiting": len(lock.waiters),
        "stopped": sum(one.stopped is True for one in holders),
        "holders": holders,
        "waiters": [_view(one, local=local) for one in lock.waiters],
    }


def _view(holder: LockHolder, *, local: bool) -> HolderView:
    return HolderView(
        pid=holder.pid,
        name=holder.name,
        since=holder.since,
        stopped=is_stopped(holder.pid) if local else None,
    )
