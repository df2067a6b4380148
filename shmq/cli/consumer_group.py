"""``shmq stream groups`` and ``shmq stream reset``: how far the groups of a stream are."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import click

import shmq
from shmq.api import GroupStart
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.names import partition_flag, stream_argument
from shmq.cli.shared.output import cell, note, show, show_json, show_table, table

__all__ = ["groups", "reset"]


@click.command()
@stream_argument
@click.option("-g", "--group", metavar="NAME", help="Show the partitions of this group.")
@json_flag
@connected
def groups(broker: shmq.Broker, name: str, group: str | None, as_json: bool) -> None:
    """Show the groups of a stream, their members and what they have not done yet."""
    with broker.stream(name) as stream:
        found = stream.groups()
        if group is None:
            _show_groups(name, found, as_json)
            return
        kind = _kind_of(name, group, found)
        if kind == "shared":
            raise click.UsageError(f"group {group!r} shares its records: it has no partitions")
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
    """The group's assignment. Raises NoSuchGroup: a look makes none."""
    for one in found:
        if one.name == group:
            return one.assignment
    raise shmq.NoSuchGroup(f"the stream {name!r} has no group {group!r}")


def _show_groups(name: str, found: list[shmq.GroupSummary], as_json: bool) -> None:
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
    elif not found:
        note(f"nobody has read stream {name!r} as a group yet")
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


@click.command()
@stream_argument
@click.option("-g", "--group", metavar="NAME", required=True, help="The group.")
@click.option(
    "--to",
    type=params.moment_or_end,
    metavar="earliest|latest|TIME",
    help="Where it goes on: the oldest record, the end, or the first record from then on.",
)
@click.option("--offset", type=params.whole, metavar="N", help="Or there, in one partition.")
@partition_flag("The partition alone.")
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
    """Let a group without members go on elsewhere."""
    if (to is None) == (offset is None) or (offset is not None and partition is None):
        raise click.UsageError("give --to, or --offset with -p: one of the two")
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
            show(f"partition {number}: group {group!r} goes on with offset {at}")
