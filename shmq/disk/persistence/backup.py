"""Lists a namespace's durable queues, streams and tables, and backs them up while in use."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from shmq.api.names import check_name
from shmq.disk.persistence.transaction_recovery import complete_transactions
from shmq.disk.storage.disk import Disk, read_pieces, size_of, write_file
from shmq.disk.storage.paths import CARD, TABLES
from shmq.disk.storage.progress import Report, Step, bytes_of, silent
from shmq.disk.storage.transaction_file import TRANSACTIONS
from shmq.disk.storage.writer_control import CutFile, ask_for_cut, ask_for_snapshots
from shmq.errors import (
    InvalidOption,
    LockTimeout,
    NoSuchQueue,
    NoSuchStream,
    SegmentError,
    ShmqError,
    TableDeleted,
)
from shmq.host.namespace import streams
from shmq.host.namespace.folder import shared_gid
from shmq.host.namespace.namespace import Namespace
from shmq.host.supervision.descriptors import raise_descriptor_limit
from shmq.model.table.backup import copied
from shmq.model.table.files import TableFile, disk_directory, tables_in


@dataclass(frozen=True, slots=True)
class Saved:
    """A queue or stream of the backup, or a file that belongs to neither."""

    #: "queue", "stream", "table" or "file", and its name.
    kind: str
    name: str
    files: int
    bytes: int


def backup(
    directory: Path,
    queues: Sequence[str],
    streams: Sequence[str],
    target: Path,
    tables: Sequence[TableFile] = (),
    report: Report = silent,
) -> list[Saved]:
    """Copy the queues and streams, written in ``directory``, as they are at one moment.

    Each of the tables is copied as it is at a moment of its own, later. The other files of the
    namespace are copied, too. A new snapshot of each queue keeps the copy small; the journals since
    then complete it, up to one moment for all. Transactions that have started are completed in the
    copy. ``target`` must not exist, or be an empty directory; it gets its name once it is complete
    and on disk. Raises :class:`~shmq.ShmqError`.
    """
    try:
        target = Path(os.path.realpath(target))  # a link stays; a circle of links is an OSError
        _check_target(target)
        Step(report, "backup: new snapshots")
        files = _open_cut(directory, queues, streams) if queues or streams else []
        try:
            return _write(files, tables, target, report)
        finally:
            for file in files:
                os.close(file.descriptor)
    except LockTimeout:  # an OSError, too
        raise
    except OSError as error:
        where = error.filename or target
        raise ShmqError(f"no backup was made: {where}: {error.strerror}") from error


def _check_target(target: Path) -> None:
    """Check that a new directory can get the name. Raises ShmqError and OSError."""
    problem = None
    if target.exists():
        if not target.is_dir():
            problem = "is not a directory"
        elif any(target.iterdir()):
            problem = "is not empty"
        elif target.is_mount():
            problem = "has a file system of its own, which nothing can replace"
    if problem is not None:
        raise ShmqError(f"{target} exists and {problem}: name a new or an empty directory")


def _open_cut(directory: Path, queues: Sequence[str], streams: Sequence[str]) -> list[CutFile]:
    """The files of all of them, as of one moment, by the writer."""
    for name, error in ask_for_snapshots(directory, list(queues)):
        if error is not None:
            raise ShmqError(f"queue {name!r} cannot be backed up: {error}")
    raise_descriptor_limit()  # one for each file
    return ask_for_cut(directory, list(queues), list(streams))


def _write(
    files: Sequence[CutFile], tables: Sequence[TableFile], target: Path, report: Report
) -> list[Saved]:
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    disk = Disk(unfinished)
    disk.make()
    step = Step(report, "backup", sum(file.bytes for file in files))
    try:
        for file in sorted(files, key=lambda file: file.name.endswith(CARD)):
            _copy(disk, file, step)
        saved_tables = _copy_tables(disk, tables, report)
        disk.sync_directory()
        complete_transactions(disk, ())
        disk.path("").rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    Disk(target.parent).sync_directory()
    saved: dict[tuple[str, str], list[int]] = {}
    for file in files:
        if file.name != TRANSACTIONS:
            saved.setdefault((file.kind, file.queue), []).append(file.bytes)
    return [*(Saved(*what, len(sizes), sum(sizes)) for what, sizes in saved.items()), *saved_tables]


def _copy_tables(disk: Disk, tables: Sequence[TableFile], report: Report) -> list[Saved]:
    folder = disk.under(TABLES)
    if tables:
        folder.make()
    saved = []
    step = Step(report, "backup of tables", bytes_of(table.path for table in tables))
    for table in tables:
        size = bytes_of([table.path])
        with contextlib.suppress(TableDeleted):  # in the meantime
            saved.append(Saved("table", table.name, 1, copied(table, folder.path(table.path.name))))
        step.add(size)
    return saved


def _copy(disk: Disk, file: CutFile, step: Step) -> None:
    *above, name = file.name.split("/")
    for part in above:
        disk = disk.under(part)
    if above:
        disk.make()
    write_file(disk, name, read_pieces(disk, file.descriptor, file.bytes), step.add)
    if (size := size_of(disk, name)) < file.bytes:
        raise ShmqError(f"{file.name} ends at {size} of {file.bytes} bytes: try again")
    disk.sync_directory()


# ---- what is durable ----


def durable_queues(namespace: str, names: Collection[str] = ()) -> list[str]:
    """The names of the durable queues; or ``names`` without repetitions, which must be durable.

    Raises :class:`~shmq.NoSuchQueue`, and :class:`~shmq.InvalidOption` for a queue that is
    only in memory.
    """
    return _list_durable(Namespace.of(namespace), "queue", names)


def durable_streams(namespace: str, names: Collection[str] = ()) -> list[str]:
    """The same of streams. Raises :class:`~shmq.NoSuchStream` and InvalidOption."""
    return _list_durable(Namespace.of(namespace), "stream", names)


def durable_tables(namespace: str) -> list[TableFile]:
    """The tables on disk. Raises ForeignSegment."""
    return tables_in(disk_directory(Namespace.of(namespace)), "disk", shared_gid(namespace))


def _list_durable(registry: Namespace, kind: str, names: Collection[str]) -> list[str]:
    for name in names:
        if not _is_durable(registry, kind, check_name(name, kind)):
            raise InvalidOption(
                f"{kind} {name!r} has durability='memory', so it is not kept on disk: create it "
                f"with durability='journal'"
            )
    if names:
        return list(dict.fromkeys(names))
    found = []
    for name in registry.queue_names() if kind == "queue" else registry.stream_names():
        with contextlib.suppress(NoSuchQueue, NoSuchStream, SegmentError):
            if _is_durable(registry, kind, name):
                found.append(name)
    return found


def _is_durable(registry: Namespace, kind: str, name: str) -> bool:
    if kind == "stream":
        options = streams.open_stream(registry, name)[0].options
    else:
        options = registry.open_segment(name).options
    return bool(options["durability"] != "memory")


def directory_of(namespace: str) -> Path:
    """The directory of the namespace's durable queues. Raises ShmqError if it has none."""
    directory = Namespace.of(namespace).roles.data_dir
    if directory is None:
        raise ShmqError(
            f"namespace {namespace!r} has no data directory yet: start shmq serve or shmq persist"
        )
    return directory
