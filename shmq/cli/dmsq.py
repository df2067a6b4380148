"""``shmq dmsq``: look into the files that queues and streams are kept in."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table

import shmq
from shmq.cli.shared import render
from shmq.cli.shared.columns import writer_of
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag
from shmq.cli.shared.output import cell, counted, note, show, show_json, show_table, table
from shmq.persistence.file_message import StoredMessage
from shmq.persistence.stream_verdict import is_of_stream, verify_card, verify_segment
from shmq.storage.file_header import HEADER_BYTES, read_header, read_record
from shmq.storage.queue_files import QueueFiles, read_file
from shmq.storage.stream_paths import CARD

__all__ = ["dmsq"]

_KINDS: Final = {1: "snapshot", 2: "journal segment"}
_file = click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
_files = click.argument(
    "paths", metavar="FILE...", nargs=-1, required=True,
    type=click.Path(exists=True, dir_okay=False),
)  # fmt: skip
_salvage = click.option(
    "--salvage", is_flag=True, help="Pass over what is damaged, and say what that was."
)


@click.group(short_help="Look into .dmsq files: snapshots and journals.")
def dmsq() -> None:
    """Look into .dmsq files: snapshots, and segments of journals.

    A file is read as it stands, also while it is in use. dump and export take all files of
    a queue, NAME.dmsq and NAME@*.dmsq: together they hold what the queue held.
    """


@dmsq.command()
@_file
@click.option("--records", "each", is_flag=True, help="Show each record, not their counts.")
@json_flag
def inspect(path: str, each: bool, as_json: bool) -> None:
    """Show what a file is, and what is in it."""
    data = read_file(path)
    header, start = read_header(data[:HEADER_BYTES], path)
    told = {
        "file": path,
        "kind": _KINDS[header.kind],
        "queue": header.name,
        "number": header.number,
        "created": header.created / 1e9,
        "queue_id": f"{header.queue_id:016x}",
        "hash_key": f"{header.hash_key:016x}",
        "previous_end": header.previous_end,
        "first_batch": header.first_batch,
        "bytes": len(data),
        "options": dict(header.options),
    }
    records = _records(data, start, header.salt)
    if as_json:
        rest = {"records": list(records)} if each else {"types": _counted(records)}
        show_json({**told, **rest})
        return
    for key in ("kind", "queue", "number", "queue_id", "hash_key", "previous_end", "bytes"):
        show(f"{key:<12} {told[key]}")
    show(f"{'created':<12} {_when(header.created)}")
    show("")
    show_table(_listed(records) if each else _summed(records))


@dmsq.command()
@_files
@json_flag
@click.pass_context
def verify(context: click.Context, paths: tuple[str, ...], as_json: bool) -> None:
    """Check every byte of files, each by itself; say where the damage is.

    Of a stream these are its card, stream.dmsq, and the segments of its partitions: what is
    missing before the next segment is damage, too. A segment that was being written may end in
    a batch that was not written to its end: that is no damage.
    """
    found = [_verified(path) for path in paths]
    if as_json:
        show_json(found)
    else:
        for one in found:
            show(_verdict(one))
    context.exit(Code.OK if all(one["sound"] for one in found) else Code.WRONG)


@dmsq.command()
@_files
@_salvage
@click.pass_context
def dump(context: click.Context, paths: tuple[str, ...], salvage: bool) -> None:
    """Write the messages that files hold as JSON, one a line, as consume --json does."""
    with _chain(paths, salvage) as chain:
        for message in _messages(chain):
            show(render.as_json(message))
        found = chain.messages
    context.exit(Code.OK if found else Code.NOTHING)


@dmsq.command()
@_files
@click.option(
    "--to",
    required=True,
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Where to: FILE.arrow, or FILE.parquet. What is there is replaced.",
)
@_salvage
def export(paths: tuple[str, ...], to: str, salvage: bool) -> None:
    """Write the messages that files hold as a table, for Arrow or as Parquet."""
    write = writer_of(to)
    with _chain(paths, salvage) as chain:
        write(to, chain)
        show(f"{counted(chain.messages, 'message')} written to {to}")


# -- inspect ---------------------------------------------------------------------------


def _records(data: bytes, start: int, salt: int) -> Iterator[dict[str, Any]]:
    """Each record in turn, up to the first that is none."""
    at = start
    while at < len(data):
        how, kind, size, fields = read_record(data, at, salt)
        if how != "ok":
            rest = len(data) - at
            what = "nothing" if how == "end" else f"no record ({how})"
            yield {"offset": at, "type": what, "bytes": rest}
            return
        for text in ("body", "meta"):
            if text in fields:
                fields[f"{text}_bytes"] = len(fields.pop(text))
        if kind == "batch":
            fields["holds"] = fields.pop("bytes")
        yield {"offset": at, "type": kind, "bytes": size, **fields}
        at += size


def _counted(records: Iterator[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How many records of each type there are, and how many bytes they have."""
    types: dict[str, dict[str, int]] = {}
    for record in records:
        one = types.setdefault(record["type"], {"records": 0, "bytes": 0})
        one["records"] += 1
        one["bytes"] += record["bytes"]
    return types


