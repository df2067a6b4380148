"""``shmq restore``: queues out of a backup, or out of what is left of their files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from shmq.cli.failure import Code
from shmq.cli.flags import json_flag, namespace_of
from shmq.cli.output import counted, note, show, show_json
from shmq.persistence.restore import DAMAGED, THERE, Restored
from shmq.persistence.restore import restore as take

__all__ = ["restore"]


@click.command(short_help="Make queues from a backup, or from their files.")
@click.argument(
    "source", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False)
)
@click.option(
    "-q",
    "--queue",
    "names",
    metavar="NAME",
    multiple=True,
    help="The queue; may be repeated. Without it, all that are in DIR.",
)
@click.option("--as", "new_name", metavar="NAME", help="What the queue is to be called; with -q.")
@click.option(
    "--salvage",
    is_flag=True,
    help="Make damaged queues of what is intact, and list what is not.",
)
@json_flag
@click.pass_context
def restore(
    context: click.Context,
    source: Path | None,
    names: tuple[str, ...],
    new_name: str | None,
    salvage: bool,
    as_json: bool,
) -> None:
    """Make queues from the files in DIR; without it, the namespace's own data directory.

    A queue that is there already is left as it is.
    """
    if new_name is not None and len(names) != 1:
        raise click.UsageError("--as names one queue: say which with one -q")
    namespace = namespace_of(context)
    done = take(namespace, source, names, new_name, salvage=salvage)
    if as_json:
        show_json([dataclasses.asdict(one) for one in done])
    else:
        for one in done:
            _show(one)
    if not done:
        note("there are no queues to restore")
    context.exit(Code.WRONG if any(one.state == DAMAGED for one in done) else Code.OK)


def _show(one: Restored) -> None:
    held = "" if one.state in {THERE, DAMAGED} else f", {counted(one.messages, 'message')}"
    state = "there already, and left as it is" if one.state == THERE else one.state
    show(f"queue {one.queue!r}: {state}{held}")
    for problem in one.problems:
        note(f"queue {one.queue!r}: {problem}")
