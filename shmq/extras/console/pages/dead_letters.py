"""Dead letters, by reason, by the queue that they came from, and by error."""

from __future__ import annotations

import collections
from typing import Any, Final

import shmq
from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.model.expression.parse import quoted
from shmq.protocol.opcodes import Right

#: The most dead-letter queues that are looked into for one page, and the most messages of each.
_MOST_QUEUES: Final = 10
_MOST_LETTERS: Final = 1000


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
            "groups": _group_dead_letters(visit, one.name),
        }
        for one in there[:_MOST_QUEUES]
    ]
    return Shown(
        "dead_letters.html",
        {
            "rows": rows,
            "more": len(there) - len(rows),
            "most": _MOST_LETTERS,
            "wanted": wanted,
            "total": sum(one.stats.depth for one in there if one.stats is not None),
        },
    )


def _group_dead_letters(visit: Visit, name: str) -> list[dict[str, Any]] | None:
    """Count the dead letters by reason, source and error; None without the right to read them."""
    if not visit.reads(name):
        return None
    try:
        with visit.console.broker.queue(name) as queue:
            found = queue.peek(_MOST_LETTERS)
    except shmq.NoSuchQueue:
        return []
    groups = collections.Counter(map(_key_of, found))
    oldest: dict[tuple[str, str, str], float] = {}
    for one in found:
        if one.dead is not None:
            key = _key_of(one)
            oldest[key] = min(one.dead.at, oldest.get(key, one.dead.at))
    return [
        {
            "reason": reason,
            "source": source,
            "error": error,
            "count": count,
            "oldest": oldest.get((reason, source, error)),
            "where": _where(reason, source, error) if reason else None,
            "redrives": visit.changes(Right.ADMIN, "queue", name),
        }
        for (reason, source, error), count in groups.most_common()
    ]


def _key_of(message: shmq.Message) -> tuple[str, str, str]:
    """The reason, the source and the error by which dead letters are grouped."""
    dead = message.dead
    return ("", "", "") if dead is None else (dead.reason, dead.queue, str(dead.error or ""))


def _where(reason: str, source: str, error: str) -> str:
    """The expression that selects a group."""
    same = f"error = {quoted(error)}" if error else "error = null"
    return f"reason = {quoted(reason)} and queue = {quoted(source)} and {same}"
