"""Dead letters, by reason, by the queue that they came from, and by error."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Final

from shmq.extras.console.errors import Errors
from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.host.diagnose.activity import QueueActivity
from shmq.protocol.opcodes import Right

#: The most dead-letter queues that are looked into for one page.
_MOST_QUEUES: Final = 10


@page("/dead-letters")
def show_dead_letters(visit: Visit) -> Shown:
    """All dead-letter queues that have any, the fullest first."""
    wanted = visit.text("queue", 255)
    sources = collections.defaultdict(list)
    for one in visit.latest.queues:
        if one.options is not None and one.options.dead_letter is not None:
            sources[one.options.dead_letter].append(one.name)
    there = [
        one
        for one in visit.latest.queues
        if one.name in sources
        and one.stats is not None
        and one.stats.depth
        and visit.caller.sees("queue", one.name)
        and wanted in {None, one.name}
    ]
    there.sort(key=lambda one: -(one.stats.depth if one.stats is not None else 0))
    rows = [
        {
            "queue": one,
            "sources": [it for it in sources[one.name] if visit.caller.sees("queue", it)],
            "errors": read_errors(visit, one),
            "redrives": visit.changes(Right.ADMIN, "queue", one.name),
        }
        for one in there[:_MOST_QUEUES]
    ]
    return Shown(
        "dead_letters.html",
        {
            "rows": rows,
            "more": len(there) - len(rows),
            "wanted": wanted,
            "total": sum(one.stats.depth for one in there if one.stats is not None),
        },
    )


def errors_of(visit: Visit, queue: QueueActivity | None) -> Iterator[tuple[QueueActivity, Errors]]:
    """What failed of the queue, its dead letters first; none of what the caller may not read."""
    if queue is None:
        return
    letters = queue.options.dead_letter if queue.options is not None else None
    for one in (visit.queue(letters) if letters is not None else None, queue):
        errors = read_errors(visit, one) if one is not None else None
        if one is None or errors is None:
            continue
        groups = tuple(
            it for it in errors.groups if it.where and (one is queue or it.source == queue.name)
        )
        if groups:
            yield one, dataclasses.replace(errors, groups=groups)


def read_errors(visit: Visit, queue: QueueActivity) -> Errors | None:
    """The errors of the queue's messages; None without the right to read them."""
    if not visit.reads(queue.name):
        return None
    return visit.console.errors.of(visit.console.broker, queue)
