"""``shmq dmsq``: look into the files that queues and streams are kept in."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

import shmq
from shmq.cli.shared import params, render
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import Group, json_flag, quiet_flag
from shmq.cli.shared.output import (
    cell,
    counted,
    note,
    on_a_terminal,
    show,
    show_json,
    show_table,
    table,
)
from shmq.cli.shared.progress import Progress, progress, steps_of
from shmq.cli.shared.table import Table
from shmq.disk.persistence.file_message import StoredMessage
from shmq.disk.persistence.verify import other_content, verify_file
from shmq.disk.storage.disk import completed
from shmq.disk.storage.file_header import HEADER_BYTES, read_header
from shmq.disk.storage.progress import Step, bytes_of
from shmq.disk.storage.queue_files import QueueFiles, read_file
from shmq.native._core import read_record

_KINDS: Final = {1: "snapshot", 2: "journal segment"}
_file = click.argument("path", metavar="FILE", type=params.FilePath(exists=True, dir_okay=False))
_files = click.argument(
    "paths", metavar="FILE...", nargs=-1, required=True,
    type=params.FilePath(exists=True, dir_okay=False),
)  # fmt: skip
_salvage = click.option(
    "--salvage", is_flag=True, help="Skip what is damaged, and list it on stderr."
)


@click.group(cls=Group, epilog="Example: shmq dmsq verify invoices.dmsq")
def dmsq() -> None:
    """Look into .dmsq files: snapshots and journals of queues and streams.

    Files may be in use. dump and export take all files of one queue, NAME.dmsq and
    NAME@*.dmsq; together they hold the messages of the queue.
    """


@dmsq.command(epilog="Example: shmq dmsq inspect invoices.dmsq")
@_file
@click.option("--records", "each", is_flag=True, help="Show every record instead of counts.")
@json_flag
@quiet_flag
def inspect(path: str, each: bool, as_json: bool, quiet: bool) -> None:
    """Show what a file is, and what it contains."""
    data = read_file(path)
    _require_queue_file(path, data)
    header, start = read_header(data[:HEADER_BYTES], path)
    description = {
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
    with progress("inspect", "bytes", quiet=quiet) as shown:
        records = _report_progress(_iterate_records(data, start, header.salt), len(data), shown)
        found = list(records) if each else _count(records)
    if as_json:
        show_json({**description, "records" if each else "types": found})
        return
    for key in ("kind", "queue", "number", "queue_id", "hash_key", "previous_end", "bytes"):
        show(f"{key:<12} {description[key]}")
    show(f"{'created':<12} {_format_time(header.created)}")
    show("")
    show_table(_make_table(found) if isinstance(found, list) else _sum_by_type(found))


@dmsq.command(epilog="Example: shmq dmsq verify invoices.dmsq")
@_files
@json_flag
@quiet_flag
@click.pass_context
def verify(context: click.Context, paths: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Check every byte of each file, and say where a file is damaged.

    The files of a stream are stream.dmsq and the segments of its partitions. Records missing
    between two segments are damage. An incomplete last batch of the newest segment is not.
    """
    found = []
    with progress("verify", "bytes", quiet=quiet) as shown:
        step = Step(steps_of(shown), "verify", bytes_of(map(Path, paths)))
        for path in paths:
            with step.part(bytes_of([Path(path)])) as on_progress:
                found.append(verify_file(Path(path), on_progress))
    if as_json:
        show_json(found)
    else:
        for one in found:
            show(_describe_verdict(one))
    context.exit(Code.OK if all(one["sound"] for one in found) else Code.WRONG)


@dmsq.command(epilog="Example: shmq dmsq dump invoices.dmsq")
@_files
@_salvage
@quiet_flag
@click.pass_context
def dump(context: click.Context, paths: tuple[str, ...], salvage: bool, quiet: bool) -> None:
    """Print the messages in the files as JSON, one per line."""
    # On a terminal the messages themselves show how far it is.
    quiet = quiet or on_a_terminal()
    with (
        _chain(paths, salvage, quiet=quiet) as chain,
        progress("dump", "messages", quiet=quiet) as on_progress,
    ):
        for message in _iterate_messages(chain, on_progress):
            show(render.as_json(message))
        found = chain.messages
    context.exit(Code.OK if found else Code.NOTHING)


