"""Consumer groups of a stream: their list, one with its members, deleted, set to other offsets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

import shmq
from shmq.extras.console.api.operation import Answer, Call, Parameter, operation, view_as
from shmq.extras.console.api.rows import PAGE, Page, Table
from shmq.extras.console.api.streams import OffsetAt, Offsets, visible_groups
from shmq.extras.console.problem import Problem
from shmq.protocol.opcodes import Right

#: The columns of the list: the fields of GroupSummary.
COLUMNS: Final = {
    field.name: "text" if field.name in {"name", "assignment", "problem"} else "number"
    for field in dataclasses.fields(shmq.GroupSummary)
}
_TABLE: Final = Table(COLUMNS)
_NAME: Final = Parameter("name", "string", "the stream's name", most=255)
_GROUP: Final = Parameter("group", "string", "the group's name", most=255)


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group."""

    id: int
    name: str
    #: The number of its process in the namespace.
    process: int
    partitions: list[int]
    #: In seconds since 1970.
    joined_at: float


class GroupPartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A group's progress in one partition."""

    partition: int
    #: The id of the member that owns it.
    member: int | None
    #: The offset to be read next; null: nothing was committed yet.
    committed: int | None
    #: The offset that the partition's next record will have.
    latest: int
    lag: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """One group; one that shares records has neither members nor partitions to show."""

    summary: dict[str, Any]
    members: list[MemberView]
    partitions: list[GroupPartitionView]


class Reset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a group continues."""

    to: Literal["earliest", "latest", "timestamp", "offsets"]
    #: With ``timestamp``: at the first record from that time on, in seconds since 1970.
    timestamp: float | None = None
    #: With ``offsets``: partition to offset.
    offsets: dict[int, int] | None = None
    #: Only these partitions; null: all.
    partitions: list[int] | None = None


@operation("GET", "/streams/{name}/groups", _NAME, *PAGE, answer=Page, tag="groups")
def list_groups(call: Call) -> Page:
    """List the groups of a stream, in pages."""
    call.see("stream", call["name"])
    with call.console.broker.stream(call["name"]) as stream:
        found = {row["name"]: row for row in visible_groups(call, stream)}
    return _TABLE.page(call, found, lambda name: found[name])


@operation("GET", "/streams/{name}/groups/{group}", _NAME, _GROUP, answer=GroupView, tag="groups")
def get_group(call: Call) -> GroupView:
    """Show one group: its members, and its progress in each partition."""
    if not call.caller.sees_group(call["name"], call["group"]):
        call.need(Right.CONSUME, "stream", call["name"], call["group"])
    with call.console.broker.stream(call["name"]) as stream:
        found = _find(stream, call["group"])
        if found.assignment == "shared" or found.problem is not None:
            return GroupView(summary=dataclasses.asdict(found), members=[], partitions=[])
        group = stream.group(call["group"], create=False)
        return GroupView(
            summary=dataclasses.asdict(found),
            members=[view_as(MemberView, one) for one in group.members()],
            partitions=[view_as(GroupPartitionView, one) for one in group.partitions()],
        )


def _find(stream: shmq.Stream, name: str) -> shmq.GroupSummary:
    """The group's summary. Raises NoSuchGroup."""
    for one in stream.groups():
        if one.name == name:
            return one
    raise shmq.NoSuchGroup.of(name, stream.name)


@operation("DELETE", "/streams/{name}/groups/{group}", _NAME, _GROUP, tag="groups", status=204,
           audit="group.delete")  # fmt: skip
def delete_group(call: Call) -> Answer:
    """Delete the group and its offsets."""
    call.need(Right.ADMIN, "stream", call["name"], call["group"])
    with call.console.broker.stream(call["name"]) as stream:
        stream.delete_group(call["group"])
    return Answer(status=204)


@operation("POST", "/streams/{name}/groups/{group}/reset", _NAME, _GROUP, body=Reset,
           answer=Offsets, tag="groups", audit="group.reset")  # fmt: skip
def reset_group(call: Call) -> Offsets:
    """Let the group continue elsewhere; a partition that a member owns is refused."""
    call.need(Right.ADMIN, "stream", call["name"], call["group"])
    where = _parse_place(call.body)
    with call.console.broker.stream(call["name"]) as stream:
        done = stream.group(call["group"], create=False).reset(where, call.body.partitions)
    return Offsets(items=[OffsetAt(partition=p, offset=at) for p, at in sorted(done.items())])


def _parse_place(asked: Reset) -> Any:
    """The place, as ``Group.reset`` takes it. Raises Problem for one that is not given right."""
    given: Mapping[str, Any] = {"timestamp": asked.timestamp, "offsets": asked.offsets}
    for name, value in given.items():
        if (value is not None) != (asked.to == name):
            raise Problem.invalid(
                f"to={asked.to!r}: "
                + (f"give {name}" if asked.to == name else f"{name} goes with to={name!r} only")
            )
    if asked.to in given:
        return given[asked.to]
    return asked.to
