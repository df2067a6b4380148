"""Streams with their groups: what is new, who lags, and which partitions are hot."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import shmq
from shmq.console.pages.overview import findings_of
from shmq.console.pages.queues import minutes_of
from shmq.console.pages.visit import Shown, Visit, page
from shmq.diagnose.activity import GroupActivity
from shmq.errors import ShmqError

_ROWS: Final = 50
#: The most partitions of a table.
_PARTITIONS: Final = 256


@page("/streams")
def list_of_streams(visit: Visit) -> Shown:
    """All streams, in pages by name."""
    after = visit.text("after") or ""
    there = [
        one
        for one in visit.latest.streams
        if visit.caller.sees("stream", one.name) and one.name > after
    ]
    rows = there[:_ROWS]
    return Shown(
        "streams.html",
        {"rows": rows, "after": after, "more": rows[-1].name if len(there) > _ROWS else None},
    )


@page("/streams/{name}")
def one_stream(visit: Visit) -> Shown:
    """One stream: its partitions, and the lag of its groups in each."""
    name = visit["name"]
    visit.see("stream", name)
    activity = next((one for one in visit.latest.streams if one.name == name), None)
    with visit.console.broker.stream(name) as stream:
        rates = {one.partition: one for one in stream.rates()}
        partitions = stream.offsets()[:_PARTITIONS]
        options = stream.options.as_dict()
        groups = activity.groups if activity is not None else ()
        members = {one.name: _members(stream, one) for one in groups}
    return Shown(
        "stream.html",
        {
            "name": name,
            "stream": activity,
            "partitions": partitions,
            "rates": rates,
            "options": options,
            "groups": groups,
            "members": members,
            "findings": findings_of(visit, "stream", name),
            "minutes": list(minutes_of(visit.console.observer.history.of("stream", name))),
        },
    )


def _members(stream: shmq.Stream, group: GroupActivity) -> list[Any]:
    if group.problem is None and group.members:
        with contextlib.suppress(ShmqError, OSError):
            return list(stream.group(group.name).members())
    return []
