"""``shmq snapshot``: have the running writer write queues to disk now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import shmq
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import json_flag, namespace_of, queues_flag
from shmq.cli.shared.output import amount, note, show, show_json
from shmq.persistence.durable_queues import directory_of, durable_queues
from shmq.storage.paths import snapshot_name
from shmq.storage.writer_control import ask_for_snapshots

__all__ = ["snapshot"]


@click.command(short_help="Write queues to disk now.")
@queues_flag("every durable queue of the namespace")
@json_flag
@click.pass_context
def snapshot(context: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Write a snapshot of each queue now, and return once all are safe on disk.

    shmq serve or shmq persist does it, and has to run.
    """
    namespace = namespace_of(context)
    queues = durable_queues(namespace, names)
    if not queues:
        note(f"namespace {namespace!r} has no durable queues: nothing to write")
        return
    directory = directory_of(namespace)
    done: list[dict[str, Any]] = []
    failed = False
    for name, error in ask_for_snapshots(directory, queues):
        failed = failed or error is not None
        if error is not None:
            note(f"queue {name!r}: {error}")
            continue
        done.append(_written(directory, name))
        if not as_json:
            show(f"queue {name!r} is in {done[-1]['file']}, {amount(done[-1]['bytes'])}")
    if as_json:
        show_json(done)
    context.exit(Code.REFUSED if failed else Code.OK)


def _written(directory: Path, name: str) -> dict[str, Any]:
    path = directory / snapshot_name(name)
    try:
        size = path.stat().st_size
    except OSError as error:  # deleted meanwhile
        raise shmq.NoSuchQueue(f"queue {name!r} was deleted meanwhile") from error
    return {"queue": name, "file": str(path), "bytes": size}
