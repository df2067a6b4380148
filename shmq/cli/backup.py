"""``shmq backup`` and ``shmq restore``: queues and streams copied, and made from a copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag, namespace_of, queues_flag
from shmq.cli.shared.output import amount, counted, note, show, show_json
from shmq.persistence.backup import Saved
from shmq.persistence.backup import backup as copy
from shmq.persistence.durable_queues import directory_of, durable_queues, durable_streams
from shmq.persistence.restore import (
    DAMAGED,
    THERE,
    Restored,
    RestoredFile,
    RestoredStream,
    SalvagedTransactions,
    restore_aside,
)
from shmq.persistence.restore import restore as take

__all__ = ["backup", "restore"]

_KINDS: Final = ("queue", "stream", "file")


@click.command(short_help="Copy durable queues and streams that are in use.")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@queues_flag("without --stream too, all that the namespace has on disk")
@click.option(
    "--stream", "streams", metavar="NAME", multiple=True, help="A stream; may be repeated."
)
@json_flag
@click.pass_context
def backup(
    context: click.Context,
    target: Path,
    names: tuple[str, ...],
    streams: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy what durable queues and streams hold at one moment to DIR, which must be new or empty.

    They may be in use meanwhile. shmq serve or shmq persist has to run. shmq restore takes
    queues and streams out of DIR again.
    """
    namespace = namespace_of(context)
    everything = not names and not streams
    queues = durable_queues(namespace, names) if names or everything else []
    logs = durable_streams(namespace, streams) if streams or everything else []
    if not queues and not logs:
        raise click.ClickException(
            f"namespace {namespace!r} has no durable queues or streams: there is nothing to copy"
        )
    saved = copy(directory_of(namespace), queues, logs, target)
    if as_json:
        told = {kind: [_as_dict(one) for one in saved if one.kind == kind] for kind in _KINDS}
        show_json({"directory": str(target), **{f"{kind}s": told[kind] for kind in _KINDS}})
        return
    for one in saved:
        show(f"{one.kind} {one.name!r}: {counted(one.files, 'file')}, {amount(one.bytes)}")


def _as_dict(one: Saved) -> dict[str, Any]:
    return {one.kind: one.name, "files": one.files, "bytes": one.bytes}


Done: TypeAlias = Restored | RestoredStream | RestoredFile | SalvagedTransactions


@click.command(short_help="Make queues and streams from a backup, or from their files.")
@click.argument(
    "source", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False)
)
@click.option(
    "-q",
    "--queue",
    "names",
    metavar="NAME",
    multiple=True,
    help="A queue; may be repeated. Without -q and --stream, all that is in DIR.",
)
@click.option(
    "--stream", "streams", metavar="NAME", multiple=True, help="A stream; may be repeated."
)
@click.option(
    "--aside",
    metavar="FILE",
    help="What is set aside in the namespace's data directory, as shmq doctor calls it.",
)
@click.option(
    "--as",
    "new_name",
    metavar="NAME",
    help="What the queue is to be called; with -q, or --aside.",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Make what is damaged of what is intact, and list what is lost.",
)
@json_flag
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
) -> None:
    """Make queues and streams from the files in DIR, or in the namespace's own data directory.

    What is there already is left as it is. Files that have to make way are set aside:
    shmq doctor shows them, and --aside brings one back.
    """
    namespace = namespace_of(context)
    done: Sequence[Done]
    if aside is not None:
        if source is not None or names or streams:
            raise click.UsageError("--aside brings back one thing: drop DIR, -q and --stream")
        done = [restore_aside(namespace, aside, new_name, salvage=salvage)]
    elif new_name is not None and (len(names) != 1 or streams):
        raise click.UsageError("--as names one queue: say which with one -q, or with --aside")
    else:
        done = take(namespace, source, names, new_name, streams=streams, salvage=salvage)
    if as_json:
        show_json([dataclasses.asdict(one) for one in done])
    else:
        for one in done:
            _show(one)
    if not done:
        note("there are no queues to restore, and no streams")
    context.exit(Code.WRONG if any(one.state == DAMAGED for one in done) else Code.OK)


def _show(one: Done) -> None:
    match one:
        case Restored():
            what, held = f"queue {one.queue!r}", counted(one.messages, "message")
        case RestoredStream():
            what, held = f"stream {one.stream!r}", counted(one.records, "record")
        case RestoredFile():
            what, held = f"file {one.file!r}", "for the next writer that starts"
        case SalvagedTransactions():
            what, held = "transactions", f"{counted(one.transactions, 'transaction')} completed"
    state = "there already, and left as it is" if one.state == THERE else one.state
    show(f"{what}: {state}" if one.state in {THERE, DAMAGED} else f"{what}: {state}, {held}")
    for problem in one.problems:
        note(f"{what}: {problem}")
