"""``shmq restore``: queues and streams out of a backup, or of what is left of their files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from shmq.cli.failure import Code
from shmq.cli.flags import json_flag, namespace_of
from shmq.cli.output import counted, note, show, show_json
from shmq.persistence.restore import (
    DAMAGED,
    THERE,
    Restored,
    RestoredFile,
    RestoredStream,
    SalvagedTransactions,
)
from shmq.persistence.restore import restore as take

__all__ = ["restore"]


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
@click.option("--as", "new_name", metavar="NAME", help="What the queue is to be called; with -q.")
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
    new_name: str | None,
    salvage: bool,
    as_json: bool,
) -> None:
    """Make queues and streams from the files in DIR, or in the namespace's own data directory.

    What is there already is left as it is. Files that have to make way are set aside.
    """
    if new_name is not None and (len(names) != 1 or streams):
        raise click.UsageError("--as names one queue: say which with one -q")
    namespace = namespace_of(context)
    done = take(namespace, source, names, new_name, streams=streams, salvage=salvage)
    if as_json:
        show_json([dataclasses.asdict(one) for one in done])
    else:
        for one in done:
            _show(one)
    if not done:
        note("there are no queues to restore, and no streams")
    context.exit(Code.WRONG if any(one.state == DAMAGED for one in done) else Code.OK)


def _show(one: Restored | RestoredStream | RestoredFile | SalvagedTransactions) -> None:
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
