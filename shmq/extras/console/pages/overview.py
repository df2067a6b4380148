"""The overview: three numbers, what is wrong in words, and the queues that wait longest."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from shmq.extras.console.pages.visit import Shown, Visit, page
from shmq.extras.console.visibility import visible_finding
from shmq.host.diagnose.findings import Finding, find

#: The most findings that are shown; there is a line for the rest.
_MOST: Final = 30


@page("/")
def overview(visit: Visit) -> Shown:
    """What is going on, and what somebody should look at."""
    found = visit.ask("overview")
    findings = [
        {**one, "link": link_of(one["kind"], one["subject"], one["code"])} for one in found.findings
    ]
    return Shown(
        "overview.html",
        {"found": found, "findings": findings[:_MOST], "more": max(len(findings) - _MOST, 0)},
    )


def link_of(kind: str, name: str, code: str) -> str:
    """The page where it can be looked at, and put right."""
    if code == "dead-letters":
        return f"/letters?queue={quote(name)}"
    if kind == "host":
        return "/host"
    if kind == "exchange":
        return "/exchanges"
    return f"/{kind}s/{quote(name, safe='')}"


def findings_of(visit: Visit, kind: str, name: str) -> list[Finding]:
    """What is wrong with that queue or stream."""
    return [
        one
        for one in find(visit.latest)
        if one.kind == kind and one.subject == name and visible_finding(visit.caller, one)
    ]
