"""Records of a stream: ``shmq stream append``, ``read`` and ``tail``, and ``shmq subscribe``."""

from __future__ import annotations

import itertools
import operator
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import click

import shmq
from shmq.api import OnDamage, Policy, Start
from shmq.api.options import Confirm
from shmq.cli.shared import params, render
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import connected, count_flag, json_flag
from shmq.cli.shared.input_lines import open_lines
from shmq.cli.shared.names import damage_flag, partition_flag, stream_argument, tell_damage
from shmq.cli.shared.output import counted, note, show, show_json
from shmq.cli.shared.stop_signal import Stop

__all__ = ["append", "read", "subscribe", "tail"]


@click.command()
@stream_argument
@click.option("-m", "--message", "messages", multiple=True, metavar="TEXT", help="Append TEXT.")
@click.option("--file", "path", metavar="FILE", help="Append each line of FILE; - is stdin.")
@click.option("-k", "--key", type=params.text, metavar="KEY", help="The key: it says where.")
@click.option(
    "--key-separator",
    type=params.delimiter,
    metavar="TEXT",
    help=r"Each line is its key, TEXT and the record; \t is understood.",
)
@click.option(
    "--header",
    "headers",
    type=params.header,
    multiple=True,
    metavar="KEY=VALUE",
    help="A header; may be repeated.",
)
@partition_flag("The partition [where the key says, or in turns].")
@click.option(
    "--timeout", type=params.seconds, metavar="TIME", help="Wait for room at most TIME each time."
)
@click.option(
    "--confirm",
    type=click.Choice(["memory", "disk"]),
    help="Where the records are when it says so [as the stream's option says].",
)
@json_flag
@connected
def append(
    broker: shmq.Broker,
    /,
    name: str,
    messages: tuple[str, ...],
    path: str | None,
    key: str | None,
    key_separator: bytes | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    timeout: float | None,
    confirm: Confirm | None,
    as_json: bool,
) -> None:
    """Append records, given as flags or lines.

    Each -m TEXT is a record, or else each line of FILE or of standard input.
    """
    if messages and path is not None:
        raise click.UsageError("-m and --file exclude each other: drop one")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other: drop one")
    with broker.stream(name) as stream:
        where = {"partition": partition, "timeout": timeout, "confirm": confirm}
        appending = _Appending(stream, key, key_separator, dict(headers) or None, where)
        try:
            if messages:
                appending.append([os.fsencode(text) for text in messages])
            else:
                lines = open_lines(path, stream.options.max_record_bytes)
                if lines.typed:
                    note("each line you type is a record; Ctrl-D ends it")
                for batch in lines:
                    appending.append(batch)
        finally:
            appending.report(as_json)


class _Appending:
    """Appends lines, and knows what was appended."""

    def __init__(
        self,
        stream: shmq.Stream,
        key: str | None,
        separator: bytes | None,
        headers: dict[str, str] | None,
        where: dict[str, Any],
    ) -> None:
        self._stream = stream
        self._key = key
        self._separator = separator
        self._headers = headers
        self._where = where
        self._ranges: list[shmq.AppendedRange] = []

    def append(self, lines: list[bytes]) -> None:
        """Append them, up to the first without a key if they are to have one each.

        What came before a failure is counted.
        """
        if self._separator is None:
            self._put(lines, None if self._key is None else [self._key] * len(lines))
            return
        pairs = [line.partition(self._separator) for line in lines]
        keyed = list(itertools.takewhile(operator.itemgetter(1), pairs))
        self._put([value for _, _, value in keyed], [key for key, _, _ in keyed])
        if len(keyed) < len(pairs):
            raise self._without_key(lines[len(keyed)])

    def _put(self, lines: list[bytes], keys: Sequence[bytes | str] | None) -> None:
        try:
            self._ranges += self._stream.append_many(
                [
                    line.decode(errors="surrogateescape") if _is_text(line) else line
                    for line in lines
                ],
                keys=keys,
                headers=None if self._headers is None else [self._headers] * len(lines),
                **self._where,
            )
        except shmq.ShmqError as error:
            self._ranges += getattr(error, "appended", [])
            raise

    def _without_key(self, line: bytes) -> click.ClickException:
        return click.ClickException(
            f"the line {line[:80]!r} has no {self._separator!r}, so no key: mend it, or drop "
            f"--key-separator; it and what follows was not appended"
        )

    def report(self, as_json: bool) -> None:
        """Say what was appended."""
        count = sum(one.count for one in self._ranges)
        single = self._ranges[0] if count == 1 else None
        if as_json:
            known = {"partition": single.partition, "offset": single.first} if single else {}
            show_json({"stream": self._stream.name, "appended": count, **known})
        elif single is not None:
            show(
                f"record {single.first} appended to partition {single.partition} of stream "
                f"{self._stream.name!r}"
            )
        else:
            show(f"{counted(count, 'record')} appended to stream {self._stream.name!r}")


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


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
            seen = _carry(reader, render.record_writer(as_json, with_key), stop, count, patience)
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
            write = render.record_writer(as_json, with_key)
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


@click.command(short_help="Write out records of a stream whose keys match.")
@click.argument("name", metavar="STREAM", type=params.text)
@click.argument("pattern", metavar="[PATTERN]", type=params.text, default="#", required=False)
@click.option(
    "--history", type=params.or_none(params.whole), default="0", metavar="N|none",
    help="How many of the newest to write first; none: all that there are [0].",
)  # fmt: skip
@click.option(
    "--policy", type=click.Choice(["drop-oldest", "block"]), default="drop-oldest",
    show_default=True, help="Lose what is overwritten, or hold back who appends.",
)  # fmt: skip
@damage_flag()
@count_flag("Stop after COUNT records.")
@click.option(
    "--timeout", type=params.seconds, metavar="TIME", help="Stop when none came for TIME [never]."
)
@click.option("--with-key", is_flag=True, help="Write the key and a tab before each record.")
@json_flag
@click.pass_context
@connected
def subscribe(
    broker: shmq.Broker,
    context: click.Context,
    /,
    name: str,
    pattern: str,
    history: int | params.Nothing,
    policy: Policy,
    on_damage: OnDamage,
    count: int | None,
    timeout: float | None,
    with_key: bool,
    as_json: bool,
) -> None:
    """Write out the records of a stream whose keys match, as they come.

    In the PATTERN, * is one word of the key and # any number of them; without one it is all.
    """
    patience = float("inf") if timeout is None else timeout
    newest = None if isinstance(history, params.Nothing) else history
    write = render.record_writer(as_json, with_key)
    with (
        broker.stream(name) as stream,
        Stop() as stop,
        stream.subscribe(
            pattern, newest, policy=policy, on_lost=_tell, on_damage=on_damage
        ) as subscription,
    ):
        seen, since = 0, time.monotonic()
        while not stop.signal and seen != count:
            left = patience - (time.monotonic() - since)
            found = subscription.poll(min(max(left, 0.0), SLICE))
            for record in found[: None if count is None else count - seen]:
                sys.stdout.buffer.write(write(record))
                seen += 1
            sys.stdout.buffer.flush()
            if not found and left <= 0:
                break
            since = time.monotonic() if found else since
        tell_damage(subscription.damaged)
    context.exit(Code.OK if seen or stop.signal or timeout is None else Code.NOTHING)


def _tell(lost: int) -> None:
    note(f"too slow: {counted(lost, 'record')} were overwritten before they were read")
