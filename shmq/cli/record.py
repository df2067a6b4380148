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
from shmq.cli.shared import params, render
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import connected, count_flag, json_flag, partition_flag, where_flag
from shmq.cli.shared.messages import headers_of, open_lines, property_flag
from shmq.cli.shared.names import stream_name
from shmq.cli.shared.output import check_stdout, counted, note, show, show_json
from shmq.host.supervision.signals import Stop


@click.command(epilog="Example: shmq stream append clicks --key alice -m /cart -m /pay")
@stream_name
@click.option("-m", "--message", "messages", multiple=True, metavar="TEXT", help="Append TEXT.")
@click.option("--file", "path", metavar="FILE", help="Append each line of FILE; - is stdin.")
@click.option(
    "-k", "--key", type=params.text, metavar="KEY", help="The key; it chooses the partition."
)
@click.option(
    "--key-separator",
    type=params.separator,
    metavar="TEXT",
    help=r"Each line is KEY, TEXT and the record; TEXT may be \t.",
)
@property_flag("headers")
@partition_flag("Append to partition N.  [default: by key, else in turn]")
@click.option(
    "--timeout", type=params.seconds, metavar="TIME", help="Wait for space at most TIME each time."
)
@click.option(
    "--confirm",
    type=click.Choice(["memory", "disk"]),
    help="Where records must be before the command reports them.  [default: the stream's]",
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
    as_json: bool,
    **where: Any,
) -> None:
    """Append records to a stream.

    Each -m TEXT is a record. Without -m, each line of FILE or of standard input is a record.
    """
    if messages and path is not None:
        raise click.UsageError("-m and --file exclude each other: drop one")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other: drop one")
    with broker.stream(name) as stream:
        appending = _Appending(stream, key, key_separator, headers_of(headers), where)
        try:
            if messages:
                appending.append([os.fsencode(text) for text in messages])
            else:
                lines = open_lines(path, stream.options.max_record_bytes)
                if lines.typed:
                    note("each line you type is a record; Ctrl-D ends the input")
                for batch in lines:
                    appending.append(batch)
        finally:
            appending.report(as_json)


class _Appending:
    """Appends lines and counts the records."""

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
            raise self._make_key_error(lines[len(keyed)])

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

    def _make_key_error(self, line: bytes) -> click.ClickException:
        return click.ClickException(
            f"the line {line[:80]!r} has no {self._separator!r}, so no key: correct it, or drop "
            f"--key-separator; this line and those after it were not appended"
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


_damage_flag = click.option(
    "--on-damage",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="At damage in a file: fail, or skip those records and count them.",
)


def _report_damage(records: int) -> None:
    """Say how many records were skipped because a file is damaged."""
    if records:
        note(f"{counted(records, 'record')} skipped: a file is damaged, they cannot be read")


@click.command(epilog="Example: shmq stream read clicks --where \"key = 'alice'\"")
@stream_name
@partition_flag("Only partition N.  [default: all]")
@click.option(
    "--from",
    "start",
    type=params.moment_or_end,
    default="earliest",
    metavar="earliest|latest|TIME",
    show_default=True,
    help="Where to start; TIME is seconds since 1970, or an age such as 5m.",
)
@click.option(
    "--offset", type=params.whole, metavar="N", help="Start at offset N of the partition -p."
)
@count_flag("Stop after COUNT records.")
@click.option("--follow", is_flag=True, help="Wait for more records until stopped.")
@click.option(
    "--timeout",
    type=params.seconds,
    metavar="TIME",
    help="Stop if no record arrives for TIME.  [default: 0s; with --follow: never]",
)
@where_flag("Only records for which EXPR is true: see docs/reference/cli.md.")
@_damage_flag
@click.option("--with-key", is_flag=True, help="Print the key and a tab before each record.")
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
    """Print the records of a stream; they stay in the stream.

    Without --follow or --timeout it stops at the end of the stream.
    """
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs a partition: add -p N")
    source = context.get_parameter_source("start")
    if offset is not None and source != click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--from and --offset exclude each other: drop one")
    check_stdout("read")
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
    context.exit(_choose_exit_code(seen, follow, stop.signal))


@click.command(epilog="Example: shmq stream tail clicks -n 5")
@stream_name
@partition_flag("Only partition N.  [default: all]")
@click.option(
    "-n",
    "--count",
    type=params.WholeRange(min=0),
    default=10,
    metavar="COUNT",
    show_default=True,
    help="First show the last COUNT records of each partition.",
)
@where_flag("Only records for which EXPR is true: see docs/reference/cli.md.")
@_damage_flag
@click.option("--with-key", is_flag=True, help="Print the key and a tab before each record.")
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
    """Print the last records, then new ones, until stopped."""
    check_stdout("read")
    with broker.stream(name) as stream, Stop() as stop:
        begin = {
            one.partition: max(one.latest - count, one.earliest)
            for one in stream.offsets()
            if partition in {None, one.partition}
        }
        with stream.reader(
            begin,
            begin if partition is None else [partition],
            limit=1000,
            lapped="skip",
            where=where,
            on_damage=on_damage,
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
        note(f"{counted(reader.lost, 'record')} were removed by retention before they were read")
    _report_damage(reader.damaged)


def _choose_exit_code(seen: int, follow: bool, signal: int) -> int:
    if signal:
        return 0 if follow else 128 + signal
    return Code.OK if seen else Code.NOTHING


@click.command(epilog="Example: shmq subscribe clicks 'alice.*' --history none --timeout 1s")
@stream_name
@click.argument("pattern", metavar="[PATTERN]", type=params.text, default="#", required=False)
@click.option(
    "--history", type=params.or_none(params.whole), default="0", metavar="N|none",
    show_default=True,
    help="First print the N newest records; none: all of them.",
)  # fmt: skip
@click.option(
    "--policy", type=click.Choice(["drop-oldest", "block"]), default="drop-oldest",
    show_default=True, help="If this command is too slow: lose old records, or block appends.",
)  # fmt: skip
@_damage_flag
@count_flag("Stop after COUNT records.")
@click.option(
    "--timeout",
    type=params.seconds,
    metavar="TIME",
    help="Stop if no record arrives for TIME.  [default: never]",
)
@click.option("--with-key", is_flag=True, help="Print the key and a tab before each record.")
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
    """Print the records of a stream whose keys match PATTERN, as they arrive.

    In PATTERN, * is one word of the key and # is any number of words. Without PATTERN every
    record matches.
    """
    check_stdout("read")
    patience = float("inf") if timeout is None else timeout
    newest = None if isinstance(history, params.Nothing) else history
    write = render.record_writer(as_json, with_key)
    with (
        broker.stream(name) as stream,
        Stop() as stop,
        stream.subscribe(
            pattern, newest, policy=policy, on_lost=_report_lost, on_damage=on_damage
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
        _report_damage(subscription.damaged)
    context.exit(Code.OK if seen or stop.signal or timeout is None else Code.NOTHING)


def _report_lost(lost: int) -> None:
    note(f"too slow: {counted(lost, 'record')} were overwritten before they were read")
