"""The groups of a stream of a cluster: one definition each, which every change compares first.

A commit of a member that has lost its partition is refused: the definition says whose it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from shmq import api
from shmq.api.names import check_name
from shmq.client.handles.group import group_options, summary_of
from shmq.client.local.group_store import divided
from shmq.client.ports.group import GroupStore, PartitionSeat
from shmq.errors import Full, InvalidOption, NoSuchGroup, ShmqError, StreamDeleted
from shmq.extras.nats.client.loop_thread import LoopThread
from shmq.extras.nats.client.names import escape
from shmq.extras.nats.client.watch import STALE, Watch
from shmq.native import _clock as time

#: How long a state that was fetched is used by a member between two records, in seconds.
_FRESH: Final = 0.05
_MOST_MEMBERS: Final = 512
_NO_MEMBER: Final = 0
#: A member writes its heartbeat this many times in the time after which it is removed.
_BEATS: Final = 4
_NS: Final = 10**9

_Document = dict[str, Any]


def _make_key(stream: Any, name: str) -> str:
    return f"group.{escape(stream.name)}.{escape(name)}"


def open_group(stream: Any, name: str, given: Mapping[str, Any], create: bool) -> NatsGroupStore:
    """Implements `StreamPort.open_group`."""
    assignment = given.get("assignment")
    options = group_options(given)
    made = {
        "options": {**options, "group_id": secrets.randbits(63) | 1, "created_at": time.time_ns()},
        "next": 1,
        "members": [],
        "seats": [[_NO_MEMBER, _NO_MEMBER, None, 0, 0] for _ in range(stream.partitions)],
        "epoch": 0,
        "planned": 0,
        "rebalances": 0,
        "evicted": 0,
    }
    key = _make_key(stream, name)
    stream.offsets()  # raises StreamDeleted
    found = stream.run(stream.definitions.get(key))
    if found is None and not create:
        raise NoSuchGroup.of(name, stream.name)
    if found is None:
        stream.run(stream.definitions.put(key, made, 0))
    elif assignment not in (None, found.value["options"]["assignment"]):
        raise InvalidOption(
            f"group {name!r} of stream {stream.name!r} divides partitions by "
            f"{found.value['options']['assignment']!r}, not {assignment!r}: use it as is, or "
            f"delete it first"
        )
    return NatsGroupStore(stream, name, NatsGroupState(stream, name))


def groups_of(stream: Any) -> list[api.GroupSummary]:
    """Implements ``groups`` of :class:`shmq.api.Stream`."""
    stream.offsets()  # raises StreamDeleted
    found = []
    for name in stream.run(stream.definitions.names(f"group.{escape(stream.name)}")):
        with contextlib.suppress(StreamDeleted):
            found.append(summary_of(NatsGroupStore(stream, name, NatsGroupState(stream, name))))
    return found


def delete_group(stream: Any, name: str) -> None:
    """Implements ``delete_group`` of :class:`shmq.api.Stream`."""
    key = _make_key(stream, check_name(name, "group"))
    stream.offsets()  # raises StreamDeleted
    if stream.run(stream.definitions.get(key)) is None:
        raise NoSuchGroup.of(name, stream.name)
    stream.run(stream.definitions.remove(key))


class NatsGroupState:
    """Implements :class:`shmq.client.ports.group.MemberState`."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name
        self._document: _Document = {}
        self._revision = 0
        self._fetched_at = 0.0
        self._beaten_at = 0.0
        self._looked_at = 0.0
        #: For each member its last beat, and when that was seen first, by this process's clock.
        self._seen: dict[int, tuple[int, float]] = {}
        self.deleted = False
        self._watch = Watch(stream.connection, stream.definitions.subject(_make_key(stream, name)))
        self._fetch()

    # ---- the definition ----

    def _fetch(self) -> _Document:
        asked_at = time.monotonic()
        found = self._stream.run(self._stream.definitions.get(_make_key(self._stream, self._name)))
        known = self._document.get("options", {}).get("group_id")
        if found is None or known not in (None, found.value["options"]["group_id"]):
            self.deleted = True
            raise StreamDeleted(f"the group {self._name!r} was deleted")
        self._document, self._revision = found.value, found.revision
        self._fetched_at = asked_at
        return self._document

    def _fetch_fresh(self) -> _Document:
        if time.monotonic() - self._fetched_at > _FRESH:
            return self._fetch()
        return self._document

    async def changed(self, timeout: float) -> None:
        """Return once another has changed the definition, or after that time."""
        await self._watch.changed(self._revision, self._fetched_at, timeout)

    def expire(self) -> None:
        """Have the state fetched by the next heartbeat."""
        self._fetched_at = 0.0

    def change(self, apply: Callable[[_Document], bool]) -> bool:
        """Change the definition; False if ``apply`` says that there is nothing to change."""
        while True:
            document = self._fetch()
            if not apply(document):
                return False
            revision = self._stream.run(
                self._stream.definitions.put(
                    _make_key(self._stream, self._name), document, self._revision
                )
            )
            if revision is not None:
                self._revision = revision
                return True

    # ---- looking ----

    @property
    def options(self) -> dict[str, Any]:
        """The options that the group was created with."""
        options: dict[str, Any] = self._document["options"]
        return options

    @property
    def partitions(self) -> int:
        """The number of partitions known to its members."""
        return len(self._document["seats"])

    def numbers(self) -> dict[str, int]:
        """Its counters."""
        document = self._fetch()
        zeros = dict.fromkeys(("held", "acked", "dropped", "dead_lettered", "skipped"), 0)
        counts = {key: int(document[key]) for key in ("rebalances", "evicted")}
        return {**zeros, **counts}

    def members(self) -> list[tuple[int, int, str, int, int]]:
        """The id, process number, name, joining time and deadline of each member."""
        return [
            (one["id"], one["process"], one["name"], one["joined"], 0) for one in self._list_rows()
        ]

    def _list_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._fetch()["members"]
        return rows

    def seats(self) -> list[PartitionSeat]:
        """A row for each partition."""
        return [
            (owner, assigned, committed, at, None, changes)
            for owner, assigned, committed, at, changes in self._fetch()["seats"]
        ]

    def committed(self, partition: int) -> int | None:
        """The partition's committed offset, if there is one."""
        found: int | None = self._fetch_fresh()["seats"][partition][2]
        return found

    # ---- members ----

    @property
    def planned(self) -> bool:
        """Whether the partitions are assigned to the current members."""
        document = self._fetch_fresh()
        return bool(document["planned"] == document["epoch"])

    def plan(self, assignment: str) -> None:
        """Assign the partitions to the members, unless that is done."""

        def assign(document: _Document) -> bool:
            if document["planned"] == document["epoch"]:
                return False
            owners = [seat[0] for seat in document["seats"]]
            ids = [one["id"] for one in document["members"]]
            for seat, member in zip(
                document["seats"], divided(assignment, ids, owners, 0), strict=True
            ):
                seat[1] = member
            document["planned"] = document["epoch"]
            document["rebalances"] += 1
            return True

        self.change(assign)

    def join(self, process: int, name: bytes) -> tuple[int, int]:
        """Become a member; returns its slot and its id. Raises Full."""
        made = _NO_MEMBER

        def add(document: _Document) -> bool:
            nonlocal made
            if len(document["members"]) >= _MOST_MEMBERS:
                raise Full(f"group {self._name!r} has {_MOST_MEMBERS} members, the most it may")
            made = document["next"]
            document["next"] += 1
            document["epoch"] += 1
            document["members"].append(
                {
                    "id": made,
                    "process": process,
                    "name": name.decode("utf-8", "replace"),
                    "joined": time.time_ns(),
                    "beat": 0,
                }
            )
            return True

        self.change(add)
        self._beaten_at = time.monotonic()
        return 0, made

    def leave(self, member: int, evicted: bool) -> bool:
        """Remove a member; whether it was one."""

        def remove(document: _Document) -> bool:
            rest = [one for one in document["members"] if one["id"] != member]
            if len(rest) == len(document["members"]):
                return False
            document["members"] = rest
            document["epoch"] += 1
            document["evicted"] += evicted
            for seat in document["seats"]:
                if seat[0] == member:
                    seat[0] = _NO_MEMBER
                    seat[4] += 1
            return True

        try:
            return self.change(remove)
        except StreamDeleted:
            return False

    def beat(self, at: int, member: int) -> int | None:
        """Record a heartbeat; returns a number that changes with the plan, None for others."""
        del at
        document = self._fetch_fresh()
        if not any(one["id"] == member for one in document["members"]):
            return None
        if time.monotonic() - self._beaten_at > self.options["session"] / _NS / _BEATS:
            self._beaten_at = time.monotonic()
            self.change(lambda now: _update_heartbeat(now, member))
            document = self._document
        # A partition that another member gives up makes it change, too.
        return hash(
            (document["epoch"], document["planned"], tuple(s[4] for s in document["seats"]))
        )

    def watch(self, ns: int) -> bool:
        """Whether the caller must now check for dead members."""
        if time.monotonic() - self._looked_at < max(ns / _NS, self.options["session"] / _NS / 8):
            return False
        self._looked_at = time.monotonic()
        return True

    def silent(self) -> list[int]:
        """The members that were silent for longer than the session, by this process's clock."""
        now, session = time.monotonic(), self.options["session"] / _NS
        rows = self._list_rows()
        for one in rows:
            known = self._seen.get(one["id"])
            if known is None or known[0] != one["beat"]:
                self._seen[one["id"]] = one["beat"], now
        self._seen = {one["id"]: self._seen[one["id"]] for one in rows}
        return [member for member, (_, since) in self._seen.items() if now - since > session]

    # ---- partitions ----

    def claim(self, partition: int, member: int) -> bool:
        """Take over a partition assigned to the member; whether the member owns it now."""

        def take(document: _Document) -> bool:
            seat = document["seats"][partition]
            if seat[1] != member or seat[0] not in (_NO_MEMBER, member):
                return False
            seat[0] = member
            return True

        return self.change(take)

    def release(self, partition: int, member: int) -> bool:
        """Give up a partition; whether the member owned it."""

        def give(document: _Document) -> bool:
            seat = document["seats"][partition]
            if seat[0] != member:
                return False
            seat[0] = _NO_MEMBER
            seat[4] += 1
            return True

        return self.change(give)

    def commit(self, partition: int, member: int, offset: int) -> bool:
        """Mark all before ``offset`` as done; False if the member does not own the partition."""

        def mark(document: _Document) -> bool:
            seat = document["seats"][partition]
            if seat[0] != member:
                return False
            seat[2], seat[3] = offset, time.time_ns()
            return True

        return self.change(mark)


