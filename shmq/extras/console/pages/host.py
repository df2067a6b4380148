"""The host: /dev/shm, who writes to disk, and what was repaired."""

from __future__ import annotations

from typing import Final

from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.host.diagnose.findings import find

_MOST: Final = 30


@page("/host")
def host(visit: Visit) -> Shown:
    """What the queues take of the host."""
    found = visit.latest
    stats = [
        one.stats
        for one in found.queues
        if one.stats is not None and visit.caller.sees("queue", one.name)
    ]
    durable = [one for one in stats if one.durability != "memory"]
    return Shown(
        "host.html",
        {
            "found": found,
            "host": found.host,
            "findings": [one for one in find(found) if one.kind == "host"],
            "largest": sorted(stats, key=lambda one: -one.shm_bytes)[:_MOST],
            "durable": sorted(durable, key=lambda one: -one.journal_lag)[:_MOST],
            "repaired": sorted(
                (one for one in stats if one.recoveries), key=lambda one: -one.recoveries
            )[:_MOST],
            "total": sum(one.shm_bytes for one in stats),
            "problem": visit.console.observer.problem,
        },
    )
