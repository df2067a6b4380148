"""The list of queues, and one queue: its rates, who is attached, who holds what, its options."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import shmq
from shmq.api.names import own_dead_letters
from shmq.extras.console.api.queues import COLUMNS, row_of
from shmq.extras.console.api.rows import Table
from shmq.extras.console.observer import Series
from shmq.extras.console.pages.dead_letters import errors_of
from shmq.extras.console.pages.overview import MOST_CAUSES, find_newest_error, findings_of
from shmq.extras.console.pages.visit import Shown, Visit, page, query_pages
from shmq.extras.console.problem import Problem, text_of
from shmq.host.diagnose.activity import QueueActivity
from shmq.protocol.opcodes import Right
from shmq.workers.ledger import ScheduleSummary, find_schedule

_ROWS: Final = 50
#: The rates of a series.
RATES: Final = ("rate_in", "rate_out", "rate_failed", "rate_expired", "rate_dead")
#: How many leased messages a page shows.
_LEASES: Final = 50
#: By what the list can be sorted, and how that is called.
_SORTS: Final = {
    "oldest_age": "oldest message",
    "depth": "waiting",
    "in_flight": "leased",
    "delayed": "delayed",
    "rate_in": "rate in",
    "rate_out": "rate out",
    "dead_letters": "dead letters",
    "shm_bytes": "memory",
}


#: The columns of the list: those of the API, and the messages in the queue's dead-letter queue.
_TABLE: Final = Table({**COLUMNS, "dead_letters": "number"})


@page("/queues")
def list_queues(visit: Visit) -> Shown:
    """All queues, in pages by name, or the first by a number."""
    where, sort, after = visit.text("where"), visit.text("sort"), visit.text("after")
    if sort is not None and sort not in _SORTS:
        raise Problem.invalid(f"sort={sort[:40]!r} is none of {', '.join(_SORTS)}")
    queues = {one.name: one for one in visit.latest.queues if visit.caller.sees("queue", one.name)}
    # An expression finds dead-letter queues, too.
    listed = _fold(queues) if where is None else queues
    call = visit.call("list_queues", limit=_ROWS, where=where, after=after)
    if sort is not None:
        rows = (_make_row(one, queues) for one in listed.values())
        found = _TABLE.largest(call, rows, sort, _ROWS)
    else:
        found = _TABLE.page(call, listed, lambda name: _make_row(listed[name], queues))
    more = None
    if found.next is not None:
        more = "?" + urlencode({"after": found.next, **({"where": where} if where else {})})
    return Shown(
        "queues.html",
        {"rows": found.items, "causes": _find_causes(visit, found.items), "more": more,
         "where": where, "sort": sort, "sorts": _SORTS, "after": after},
    )  # fmt: skip


def _fold(queues: dict[str, QueueActivity]) -> dict[str, QueueActivity]:
    """The queues without the own dead-letter queues of others, which share their row."""
    own = {
        one.options.dead_letter
        for one in queues.values()
        if one.options is not None and one.options.dead_letter == own_dead_letters(one.name)
    }
    return {name: one for name, one in queues.items() if name not in own}


def _find_causes(visit: Visit, rows: list[dict[str, Any]]) -> dict[str, str]:
    """The newest errors of the queues that fail most, then of those with most dead letters."""
    worst = [
        (one["rates"].failed, one["dead_letters"] or 0, one["name"])
        for one in rows
        if not one["problem"] and (one["rates"].failed or one["dead_letters"])
    ]
    worst.sort(reverse=True)
    return {name: find_newest_error(visit, name) for _, _, name in worst[:MOST_CAUSES]}


def _make_row(queue: QueueActivity, queues: dict[str, QueueActivity]) -> dict[str, Any]:
    letters = queue.options.dead_letter if queue.options is not None else None
    dead = queues.get(letters) if letters is not None else None
    stats = dead.stats if dead is not None else None
    return {
        **row_of(queue),
        "rates": queue.rates,
        "dead_letter": letters,
        "dead_letters": stats.depth + stats.delayed + stats.in_flight if stats else None,
    }


@page("/queues/{name}")
def show_queue(visit: Visit) -> Shown:
    """One queue."""
    name = visit["name"]
    visit.see("queue", name)
    found = visit.queue(name)
    if found is None:
        # Made since the last look, or not there at all: then this says so.
        visit.console.broker.queue(name).close()
        raise Problem(503, "too-many", f"queue {name!r} was not observed yet: load the page again")
    letters = None if found.options is None else found.options.dead_letter
    dead = visit.queue(letters) if letters is not None else None
    series = visit.console.observer.history.of("queue", name, visit.latest.at)
    leases_at = time.time()
    leases, no_leases = _list_leases(visit, name) if found.stats is not None else ([], None)
    return Shown(
        "queue.html",
        {
            "queue": found,
            "stats": found.stats,
            "options": found.options.as_dict() if found.options is not None else {},
            "findings": findings_of(visit, "queue", name, letters or name),
            "errors": [
                (one.name, errors, visit.changes(Right.ADMIN, "queue", one.name))
                for one, errors in errors_of(visit, found)
            ],
            "dead": dead if dead is not None and visit.caller.sees("queue", dead.name) else None,
            "minutes": list(minutes_of(series)),
            "query_pages": query_pages(visit.console.broker, "queue", name),
            "schedule": _find_schedule(visit, name),
            "leases": leases,
            "leases_at": leases_at,
            "no_leases": no_leases,
            "most_leases": _LEASES,
            "reads": visit.reads(name),
            "puts": visit.changes(Right.PRODUCE, "queue", name),
            "administers": visit.changes(Right.ADMIN, "queue", name),
        },
    )


def _find_schedule(visit: Visit, name: str) -> ScheduleSummary | None:
    """The schedule of the queue, where it can be read: the page shows more than that."""
    try:
        return find_schedule(visit.console.broker, name)
    except shmq.ShmqError:
        return None


def _list_leases(visit: Visit, name: str) -> tuple[list[shmq.Lease], str | None]:
    """The leased messages, or why they cannot be listed: the page shows more than them."""
    try:
        with visit.console.broker.queue(name) as queue:
            return queue.leases(_LEASES), None
    except (shmq.Unsupported, shmq.Forbidden):
        return [], "This server does not tell who holds what."
    except shmq.ShmqError as error:
        return [], text_of(error)


def minutes_of(series: Series) -> Iterator[dict[str, Any]]:
    """A row for each of the last ten minutes, the newest first."""
    if not series.at:
        return
    end = series.at[-1]
    for minute in range(10):
        places = [n for n, at in enumerate(series.at) if minute * 60 <= end - at < minute * 60 + 60]
        if places:
            yield {
                "ago": minute,
                **{name: _mean(getattr(series, name), places) for name in RATES},
                "depth": max(series.depth[n] for n in places),
                "oldest_age": max(series.oldest_age[n] for n in places),
            }


def _mean(values: list[float], places: list[int]) -> float:
    return sum(values[n] for n in places) / len(places)