def _summed(records: Iterator[dict[str, Any]]) -> Table:
    made = table(["type", "records", "bytes"], right=("records", "bytes"))
    for kind, one in _counted(records).items():
        made.add_row(*(cell(value) for value in (kind, one["records"], one["bytes"])))
    return made


def _listed(records: Iterator[dict[str, Any]]) -> Table:
    made = table(["offset", "type", "bytes", "what"], right=("offset", "bytes"))
    for record in records:
        row = (record["offset"], record["type"], record["bytes"], _brief(record))
        made.add_row(*(cell(value) for value in row))
    return made


def _brief(record: dict[str, Any]) -> str:
    parts = []
    for key, value in record.items():
        if key in {"offset", "type", "bytes"}:
            continue
        if key == "entries":
            parts.append("1 entry" if len(value) == 1 else f"{len(value)} entries")
        elif key == "totals":
            parts += [f"{name} {number}" for name, number in value.items() if number]
        elif key in {"wall", "put_at", "until", "expires", "dead_at"}:
            parts.append(f"{key} {_when(value)}")
        else:
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def _when(ns: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(ns // 10**9, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


# -- verify ----------------------------------------------------------------------------


def _verified(path: str) -> dict[str, Any]:
    """What is to be said of one file by itself."""
    told: dict[str, Any] = {"file": path, "sound": False, "offset": None, "what": None}
    try:
        if is_of_stream(Path(path), read_file(path)):
            if Path(path).name == CARD:
                return {**told, "sound": True, **verify_card(Path(path))}
            return {**told, **verify_segment(Path(path))}
        with QueueFiles([(path, read_file(path))], partial=True) as chain:
            return {**told, "sound": True, "torn": chain.torn, "messages": chain.messages}
    except shmq.DamagedFile as error:
        return {**told, "offset": error.offset, "what": error.what}


def _verdict(one: dict[str, Any]) -> str:
    where = "" if one.get("partition") is None else f", partition {one['partition']}"
    if not one["sound"]:
        lost = [_offsets(first, behind) for first, behind in one.get("lost", ())]
        told = f"{where}: {', '.join(lost)} cannot be read" if lost else ""
        return f"{one['file']}: damaged at byte {one['offset']}: {one['what']}{told}"
    if "stream" in one:
        return f"{one['file']}: sound, stream {one['stream']!r}{where}, {_of_stream(one)}"
    end = "; its last batch is torn and does not count" if one["torn"] else ""
    return f"{one['file']}: sound, {counted(one['messages'], 'message')}{end}"


def _offsets(first: int, behind: int | None) -> str:
    return (
        f"the offsets from {first} on" if behind is None else f"the offsets {first} to {behind - 1}"
    )


def _of_stream(one: dict[str, Any]) -> str:
    """What a whole file of a stream holds."""
    if "records" not in one:
        return f"{counted(one['partitions'], 'partition')}, {counted(one['groups'], 'group')}"
    end = "; its last batch is torn and does not count" if one["torn"] else ""
    held = f" from offset {one['first']} on" if one["records"] else ""
    return f"{counted(one['records'], 'record')}{held}{end}"


# -- dump and export -------------------------------------------------------------------


@contextlib.contextmanager
def _chain(paths: tuple[str, ...], salvage: bool) -> Iterator[QueueFiles]:
    with QueueFiles([(path, read_file(path)) for path in paths], salvage, partial=True) as chain:
        for skipped in chain.skipped:
            note(str(skipped))
        yield chain


def _messages(chain: QueueFiles) -> Iterator[StoredMessage]:
    return (StoredMessage(chain.name, fields) for fields in chain)
