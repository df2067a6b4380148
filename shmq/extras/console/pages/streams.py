"""Streams with their groups: what is new, who lags, and which partitions are hot."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

import shmq
from shmq.errors import NoSuchStream, ShmqError, StreamDeleted
from shmq.extras.console.access import visible_stream
from shmq.extras.console.pages.overview import findings_of
from shmq.extras.console.pages.queues import minutes_of
from shmq.extras.console.pages.visit import Shown, Visit, page, query_pages
from shmq.extras.console.problem import text_of
from shmq.host.diagnose.activity import GroupActivity, StreamActivity

_ROWS: Final = 50
#: The most partitions of a table.
_PARTITIONS: Final = 256


@page("/streams")
def list_streams(visit: Visit) -> Shown:
    """All streams, in pages by name."""
    after = visit.text("after") or ""
    there = [
        visible_stream(visit.caller, one)
        for one in visit.latest.streams
        if visit.caller.sees("stream", one.name) and one.name > after
    ]
    rows = there[:_ROWS]
    return Shown(
        "streams.html",
        {"rows": rows, "after": after, "more": rows[-1].name if len(there) > _ROWS else None},
    )


@page("/streams/{name}")
def show_stream(visit: Visit) -> Shown:
    """One stream: its partitions, and the lag of its groups in each."""
    name = visit["name"]
    visit.see("stream", name)
    seen = [one for one in visit.latest.streams if one.name == name]
    activity = visible_stream(visit.caller, seen[0]) if seen else None
    return Shown(
        "stream.html",
        {
            "name": name,
            "stream": activity,
            "groups": activity.groups if activity is not None else (),
            "findings": findings_of(visit, "stream", name),
            "query_pages": query_pages(visit.console.broker, "stream", name),
            "minutes": list(
                minutes_of(visit.console.observer.history.of("stream", name, visit.latest.at))
            ),
            **_describe_stream(visit, name, activity),
        },
    )


def _describe_stream(visit: Visit, name: str, activity: StreamActivity | None) -> dict[str, Any]:
    """What the stream itself tells; one that cannot be used tells why."""
    found: dict[str, Any] = {
        "read_at": time.time(), "partitions": [], "rates": {}, "options": {}, "members": {},
        "problem": None,
    }  # fmt: skip
    try:
        with visit.console.broker.stream(name) as stream:
            found["rates"] = {one.partition: one for one in stream.rates()}
            found["partitions"] = stream.offsets()[:_PARTITIONS]
            found["options"] = stream.options.as_dict()
            for one in activity.groups if activity is not None else ():
                found["members"][one.name] = _list_members(stream, one)
    except (NoSuchStream, StreamDeleted):
        raise
    except ShmqError as error:
        found["problem"] = text_of(error)
    return found


def _list_members(stream: shmq.Stream, group: GroupActivity) -> list[Any]:
    if group.problem is None and group.members:
        with contextlib.suppress(ShmqError, OSError):
            return list(stream.group(group.name, create=False).members())
    return []
