"""The overview: three numbers, what is wrong, the queues that wait longest; and the host."""

from __future__ import annotations

import dataclasses
from typing import Any, Final
from urllib.parse import quote

from shmq.extras.console.access import visible_finding
from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.host.diagnose.findings import find

#: The most findings that are shown; there is a line for the rest.
_MOST: Final = 30


@page("/")
def show_overview(visit: Visit) -> Shown:
    """What is going on, and what somebody should look at."""
    found = visit.ask("overview")
    findings = [_add_link(one) for one in found.findings[:_MOST]]
    return Shown(
        "overview.html",
        {"found": found, "findings": findings, "more": max(len(found.findings) - _MOST, 0)},
    )


def _add_link(finding: dict[str, Any]) -> dict[str, Any]:
    return {**finding, "link": link_of(finding["kind"], finding["subject"], finding["code"])}


def link_of(kind: str, name: str, code: str) -> str:
    """The page where it can be looked at, and put right."""
    if code == "dead-letters":
        return f"/dead-letters?queue={quote(name)}"
    if kind == "host":
        return "/host"
    if kind == "exchange":
        return "/exchanges"
    return f"/{kind}s/{quote(name, safe='')}"


def findings_of(visit: Visit, kind: str, *names: str) -> list[dict[str, Any]]:
    """What is wrong with that queue or stream, or with others that belong to it."""
    return [
        _add_link(dataclasses.asdict(one))
        for one in find(visit.latest)
        if one.kind == kind and one.subject in names and visible_finding(visit.caller, one)
    ]


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