@dmsq.command(epilog="Example: shmq dmsq export invoices.dmsq --to invoices.parquet")
@_files
@click.option(
    "--to",
    required=True,
    type=params.FilePath(dir_okay=False, writable=True),
    metavar="FILE",
    help="FILE.arrow or FILE.parquet; an existing file is replaced.",
)
@_salvage
@quiet_flag
def export(paths: tuple[str, ...], to: str, salvage: bool, quiet: bool) -> None:
    """Write the messages in the files to an Arrow or Parquet file."""
    write = writer_of(to)
    with (
        _chain(paths, salvage, quiet=quiet) as chain,
        progress("export", "messages", quiet=quiet) as on_progress,
    ):
        write(to, chain, on_progress)
        written = chain.messages
    show(f"{counted(written, 'message')} written to {to}")


def _require_queue_file(path: str, data: bytes) -> None:
    """Raises FileError for a file that is of no queue."""
    content = other_content(path, data)
    if content is not None:
        raise shmq.FileError(
            f"{path} holds {content}, and no messages of a queue: shmq dmsq verify checks it, "
            f"and shmq stream read shows the records of a stream"
        )


# -- inspect ---------------------------------------------------------------------------


def _iterate_records(data: bytes, start: int, salt: int) -> Iterator[dict[str, Any]]:
    """Each record in turn; the last one tells where the records end."""
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


def _report_progress(
    records: Iterator[dict[str, Any]], total: int, shown: Progress
) -> Iterator[dict[str, Any]]:
    """The same records, of a file of ``total`` bytes; how far they are is shown."""
    for number, record in enumerate(records):
        if number % _TOLD == 0:
            shown(record["offset"], total)
        yield record


