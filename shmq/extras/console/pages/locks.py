"""The list of locks and semaphores: who holds them, since when, and who waits."""

from __future__ import annotations

import time
from typing import Any, Final

from shmq.errors import Unsupported
from shmq.extras.console.api.rows import Page
from shmq.extras.console.pages.visit import Shown, Visit, page

_ROWS: Final = 50
#: How many holders and waiters of each are shown.
_MOST: Final = 20


@page("/locks")
def show_locks(visit: Visit) -> Shown:
    """All locks, in pages by name."""
    after = visit.text("after", 255)
    supported, at = True, time.time()
    try:
        found = visit.ask("list_locks", limit=_ROWS, after=after)
    except Unsupported:
        supported, found = False, Page(items=[])
    return Shown(
        "locks.html",
        {
            "locks": [_make_rows(one) for one in found.items],
            "stopped": [_add_stopped(one) for one in found.items if one["stopped"]],
            "next": found.next,
            "after": after,
            "supported": supported,
            "at": at,
        },
    )


def _make_rows(lock: dict[str, Any]) -> dict[str, Any]:
    """The lock with a row for each holder and waiter, or one that says that it is free."""
    rows = [("holds", one) for one in lock["holders"]]
    if lock["held"] < lock["permits"] and not rows:
        rows = [("free", None)]
    rows += [("waits", one) for one in lock["waiters"]]
    return {**lock, "rows": rows[:_MOST], "more": max(len(rows) - _MOST, 0)}


def _add_stopped(lock: dict[str, Any]) -> dict[str, Any]:
    return {**lock, "pids": [one.pid for one in lock["holders"] if one.stopped]}
