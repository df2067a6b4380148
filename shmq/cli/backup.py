"""``shmq backup`` and ``shmq restore``: queues, streams and tables copied, made from a copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from shmq.cli.shared import params
from shmq.cli.shared.audited import audited
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag, namespace_of, quiet_flag
from shmq.cli.shared.names import complete_queues, complete_streams
from shmq.cli.shared.output import amount, counted, note, show, show_json
from shmq.cli.shared.progress import progress, steps_of
from shmq.disk.persistence.backup import (
    Saved,
    directory_of,
    durable_queues,
    durable_streams,
    durable_tables,
)
from shmq.disk.persistence.backup import backup as copy
from shmq.disk.persistence.restore import restore as take
from shmq.disk.persistence.restore import restore_aside
from shmq.disk.persistence.stream_restore import DAMAGED, FOREIGN, THERE, Restored
from shmq.host.supervision.audit import Event

_KINDS: Final = ("queue", "stream", "table", "file")


@click.command(epilog="Example: shmq backup ./backup --queue invoices")
@click.argument("target", metavar="DIR", type=params.FilePath(path_type=Path, file_okay=False))
@click.option(
    "-q",
    "--queue",
    "names",
    type=params.name,
    metavar="NAME",
    multiple=True,
    shell_complete=complete_queues,
    help="Only this queue; may be repeated.  [default: all queues and streams]",
)
@click.option(
    "--stream",
    "streams",
    type=params.name,
    metavar="NAME",
    multiple=True,
    shell_complete=complete_streams,
    help="Only this stream; may be repeated.",
)
@json_flag
@quiet_flag
@click.pass_context
def backup(
    context: click.Context,
    target: Path,
    names: tuple[str, ...],
    streams: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Copy durable queues and streams, as of one moment, to DIR: a new or empty directory.

    They may be in use. shmq serve or shmq persist must be running. Without -q and --stream, the
    tables on disk are copied after them. shmq restore makes all of them from DIR.
    """
    namespace = namespace_of(context)
    everything = not names and not streams
    queues = durable_queues(namespace, names) if names or everything else []
    logs = durable_streams(namespace, streams) if streams or everything else []
    tables = durable_tables(namespace) if everything else []
    if not queues and not logs and not tables:
        raise click.ClickException(
            f"namespace {namespace!r} has no durable queues, streams or tables: there is nothing "
            f"to copy"
        )
    directory = directory_of(namespace) if queues or logs else target
    with progress("backup", "bytes", quiet=quiet) as shown:
        saved = copy(directory, queues, logs, target, tables, steps_of(shown))
    if as_json:
        by_kind = {kind: [_as_dict(one) for one in saved if one.kind == kind] for kind in _KINDS}
        show_json({"directory": str(target), **{f"{kind}s": by_kind[kind] for kind in _KINDS}})
        return
    for one in saved:
        show(f"{one.kind} {one.name!r}: {counted(one.files, 'file')}, {amount(one.bytes)}")


def _as_dict(one: Saved) -> dict[str, Any]:
    return {one.kind: one.name, "files": one.files, "bytes": one.bytes}


@click.command(epilog="Example: shmq restore ./backup --queue invoices --as invoices-old")
@click.argument(
    "source", metavar="[DIR]", required=False, type=params.FilePath(path_type=Path, file_okay=False)
)
@click.option(
    "-q",
    "--queue",
    "names",
    type=params.name,
    metavar="NAME",
    multiple=True,
    help="Only this queue; may be repeated.  [default: all queues and streams]",
)
@click.option(
    "--stream",
    "streams",
    type=params.name,
    metavar="NAME",
    multiple=True,
    help="Only this stream; may be repeated.",
)
@click.option(
    "--aside",
    metavar="FILE",
    help="Restore a file that was set aside, by the name that shmq doctor shows.",
)
@click.option(
    "--as",
    "new_name",
    type=params.name,
    metavar="NAME",
    help="The new name of the queue; with -q or --aside.",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Restore what is intact of damaged files, and list what is lost.",
)
@json_flag
@quiet_flag
@click.pass_context
def restore(
    context: click.Context,
    source: Path | None,
    names: tuple[str, ...],
    streams: tuple[str, ...],
    aside: str | None,
    new_name: str | None,
    salvage: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make queues and streams from the files in DIR, or in the data directory of the namespace.

    What exists stays unchanged. Without -q and --stream, tables are made from DIR, too. Files that
    are in the way are set aside: shmq doctor lists them, and --aside restores one.
    """
    namespace = namespace_of(context)
    done: Sequence[Restored]
    if aside is not None:
        if source is not None or names or streams:
            raise click.UsageError("--aside restores one thing: drop DIR, -q and --stream")
        with (
            audited(namespace, Event.BACKUP_RESTORE, aside, new_name=new_name),
            progress("restore", "bytes", quiet=quiet) as shown,
        ):
            report = steps_of(shown)
            done = [restore_aside(namespace, aside, new_name, salvage=salvage, report=report)]
    elif new_name is not None and (len(names) != 1 or streams):
        raise click.UsageError("--as names one queue: say which with one -q, or with --aside")
    else:
        wanted = ",".join((*names, *streams))
        given = {"source": None if source is None else str(source), "new_name": new_name}
        with (
            audited(namespace, Event.BACKUP_RESTORE, wanted, **given) as details,
            progress("restore", "bytes", quiet=quiet) as shown,
        ):
            done = take(
                namespace, source, names, new_name,
                streams=streams, salvage=salvage, report=steps_of(shown),
            )  # fmt: skip
            details["restored"] = len(done)
    if as_json:
        show_json([_describe(one) for one in done])
    else:
        for one in done:
            _show(one)
    if not done:
        note("there are no queues to restore, no streams and no tables")
    context.exit(Code.WRONG if any(one.state == DAMAGED for one in done) else Code.OK)


def _describe(one: Restored) -> dict[str, Any]:
    if one.kind == "transactions":
        return {"transactions": one.count, "problems": one.problems, "state": one.state}
    count = {"queue": {"messages": one.count}, "stream": {"records": one.count}}.get(one.kind, {})
    result = {one.kind: one.name, "state": one.state, **count}
    return {**result, "problems": one.problems}


def _show(one: Restored) -> None:
    what = one.kind if one.kind == "transactions" else f"{one.kind} {one.name!r}"
    held = {
        "queue": counted(one.count, "message"),
        "stream": counted(one.count, "record"),
        "file": "for the next writer that starts",
        "table": "with all its keys",
        "transactions": f"{counted(one.count, 'transaction')} completed",
    }[one.kind]
    unchanged = {
        THERE: "there already, and left unchanged",
        DAMAGED: DAMAGED,
        FOREIGN: "not a file of shmq, and not copied",
    }
    show(f"{what}: {unchanged.get(one.state) or f'{one.state}, {held}'}")
    for problem in one.problems:
        note(f"{what}: {problem}")