def _count(records: Iterator[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How many records of each type there are, and how many bytes they have."""
    types: dict[str, dict[str, int]] = {}
    for record in records:
        one = types.setdefault(record["type"], {"records": 0, "bytes": 0})
        one["records"] += 1
        one["bytes"] += record["bytes"]
    return types


def _sum_by_type(types: dict[str, dict[str, int]]) -> Table:
    made = table(["type", "records", "bytes"], right=("records", "bytes"))
    for kind, one in types.items():
        made.add_row(*(cell(value) for value in (kind, one["records"], one["bytes"])))
    return made


def _make_table(records: list[dict[str, Any]]) -> Table:
    made = table(["offset", "type", "bytes", "what"], right=("offset", "bytes"))
    for record in records:
        row = (record["offset"], record["type"], record["bytes"], _summarize_record(record))
        made.add_row(*(cell(value) for value in row))
    return made


def _summarize_record(record: dict[str, Any]) -> str:
    parts = []
    for key, value in record.items():
        if key in {"offset", "type", "bytes"}:
            continue
        if key == "entries":
            parts.append("1 entry" if len(value) == 1 else f"{len(value)} entries")
        elif key == "totals":
            parts += [f"{name} {number}" for name, number in value.items() if number]
        elif key in {"wall", "put_at", "until", "expires", "dead_at"}:
            parts.append(f"{key} {_format_time(value)}")
        else:
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def _format_time(ns: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(ns // 10**9, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


# -- verify ----------------------------------------------------------------------------


def _describe_verdict(one: dict[str, Any]) -> str:
    where = "" if one.get("partition") is None else f", partition {one['partition']}"
    if not one["sound"]:
        lost = [_format_offsets(first, behind) for first, behind in one.get("lost", ())]
        loss = f"{where}: {', '.join(lost)} cannot be read" if lost else ""
        return f"{one['file']}: damaged at byte {one['offset']}: {one['what']}{loss}"
    if "content" in one:
        return f"{one['file']}: sound, {one['content']}"
    if "stream" in one:
        return (
            f"{one['file']}: sound, stream {one['stream']!r}{where}, {_describe_stream_file(one)}"
        )
    end = "; its last batch is torn and does not count" if one["torn"] else ""
    return f"{one['file']}: sound, {counted(one['messages'], 'message')}{end}"


def _format_offsets(first: int, behind: int | None) -> str:
    return (
        f"the offsets from {first} on" if behind is None else f"the offsets {first} to {behind - 1}"
    )


def _describe_stream_file(one: dict[str, Any]) -> str:
    """The content of an intact file of a stream, in words."""
    if "records" not in one:
        return f"{counted(one['partitions'], 'partition')}, {counted(one['groups'], 'group')}"
    end = "; its last batch is torn and does not count" if one["torn"] else ""
    held = f" from offset {one['first']} on" if one["records"] else ""
    return f"{counted(one['records'], 'record')}{held}{end}"


# -- dump and export -------------------------------------------------------------------


@contextlib.contextmanager
def _chain(paths: tuple[str, ...], salvage: bool, *, quiet: bool) -> Iterator[QueueFiles]:
    with progress("read", "bytes", quiet=quiet) as shown:
        step = Step(steps_of(shown), "read", bytes_of(map(Path, paths)))
        files = [(path, read_file(path)) for path in paths]
        for path, data in files:
            _require_queue_file(path, data)
        read = QueueFiles(files, salvage, partial=True, on_progress=step.add)
    with read as chain:
        for skipped in chain.skipped:
            note(str(skipped))
        yield chain


def _iterate_messages(chain: QueueFiles, on_progress: Progress) -> Iterator[StoredMessage]:
    """The messages, each counted once it is used."""
    for number, fields in enumerate(chain, 1):
        yield StoredMessage(chain.name, fields)
        if number % _TOLD == 0:
            on_progress(number, chain.messages)


#: After so many messages, or records, progress is reported.
_TOLD: Final = 100
#: So many rows are made into columns at a time.
_BATCH: Final = 10_000


def writer_of(to: str) -> Callable[[str, QueueFiles, Progress], None]:
    """The function that writes messages to the file ``to``, by the suffix of its name.

    Raises :class:`click.UsageError` for another name, and :class:`click.ClickException`
    without pyarrow.
    """
    if Path(to).suffix not in {".arrow", ".parquet"}:
        raise click.UsageError(f"--to {to}: the name must end in .arrow or .parquet")
    try:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise click.ClickException(
            "export needs pyarrow, which is not installed: pip install 'shmq[arrow]'"
        ) from None
    return _Columns(pa, parquet).write


class _Columns:
    """Writes rows with pyarrow."""

    def __init__(self, arrow: Any, parquet: Any) -> None:
        self._arrow = arrow
        self._parquet = parquet

    def write(self, to: str, chain: QueueFiles, on_progress: Progress) -> None:
        """Write the messages to a file that gets its name when it is complete.

        Raises OSError with the name.
        """
        schema = self._build_schema()
        make = self._parquet.ParquetWriter if to.endswith(".parquet") else self._arrow.ipc.new_file
        try:
            with completed(Path(to)) as aside, make(str(aside), schema) as writer:
                done = 0
                for rows in _split_batches(chain):
                    writer.write_batch(self._arrow.RecordBatch.from_pylist(rows, schema=schema))
                    done += len(rows)
                    on_progress(done, chain.messages)
        except OSError as error:  # pyarrow's has no name, and the number in its text
            why = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(error.errno, why, to) from error

    def _build_schema(self) -> Any:
        a = self._arrow
        moment = a.timestamp("ns", tz="UTC")
        columns = {
            "sequence": a.uint64(),
            "priority": a.uint8(),
            "group": a.string(),
            "deliveries": a.uint16(),
            "codec": a.string(),
            "put_at": moment,
            "visible_at": moment,
            "expires_at": moment,
            "dead": a.string(),
            "headers": a.string(),
            "properties": a.string(),
            "body": a.large_binary(),
        }
        return a.schema(list(columns.items()))


def _split_batches(chain: QueueFiles) -> Iterator[list[dict[str, Any]]]:
    rows = []
    for fields in chain:
        rows.append(_make_row(StoredMessage(chain.name, fields), fields))
        if len(rows) == _BATCH:
            yield rows
            rows = []
    if rows:
        yield rows


def _make_row(message: StoredMessage, fields: dict[str, Any]) -> dict[str, Any]:
    rendered = render.as_dict(message)
    return {
        "sequence": message.sequence,
        "priority": message.priority,
        "group": message.group,
        "deliveries": message.delivery_count,
        "codec": message.codec,
        "put_at": fields["put_at"],
        "visible_at": fields.get("until"),
        "expires_at": fields.get("expires"),
        "dead": render.dumps(dataclasses.asdict(message.dead)) if message.dead else None,
        "headers": render.dumps(rendered["headers"]),
        "properties": render.dumps(rendered["properties"]),
        "body": fields["body"],
    }
