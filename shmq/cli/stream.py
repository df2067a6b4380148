"""``shmq stream``: streams, their partitions, and their consumer groups."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import click

import shmq
from shmq.api import GroupStart
from shmq.api.names import shown_name
from shmq.api.stream_options import StreamOptions
from shmq.cli.queue import ask_first, delete_one, show_alteration
from shmq.cli.record import append, read, tail
from shmq.cli.shared import params
from shmq.cli.shared.audited import audited
from shmq.cli.shared.flags import (
    Group,
    connected,
    given_options,
    json_flag,
    option_flags,
    partition_flag,
    same_name_flag,
    yes_flag,
)
from shmq.cli.shared.names import STREAM, group_name, new_name, stream_name
from shmq.cli.shared.output import (
    also_shown,
    amount,
    cell,
    clock,
    counted,
    note,
    quoted,
    show,
    show_json,
    show_table,
    table,
)
from shmq.host.supervision.audit import Event


@click.command(epilog="Example: shmq stream groups clicks billing")
@stream_name
@group_name(required=False, help="The same as GROUP: show its partitions and members.")
@json_flag
@connected
def groups(broker: shmq.Broker, name: str, group: str | None, as_json: bool) -> None:
    """Show the groups of a stream, or the partitions of one."""
    with broker.stream(name) as stream:
        if group is None:
            _show_groups(name, stream.groups(), as_json)
            return
        opened = stream.group(group, create=False)
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
            shown = shown_name(one.name)
            row: list[Any] = [shown, one.assignment, *counts, *([one.problem or ""] * broken)]
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
        opened = stream.group(group, create=False)
        with audited(broker, Event.GROUP_RESET, name, group=group, partition=partition):
            found = opened.reset(
                cast("GroupStart | float", where), None if partition is None else [partition]
            )
    if as_json:
        show_json({"group": group, "committed": found})
    else:
        for number, at in sorted(found.items()):
            show(f"partition {number}: group {group!r} continues at offset {at}")


@click.group(cls=Group, epilog="Example: shmq stream read clicks --from 1h")
def stream() -> None:
    """Make streams, append records, read them, and look after consumer groups.

    A stream keeps its records when they are read, so that many readers get all of them.
    """


@click.command(epilog="Example: shmq stream create visits --partitions 8 --retention 7d")
@new_name("STREAM")
@option_flags(StreamOptions)
@same_name_flag("queue")
@json_flag
@connected
def create(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Make a stream.

    Repeating the command with the same options changes nothing; other options are refused.
    """
    wanted = given_options(flags)
    with audited(broker, Event.STREAM_CREATE, name), broker.create_stream(name, **wanted) as stream:
        options = stream.options.as_dict()
    if as_json:
        show_json({"namespace": broker.namespace, "name": name, "options": options})
    else:
        show(
            f"stream {quoted(name)} of {counted(options['partitions'], 'partition')} is ready in "
            f"namespace {broker.namespace!r}"
        )


@click.command("list", epilog="Example: shmq stream list")
@json_flag
@connected
def list_streams(broker: shmq.Broker, as_json: bool) -> None:
    """List the streams with their records and sizes."""
    streams = broker.list_streams()
    if as_json:
        show_json([also_shown(dataclasses.asdict(stream)) for stream in streams])
    elif streams:
        _show_streams(streams)
    else:
        note(
            f"namespace {broker.namespace!r} has no streams: make one with shmq stream create NAME"
        )


def _show_streams(streams: list[shmq.StreamSummary]) -> None:
    numbers = ("partitions", "records", "size")
    broken = any(stream.problem for stream in streams)
    columns = ["stream", *numbers, "durability", *(["problem"] if broken else [])]
    made = table(columns, right=numbers)
    for stream in streams:
        row = [shown_name(stream.name), stream.partitions, stream.records, amount(stream.bytes)]
        problem = [stream.problem or ""] if broken else []
        made.add_row(*(cell(value) for value in (*row, stream.durability, *problem)))
    show_table(made)


@click.command(epilog="Example: shmq stream offsets clicks --at 5m")
@stream_name
@click.option(
    "--at",
    "when",
    type=params.moment,
    metavar="TIME",
    help="Show the first offset at or after TIME too: seconds since 1970, or an age such as 5m.",
)
@json_flag
@connected
def offsets(broker: shmq.Broker, name: str, when: float | None, as_json: bool) -> None:
    """Show the oldest and the next offset of each partition."""
    with broker.stream(name) as stream:
        found = stream.offsets()
        at = [None if when is None else stream.at(when, one.partition) for one in found]
    if as_json:
        more = [{} if offset is None else {"at": offset} for offset in at]
        show_json(
            [{**dataclasses.asdict(one), **also} for one, also in zip(found, more, strict=True)]
        )
    else:
        _show_offsets(found, at)


