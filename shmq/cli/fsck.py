"""``shmq fsck``: check every invariant of the queues' segments."""

from __future__ import annotations

import dataclasses

import click

from shmq.cli.shared import params
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import complete_queues, json_flag, namespace_of
from shmq.cli.shared.output import cell, note, show_json, show_table, table
from shmq.diagnose.segments import MISSING, SOUND, SegmentReport, examine
from shmq.diagnose.streams import examine_files
from shmq.namespace.namespace import Namespace

__all__ = ["fsck"]


@click.command(short_help="Check every invariant of queues.")
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=complete_queues)
@click.option(
    "-q",
    "--queue",
    "named",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_queues,
    help="The same as QUEUE; may be repeated.",
)
@click.option(
    "--timeout",
    type=params.seconds,
    default="30s",
    metavar="TIME",
    show_default=True,
    help="How long the check of one queue may take.",
)
@json_flag
@click.pass_context
def fsck(
    context: click.Context,
    queues: tuple[str, ...],
    named: tuple[str, ...],
    timeout: float,
    as_json: bool,
) -> None:
    """Check every invariant of each QUEUE, or of all of the namespace.

    Without a QUEUE all records in the files of its durable streams are read as well. Changes
    nothing, and may be run on what is in use.
    """
    namespace = namespace_of(context)
    # Not the broker's list, which clears away what is half made.
    asked = list(dict.fromkeys(queues + named))
    names = asked or Namespace.of(namespace).queue_names()
    found = [examine(namespace, name, timeout) for name in names]
    if not asked:
        found = [one for one in found if one.state != MISSING]  # deleted meanwhile
        found += examine_files(namespace)
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
    elif found:
        _show(found)
    else:
        note(f"namespace {namespace!r} has no queues")
    context.exit(_code(found))


def _show(found: list[SegmentReport]) -> None:
    made = table(["queue", "state", *(["problem"] if any(one.problems for one in found) else [])])
    for one in found:
        for line in one.problems or [""]:
            made.add_row(
                *(cell(value) for value in (one.name, one.state, line)[: len(made.columns)])
            )
    show_table(made)


def _code(found: list[SegmentReport]) -> Code:
    states = {one.state for one in found}
    if states <= {SOUND}:
        return Code.OK
    return Code.NO_QUEUE if states <= {SOUND, MISSING} else Code.SEGMENT
