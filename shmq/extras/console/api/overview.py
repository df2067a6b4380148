"""The overview: totals, what is wrong in words, and the queues that wait longest."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from shmq.extras.console.access import visible_finding
from shmq.extras.console.api.operation import Call, operation
from shmq.extras.console.api.queues import row_of
from shmq.host.diagnose.activity import Observation
from shmq.host.diagnose.findings import Finding, action_of, find
from shmq.host.diagnose.worst import rank_queue

_WORST: Final = 20
_BRIEF: Final = ("name", "depth", "in_flight", "delayed", "oldest_age", "rate_in", "rate_out",
                 "dead_lettered", "attached", "problem")  # fmt: skip


class OverviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is going on in the namespace, as far as the caller may see it."""

    namespace: str
    #: When it was observed, in seconds since 1970.
    at: float
    queues: int
    streams: int
    exchanges: int
    #: Visible messages of all queues but those of dead letters.
    waiting: int
    in_flight: int
    delayed: int
    #: The age of the oldest visible message that is not a dead letter, in seconds.
    oldest_age: float
    dead_letters: int
    #: The queues with the oldest messages.
    worst: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    host: dict[str, Any] | None
    changes_allowed: bool


@operation("GET", "/overview", answer=OverviewAnswer, tag="overview")
def overview(call: Call) -> OverviewAnswer:
    """Show totals, findings in words, and the queues with the oldest messages."""
    found = call.latest
    return summary(call, found)


def summary(call: Call, found: Observation) -> OverviewAnswer:
    """The overview of an observation, for this caller."""
    caller = call.caller
    queues = [one for one in found.queues if caller.sees("queue", one.name)]
    letters = {
        one.options.dead_letter
        for one in found.queues
        if one.options is not None and one.options.dead_letter is not None
    }
    alive = [one for one in queues if one.stats is not None]
    plain = [one.stats for one in alive if one.name not in letters and one.stats is not None]
    dead = [one.stats for one in alive if one.name in letters and one.stats is not None]
    others = (one for one in alive if one.name not in letters)
    worst = heapq.nlargest(_WORST, others, key=rank_queue)
    return OverviewAnswer(
        namespace=found.namespace,
        at=found.at,
        queues=len(queues),
        streams=sum(caller.sees("stream", one.name) for one in found.streams),
        exchanges=sum(caller.sees("exchange", one.name) for one in found.exchanges),
        waiting=sum(stats.depth for stats in plain),
        in_flight=sum(stats.in_flight for stats in plain),
        delayed=sum(stats.delayed for stats in plain),
        oldest_age=max((stats.oldest_age for stats in plain), default=0.0),
        dead_letters=sum(stats.depth for stats in dead),
        worst=[
            {name: row[name] for name in _BRIEF}
            for row in (row_of(one) for one in worst if one.stats is not None and one.stats.depth)
        ],
        findings=[
            dataclasses.asdict(one)
            for one in (*_find_old(call), *find(found))
            if visible_finding(caller, one)
        ],
        host=dataclasses.asdict(found.host) if found.host is not None else None,
        changes_allowed=call.console.settings.allow_changes,
    )


def _find_old(call: Call) -> Iterator[Finding]:
    """Nothing else counts if it is of long ago."""
    old = call.console.observer.old()
    if old is not None:
        text = f"the numbers are old: {old}"
        yield Finding(
            severity="critical",
            kind="host",
            subject="console",
            code="not-observed",
            text=text,
            action=action_of("not-observed", "console"),
        )