def _show_offsets(found: list[shmq.PartitionOffsets], at: list[int | None]) -> None:
    numbers = ["partition", "earliest", "latest", "records", "size"]
    timed = any(offset is not None for offset in at)
    made = table(
        [*numbers, *(["at"] if timed else []), "oldest", "newest", ""], right=[*numbers, "at"]
    )
    for one, offset in zip(found, at, strict=True):
        row = [
            one.partition,
            one.earliest,
            one.latest,
            one.latest - one.earliest,
            amount(one.bytes),
            *([offset] if timed else []),
            _format_time(one.earliest_timestamp),
            _format_time(one.latest_timestamp),
            "sealed" if one.sealed else "",
        ]
        made.add_row(*(cell(value) for value in row))
    show_table(made)


def _format_time(timestamp: float | None) -> str:
    return "" if timestamp is None else clock(timestamp)


@click.command(epilog="Example: shmq stream hot clicks --over 1m")
@stream_name
@click.option(
    "--over",
    "seconds",
    type=params.seconds,
    metavar="TIME",
    default="10s",
    show_default=True,
    help="Rates over the last TIME.",
)
@json_flag
@connected
def hot(broker: shmq.Broker, name: str, seconds: float, as_json: bool) -> None:
    """Show the records per second of each partition.

    The highest rate is first. A partition is hot if its rate is over 3 times the mean.
    """
    with broker.stream(name) as stream:
        rates = sorted(stream.rates(seconds), key=lambda rate: -rate.rate)
    if as_json:
        show_json([dataclasses.asdict(rate) for rate in rates])
        return
    made = table(
        ["partition", "records/s", "of the mean", ""],
        right=["partition", "records/s", "of the mean"],
    )
    for rate in rates:
        row = [rate.partition, f"{rate.rate:.1f}", f"{rate.share:.2f}", "hot" if rate.hot else ""]
        made.add_row(*(cell(value) for value in row))
    show_table(made)


@click.command(epilog="Example: shmq stream alter clicks --ring-bytes 64MiB --retention 7d")
@stream_name
@option_flags(StreamOptions, alters=True)
@json_flag
@connected
def alter(broker: shmq.Broker, /, name: str, as_json: bool, **flags: Any) -> None:
    """Change options of a stream while it is in use.

    Options that are not given stay. If one of those given cannot be changed, none is. A ring only
    grows, to 16 times what the stream was created with; no record goes.
    """
    with broker.stream(name) as stream:
        before = stream.options
    with audited(broker, Event.STREAM_ALTER, name):
        options = broker.alter_stream(name, **given_options(flags))
    show_alteration(STREAM, name, before, options, as_json=as_json)


@click.command(epilog="Example: shmq stream repartition clicks --partitions 8")
@stream_name
@click.option(
    "--partitions",
    type=params.whole,
    metavar="N",
    required=True,
    help="How many partitions are appended to; more than now.",
)
@json_flag
@connected
def repartition(broker: shmq.Broker, name: str, partitions: int, as_json: bool) -> None:
    """Append to N new partitions from now on.

    The stream may be in use. The old partitions keep their records and get no more. A consumer
    group reads the new partitions once it has committed the old ones, so the records of a key
    stay in order.
    """
    with (
        audited(broker, Event.STREAM_REPARTITION, name, partitions=partitions),
        broker.stream(name) as stream,
    ):
        opened = stream.repartition(partitions)
    if as_json:
        show_json({"name": name, "open": list(opened), "partitions": opened.stop})
    else:
        show(
            f"stream {name!r} is appended to in partitions {opened.start} to {opened.stop - 1} now"
        )


@click.command(epilog="Example: shmq stream delete clicks --yes")
@stream_name
@click.option(
    "-g", "--group", type=params.name, metavar="NAME", help="Delete only this group of the stream."
)
@yes_flag
@json_flag
@connected
def delete(broker: shmq.Broker, name: str, group: str | None, yes: bool, as_json: bool) -> None:
    """Delete a stream with its records, or one of its groups."""
    if group is None:
        delete_one(broker, STREAM, name, yes=yes, as_json=as_json)
        return
    with broker.stream(name) as stream:
        if not yes:
            ask_first("delete", f"Delete group {group!r} of stream {name!r} and its offsets?")
        with audited(broker, Event.GROUP_DELETE, name, group=group):
            stream.delete_group(group)
    if as_json:
        show_json({"namespace": broker.namespace, "deleted": name, "group": group})
    else:
        show(f"group {group!r} of stream {name!r} is deleted")


for _command in (
    create,
    append,
    read,
    tail,
    offsets,
    groups,
    reset,
    hot,
    repartition,
    alter,
    list_streams,
    delete,
):
    stream.add_command(_command)
