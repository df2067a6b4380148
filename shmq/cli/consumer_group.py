"""``shmq stream groups`` and ``shmq stream reset``: the consumer groups of a stream."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import click

import shmq
from shmq.api import GroupStart
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag, partition_flag
from shmq.cli.shared.names import group_name, stream_name
from shmq.cli.shared.output import cell, note, show, show_json, show_table, table

__all__ = ["groups", "reset"]


@click.command(epilog="Example: shmq stream groups clicks billing")
@stream_name
@group_name(required=False, help="The same as GROUP: show its partitions and members.")
@json_flag
@connected
def groups(broker: shmq.Broker, name: str, group: str | None, as_json: bool) -> None:
    """Show the groups of a stream, or the partitions of one."""
    with broker.stream(name) as stream:
        found = stream.groups()
        if group is None:
            _show_groups(name, found, as_json)
            return
        kind = _kind_of(name, group, found)
        if kind == "shared":
            raise click.UsageError(
                f"group {group!r} is a share group: it has no partitions to show"
            )
        opened = stream.group(group)
        partitions, members = opened.partitions(), opened.members()
    if as_json:
        show_json(
            {
                "group": group,
                "partitions": [dataclasses.asdict(one) for one in partitions],
                "members": [dataclasses.asdict(one) for one in members],
            }
        )
    else:
        _show_partitions(partitions, members)


def _kind_of(name: str, group: str, found: list[shmq.GroupSummary]) -> str:
    """The group's assignment. Raises NoSuchGroup; the group is not made."""
    for one in found:
        if one.name == group:
            return one.assignment
    raise shmq.NoSuchGroup(f"stream {name!r} has no group {group!r}: see shmq stream groups {name}")


def _show_groups(name: str, found: list[shmq.GroupSummary], as_json: bool) -> None:
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
    elif not found:
        note(f"stream {name!r} has no consumer groups")
    else:
        numbers = ("members", "lag", "rebalances", "evicted", "held")
        broken = any(one.problem for one in found)
        made = table(["group", "assignment", *numbers, *(["problem"] * broken)], right=numbers)
        for one in found:
            counts = [getattr(one, number) for number in numbers]
            row: list[Any] = [one.name, one.assignment, *counts, *([one.problem or ""] * broken)]
            made.add_row(*(cell(value) for value in row))
        show_table(made)


def _show_partitions(partitions: list[shmq.GroupPartition], members: list[shmq.MemberInfo]) -> None:
    names = {member.id: f"{member.name} ({member.id})" for member in members}
    numbers = ("partition", "committed", "latest", "lag")
    made = table([*numbers, "member"], right=numbers)
    for one in partitions:
        committed = "" if one.committed is None else one.committed
        owner = names.get(one.member or 0, "")
        row = [one.partition, committed, one.latest, one.lag, owner]
        made.add_row(*(cell(value) for value in row))
    show_table(made)


@click.command(epilog="Example: shmq stream reset clicks billing --to earliest")
@stream_name
@group_name(required=True, help="The same as GROUP.")
@click.option(
    "--to",
    type=params.moment_or_end,
    metavar="earliest|latest|TIME",
    help="Continue at the oldest record, at the end, or at the first record since TIME.",
)
@click.option(
    "--offset", type=params.whole, metavar="N", help="Continue at offset N of the partition -p."
)
@partition_flag("Only partition N.  [default: all]")
@json_flag
@connected
def reset(
    broker: shmq.Broker,
    name: str,
    group: str,
    to: float | str | None,
    offset: int | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Set the offsets of a group that has no members."""
    if (to is None) == (offset is None) or (offset is not None and partition is None):
        raise click.UsageError("give either --to, or --offset with -p")
    where = {partition: offset} if partition is not None and offset is not None else to
    with broker.stream(name) as stream:
        _kind_of(name, group, stream.groups())
        found = stream.group(group).reset(
            cast("GroupStart | float", where), None if partition is None else [partition]
        )
    if as_json:
        show_json({"group": group, "committed": found})
    else:
        for number, at in sorted(found.items()):
            show(f"partition {number}: group {group!r} continues at offset {at}")
