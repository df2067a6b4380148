"""``shmq backup``: a consistent copy of durable queues in use."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from shmq.cli.flags import json_flag, namespace_of, queues_flag
from shmq.cli.output import amount, counted, show, show_json
from shmq.persistence.backup import backup as copy
from shmq.persistence.durable import directory_of, durable_queues

__all__ = ["backup"]


@click.command(short_help="Copy durable queues that are in use.")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@queues_flag("every durable queue of the namespace")
@json_flag
@click.pass_context
def backup(context: click.Context, target: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Copy what the durable queues hold at one moment to DIR, which must be new or empty.

    They may be in use meanwhile. shmq serve or shmq persist has to run. shmq restore takes
    queues out of DIR again.
    """
    namespace = namespace_of(context)
    queues = durable_queues(namespace, names)
    if not queues:
        raise click.ClickException(
            f"namespace {namespace!r} has no durable queues: there is nothing to copy"
        )
    saved = copy(directory_of(namespace), queues, target)
    if as_json:
        show_json({"directory": str(target), "queues": [dataclasses.asdict(one) for one in saved]})
        return
    for one in saved:
        show(f"queue {one.queue!r}: {counted(one.files, 'file')}, {amount(one.bytes)}")
