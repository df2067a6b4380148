"""``shmq stream read`` and ``shmq stream tail``: write records out, and leave them there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import cast

import click

import shmq
from shmq.api import OnDamage, Start
from shmq.cli.shared import params, record_render
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import connected, count_flag, json_flag
from shmq.cli.shared.output import counted, note
from shmq.cli.shared.stop_signal import Stop
from shmq.cli.shared.stream_name import damage_flag, partition_flag, stream_argument, tell_damage

__all__ = ["read", "tail"]

#: How long one wait for a record lasts before the loop looks for signals, in seconds.
SLICE = 0.25


@click.command()
@stream_argument
@partition_flag("The partition alone [all].")
@click.option(
    "--from",
    "start",
    type=params.moment_or_end,
    default="earliest",
    metavar="earliest|latest|TIME",
    help="Where to begin: seconds since 1970, or an age such as 5m [earliest].",
)
@click.option("--offset", type=params.whole, metavar="N", help="Or there, in one partition.")
@count_flag("Stop after COUNT records.")
@click.option("--follow", is_flag=True, help="Go on waiting for records until stopped.")
@click.option(
    "--timeout",
    type=params.seconds,
    metavar="TIME",
    help="Stop when no record came for TIME [0 s; with --follow: never].",
)
@click.option("--where", type=params.text, metavar="EXPRESSION", help="Leave out all others.")
@damage_flag()
@click.option("--with-key", is_flag=True, help="Write the key and a tab before each record.")
@json_flag
@click.pass_context
@connected
def read(
    broker: shmq.Broker,
    context: click.Context,
    /,
    name: str,
    partition: int | None,
    start: float | str,
    offset: int | None,
    count: int | None,
    follow: bool,
    timeout: float | None,
    where: str | None,
    on_damage: OnDamage,
    with_key: bool,
    as_json: bool,
) -> None:
    """Write records out; they stay in the stream.

    Without --follow or --timeout it writes what is there and ends.
    """
    if offset is not None and partition is None:
        raise click.UsageError("--offset is of one partition: give -p, too")
    source = context.get_parameter_source("start")
    if offset is not None and source != click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--from and --offset exclude each other: drop one")
    patience = float("inf") if follow and timeout is None else timeout or 0.0
    with broker.stream(name) as stream, Stop() as stop:
        begin = start if partition is None or offset is None else {partition: offset}
        partitions = None if partition is None else [partition]
        with stream.reader(
            cast("Start", begin),
            partitions,
            limit=1000,
            lapped="skip",
            where=where,
            on_damage=on_damage,
        ) as reader:
            seen = _carry(reader, record_render.writer(as_json, with_key), stop, count, patience)
            _report(reader)
    context.exit(_outcome(seen, follow, stop.signal))


@click.command()
@stream_argument
@partition_flag("The partition alone [all].")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=0),
    default=10,
    metavar="COUNT",
    help="How many of the last records of each partition to show first.  [default: 10]",
)
@click.option("--where", type=params.text, metavar="EXPRESSION", help="Leave out all others.")
@damage_flag()
@click.option("--with-key", is_flag=True, help="Write the key and a tab before each record.")
@json_flag
@click.pass_context
@connected
def tail(
    broker: shmq.Broker,
    context: click.Context,
    /,
    name: str,
    partition: int | None,
    count: int,
    where: str | None,
    on_damage: OnDamage,
    with_key: bool,
    as_json: bool,
) -> None:
    """Write the last records out, and those that come, until stopped."""
    with broker.stream(name) as stream, Stop() as stop:
        begin = {
            one.partition: max(one.latest - count, one.earliest)
            for one in stream.offsets()
            if partition in {None, one.partition}
        }
        with stream.reader(
            begin, begin, limit=1000, lapped="skip", where=where, on_damage=on_damage
        ) as reader:
            write = record_render.writer(as_json, with_key)
            _carry(reader, write, stop, None, float("inf"))
            _report(reader)
    context.exit(Code.OK)


def _carry(
    reader: shmq.Reader,
    write: Callable[[shmq.Record], bytes],
    stop: Stop,
    count: int | None,
    patience: float,
) -> int:
    """Write ``count`` records, or until none came for ``patience`` seconds; how many."""
    seen, since = 0, time.monotonic()
    while not stop.signal:
        left = patience - (time.monotonic() - since)
        found = reader.poll(min(max(left, 0.0), SLICE))
        for record in (record for records in found for record in records):
            sys.stdout.buffer.write(write(record))
            seen += 1
            if seen == count:
                break
        sys.stdout.buffer.flush()
        if seen == count or (not found and left <= 0):
            break
        if found:
            since = time.monotonic()
    return seen


def _report(reader: shmq.Reader) -> None:
    if reader.lost:
        note(f"{counted(reader.lost, 'record')} went before they could be read: they were old")
    tell_damage(reader.damaged)


def _outcome(seen: int, follow: bool, signal: int) -> int:
    if signal:
        return 0 if follow else 128 + signal
    return Code.OK if seen else Code.NOTHING
