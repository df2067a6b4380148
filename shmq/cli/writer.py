"""``shmq persist`` and ``shmq snapshot``: the persistence writer."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import click

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import (
    data_dir_flag,
    json_flag,
    log_format_flag,
    namespace_of,
    quiet_flag,
)
from shmq.cli.shared.names import queue_names
from shmq.cli.shared.output import amount, note, show, show_json
from shmq.cli.shared.progress import progress
from shmq.cli.shared.target import target_of
from shmq.disk.persistence.backup import directory_of, durable_queues
from shmq.disk.persistence.process import Persistence
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import snapshot_name
from shmq.disk.storage.writer_control import ask_for_snapshots
from shmq.errors import ShmqError
from shmq.host.namespace.data_directory import shared_disk, writer_directory
from shmq.host.namespace.namespace import Namespace
from shmq.host.supervision import detached_writer
from shmq.host.supervision.detached_writer import Parent
from shmq.host.supervision.signals import caught, ended_by
from shmq.host.supervision.stderr import show_on_stderr, show_stack_on_demand
from shmq.server.config.settings import LEVELS
from shmq.server.systemd import Manager

log = logging.getLogger("shmq")


@click.command(epilog="Example: shmq persist --data-dir ./data")
@data_dir_flag
@click.option(
    "-l",
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    envvar="SHMQ_LOG",
    help="The least severe events in the log.  [default: $SHMQ_LOG, or info]",
)
@click.option(
    "--idle",
    type=params.seconds,
    metavar="TIME",
    help="End after TIME without anything durable in use; give way to a writer without --idle.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background, with writer.log in the data directory; return after recovery.",
)
@log_format_flag
@click.pass_context
def persist(
    context: click.Context, data_dir: Path | None, log_level: str, idle: float | None, detach: bool
) -> None:
    """Recover the durable queues and streams of a namespace, and write them until stopped.

    Programs start a writer by themselves when they need one, and shmq serve is a writer too.
    Use this command to run the writer yourself, with SHMQ_AUTOSTART=0 set for the programs.
    SIGTERM and Ctrl-C write the last snapshots; a second one ends it at once.
    """
    namespace = target_of(context).namespace
    directory = writer_directory(Namespace.of(namespace), data_dir)
    parent = _detach(shared_disk(namespace, directory)) if detach else None
    log.handlers.clear()
    show_on_stderr("shmq", logging.getLevelNamesMapping()[log_level.upper()])
    show_stack_on_demand()
    try:
        _run(namespace, Persistence(namespace, directory, idle), parent)
    except ShmqError as error:
        if parent is not None:
            parent.tell(str(error))
        raise


def _detach(disk: Disk) -> Parent:
    """Continue in a process of its own. Raises ShmqError, and SystemExit in this process."""
    try:
        disk.make()
        return detached_writer.detach(disk.path("writer.log"))
    except OSError as error:
        raise ShmqError(
            f"data_dir={str(disk.directory)!r} cannot be used: {error.strerror or error}"
        ) from error


def _run(namespace: str, persistence: Persistence, parent: Parent | None) -> None:
    manager = Manager()
    signals: list[int] = []

    def on_signal(number: int) -> None:
        signals.append(number)
        if len(signals) > 1 and started:
            # sys.exit would wait for the threads. The files allow a kill at any moment.
            os._exit(128 + number)
        if len(signals) > 1 or not started:
            raise ended_by(number)
        manager.stopping()
        persistence.stop()

    def on_recovered() -> None:
        log.info("keeping the durable queues of namespace %r", namespace)
        manager.ready(f"keeping the durable queues of namespace {namespace!r}")
        if parent is not None:
            parent.tell()

    started = False
    with caught(on_signal):
        manager.starting("recovering durable queues")
        persistence.recover()
        started = True
        persistence.run(on_recovered)


@click.command(epilog="Example: shmq snapshot invoices")
@queue_names
@json_flag
@quiet_flag
@click.pass_context
def snapshot(context: click.Context, names: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Write a snapshot of each queue now, and return once all are on disk.

    Without a NAME, that is every durable queue. shmq serve or shmq persist must be running.
    """
    namespace = namespace_of(context)
    queues = durable_queues(namespace, names)
    if not queues:
        note(f"namespace {namespace!r} has no durable queues: nothing to write")
        if as_json:
            show_json([])
        return
    directory = directory_of(namespace)
    done: list[dict[str, Any]] = []
    failed = False
    # The writer does not say how many bytes it has written: the time shows that it works.
    try:
        with progress("snapshot", "bytes", quiet=quiet):
            for name, error in ask_for_snapshots(directory, queues):
                failed = failed or error is not None
                if error is not None:
                    note(f"queue {name!r}: {error}")
                else:
                    done.append(_describe_written(directory, name))
    finally:  # what is on disk is shown although another one failed
        for one in () if as_json else done:
            show(f"queue {one['queue']!r} is in {one['file']}, {amount(one['bytes'])}")
    if as_json:
        show_json(done)
    context.exit(Code.REFUSED if failed else Code.OK)


def _describe_written(directory: Path, name: str) -> dict[str, Any]:
    path = directory / snapshot_name(name)
    try:
        size = path.stat().st_size
    except OSError as error:  # deleted in the meantime
        raise shmq.NoSuchQueue(f"queue {name!r} was deleted in the meantime") from error
    return {"queue": name, "file": str(path), "bytes": size}
