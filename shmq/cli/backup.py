"""``shmq backup``: a consistent copy of durable queues and streams in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from shmq.cli.shared.flags import json_flag, namespace_of, queues_flag
from shmq.cli.shared.output import amount, counted, show, show_json
from shmq.persistence.backup import Saved
from shmq.persistence.backup import backup as copy
from shmq.persistence.durable_queues import directory_of, durable_queues, durable_streams

__all__ = ["backup"]

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