class NatsGroupStore(GroupStore):
    """Implements :class:`shmq.client.ports.group.GroupStore`."""

    state: NatsGroupState
    stream: Any

    @property
    def process(self) -> int:
        return os.getpid()

    def for_member(self) -> tuple[GroupStore, NatsGroupState]:
        state = NatsGroupState(self.stream, self.name)
        return NatsGroupStore(self.stream, self.name, state), state

    def refresh(self) -> None:
        self.state.expire()

    def poll(
        self, reader: api.Reader | None, change: int | None, seconds: float
    ) -> list[api.Records]:
        # The wait ends with a change of the definition, as well.
        del change
        found = [] if reader is None else reader.poll(0)
        if found or seconds <= 0:
            return found
        self.stream.run(self._wait_for_move({} if reader is None else reader.position, seconds))
        return [] if reader is None else reader.poll(0)

    async def _wait_for_move(self, position: Mapping[int, int], seconds: float) -> None:
        """Return once there is a record or a change, or after that time, or `STALE`."""
        seconds = min(seconds, STALE)
        waits = [asyncio.ensure_future(self.state.changed(seconds))]
        if position:
            waits.append(asyncio.ensure_future(self.stream.abeyond_any(position, seconds)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for one in done:
            one.result()

    def drop(self, member: int) -> None:
        state = self.state

        def leave() -> None:
            with contextlib.suppress(ShmqError):
                state.leave(member, False)

        loop = LoopThread.get().loop
        loop.call_soon_threadsafe(loop.run_in_executor, None, leave)

    def look_for_dead(self) -> None:
        for member in self.state.silent():
            self.state.leave(member, True)

    def plan(self) -> None:
        self.state.plan(self.assignment)


def _update_heartbeat(document: _Document, member: int) -> bool:
    for one in document["members"]:
        if one["id"] == member:
            one["beat"] += 1
            return True
    return False
