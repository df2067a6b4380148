"""``shmq restore``: queues and streams out of a backup, or of what is left of their files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import click

from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag, namespace_of
from shmq.cli.shared.output import counted, note, show, show_json
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

__all__ = ["restore"]

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
