"""The overview: three numbers, what is wrong, the queues that wait longest; and the host."""

from __future__ import annotations

import dataclasses
from typing import Any, Final
from urllib.parse import quote

from shmq.extras.console.access import visible_finding
from shmq.extras.console.pages.dead_letters import errors_of
from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.host.diagnose.findings import find

#: The most findings that are shown; there is a line for the rest.
_MOST: Final = 30


@page("/")
def show_overview(visit: Visit) -> Shown:
    """What is going on, and what somebody should look at."""
    found = visit.ask("overview")
    findings = [_add_link(one) for one in found.findings[:_MOST]]
    add_causes(visit, findings)
    return Shown(
        "overview.html",
        {"found": found, "findings": findings, "more": max(len(found.findings) - _MOST, 0)},
    )


def _add_link(finding: dict[str, Any]) -> dict[str, Any]:
    link = link_of(finding["kind"], finding["subject"], finding["code"])
    return {**finding, "link": link, "cause": ""}


def link_of(kind: str, name: str, code: str) -> str:
    """The page where it can be looked at, and put right."""
    if code == "failing":
        return f"/queues/{quote(name, safe='')}#errors"
    if code == "dead-letters":
        return f"/dead-letters?queue={quote(name)}"
    if kind == "host":
        return "/host"
    if kind == "exchange":
        return f"/exchanges/{quote(name, safe='')}" if name != "*" else "/exchanges"
    return f"/{kind}s/{quote(name, safe='')}"


def findings_of(visit: Visit, kind: str, *names: str) -> list[dict[str, Any]]:
    """What is wrong with that queue or stream, or with others that belong to it."""
    found = [
        _add_link(dataclasses.asdict(one))
        for one in find(visit.latest)
        if one.kind == kind and one.subject in names and visible_finding(visit.caller, one)
    ]
    add_causes(visit, found)
    return found


#: The most findings, and rows of a list, whose newest error is shown.
MOST_CAUSES: Final = 5


def add_causes(visit: Visit, findings: list[dict[str, Any]]) -> None:
    """Add the newest error to the first findings that are about failed messages."""
    failed = [one for one in findings if one["code"] in {"dead-letters", "failing"}]
    for one in failed[:MOST_CAUSES]:
        one["cause"] = find_newest_error(visit, one["subject"])


def find_newest_error(visit: Visit, name: str) -> str:
    """The newest error of the queue's messages and its dead letters; empty without one."""
    groups = [it for _, errors in errors_of(visit, visit.queue(name)) for it in errors.groups]
    newest = max(groups, key=lambda it: it.last or 0.0, default=None)
    return newest.error if newest is not None else ""


_MOST_OF_HOST: Final = 30


@page("/host")
def show_host(visit: Visit) -> Shown:
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
            "findings": findings_of(visit, "host", "/dev/shm"),
            "largest": sorted(stats, key=lambda one: -one.shm_bytes)[:_MOST_OF_HOST],
            "durable": sorted(durable, key=lambda one: -one.journal_lag)[:_MOST_OF_HOST],
            "repaired": sorted(
                (one for one in stats if one.recoveries), key=lambda one: -one.recoveries
            )[:_MOST_OF_HOST],
            "total": sum(one.shm_bytes for one in stats),
            "problem": visit.console.observer.problem,
        },
    )
