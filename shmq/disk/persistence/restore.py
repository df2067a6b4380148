"""Restores queues and streams from files without a writer: a backup, or damaged files."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from shmq.api.names import check_name
from shmq.disk.persistence.conflicts import in_memory, join_memory, live_keys, set_aside
from shmq.disk.persistence.definitions import check_definitions
from shmq.disk.persistence.move import finish_move
from shmq.disk.persistence.recovery import Decision, plan, rebuild_queue, sync_files
from shmq.disk.persistence.stream_restore import (
    DAMAGED,
    FOREIGN,
    RESTORED,
    SALVAGED,
    THERE,
    Restored,
    copy_file,
    is_regular,
    restore_stream_aside,
    restore_streams,
)
from shmq.disk.persistence.transaction_recovery import complete_transactions
from shmq.disk.storage.disk import Disk, ReadOnly
from shmq.disk.storage.erase import finish_erasures
from shmq.disk.storage.file_header import hash_key_of
from shmq.disk.storage.inventory import foreign_files, is_data_directory, others, writer_of
from shmq.disk.storage.paths import EXCHANGES, TABLES, catalog
from shmq.disk.storage.progress import OnProgress, Report, Step, silent
from shmq.disk.storage.set_aside import FileSetAside, RenamedDisk, files_aside
from shmq.disk.storage.transaction_file import TRANSACTIONS, read_noted, salvage_noted
from shmq.errors import (
    FileError,
    InvalidName,
    InvalidOption,
    LockTimeout,
    NoSuchQueue,
    QueueExists,
    SegmentError,
    ShmqError,
)
from shmq.host.namespace.data_directory import DataDirectory, directory_of
from shmq.host.namespace.folder import shared_gid
from shmq.host.namespace.namespace import Namespace
from shmq.model.table.backup import copied
from shmq.model.table.files import new_path, tables_in, tables_of

log = logging.getLogger("shmq")


def restore(
    namespace: str,
    source: Path | None = None,
    queues: Sequence[str] = (),
    new_name: str | None = None,
    *,
    streams: Sequence[str] = (),
    salvage: bool = False,
    report: Report = silent,
) -> list[Restored]:
    """Restore the queues, streams and tables that ``source`` has files of, or only the named ones.

    The default ``source`` is the namespace's own directory. ``new_name`` is for one queue.
    With ``salvage``, a damaged one is restored from its intact parts; otherwise it is not
    restored. Files that are not shmq's are reported, and not copied. Raises
    :class:`~shmq.NoSuchQueue` and :class:`~shmq.NoSuchStream` for one without
    files there, :class:`~shmq.InvalidName`, and :class:`~shmq.ShmqError`.
    """
    registry = Namespace.of(namespace)
    own = directory_of(registry)
    given = own if source is None else source.absolute()
    disk = Disk(own) if given == own else ReadOnly(given)  # a copy may be on a medium for reading
    if not disk.directory.is_dir():
        raise ShmqError(f"{disk.directory} is not a directory: there is nothing to restore")
    if new_name is not None:
        check_name(new_name)
    everything = not queues and not streams
    try:
        if everything and given != own and not is_data_directory(disk):
            raise ShmqError(
                f"{disk.directory} is neither a backup nor a data directory: it has no files of "
                f"shmq; name a directory that shmq backup wrote"
            )
        with registry.locked(), _hold_directory(registry, own) as alone:
            # Pending removals of a queue's files must not hit those of the one restored now.
            finish_erasures(Disk(own))
            done: list[Restored] = []
            if disk.directory == own and alone:
                done += _settle_transactions(registry, disk, salvage=salvage)
            if queues or everything:
                done += _restore_queues(
                    registry, disk, own, queues, new_name, salvage=salvage, report=report
                )
            if streams or everything:
                wanted = None if everything else streams
                done += restore_streams(registry, disk, own, wanted, salvage=salvage, report=report)
            if everything and disk.directory != own:
                done += _put_back_others(disk, Disk(own))
                Step(report, "restoring tables")
                done += _restore_tables(registry, disk, Disk(own))
            return done
    except LockTimeout:  # an OSError, too
        raise
    except OSError as error:
        raise ShmqError(f"{error.filename or disk.directory}: {error.strerror or error}") from error


@contextlib.contextmanager
def _hold_directory(registry: Namespace, own: Path) -> Iterator[bool]:
    """Take the namespace's directory for the block; false: a writer has it. Raises ShmqError.

    What is restored into memory then belongs to the files there, and a process that names another
    directory gets an error. Needs the registry lock.
    """
    if registry.roles.writer_pid is not None:
        yield False
        return
    directory = DataDirectory(registry.name, Disk(own))
    directory.ready()
    try:
        finish_move(directory.disk)
        join_memory(registry, directory.disk)
        yield True
    finally:
        directory.close()


def restore_aside(
    namespace: str,
    file: str,
    new_name: str | None = None,
    *,
    salvage: bool = False,
    report: Report = silent,
) -> Restored:
    """Restore what is set aside as ``file`` in the namespace's directory.

    A queue may get a ``new_name``; its files stay aside, like a backup. Anything else is
    restored under its own name. With ``salvage``, damaged files are restored from their intact
    parts; otherwise they are not restored. Raises :class:`~shmq.QueueExists` and
    :class:`~shmq.StreamExists` where that name is in use, :class:`~shmq.InvalidName`, and
    :class:`~shmq.ShmqError`.
    """
    registry = Namespace.of(namespace)
    own = Disk(directory_of(registry))
    try:
        with registry.locked(), _hold_directory(registry, own.directory) as alone:
            finish_erasures(own)
            found = _find_aside(own, file)
            if new_name is not None and found.kind != "queue":
                raise InvalidOption(f"{file} is not a queue: restore it without --as")
            if found.kind == "definitions":
                done = _restore_definitions(registry, own, found, alone=alone)
            else:
                done = _restore_one(registry, own, found, new_name, salvage=salvage, report=report)
    except LockTimeout:  # an OSError, too
        raise
    except OSError as error:
        raise ShmqError(f"{error.filename or own.directory}: {error.strerror or error}") from error
    if done.state == DAMAGED and found.kind != "definitions" and not salvage:
        done.problems.append(
            f"shmq restore --aside {found.file} --salvage takes what is intact, if anything is"
        )
    return done


def _find_aside(own: Disk, file: str) -> FileSetAside:
    for one in files_aside(own.directory):
        if file in one.files:
            if not one.restorable:
                raise ShmqError(
                    f"nothing of {own.path(file)} can be restored: {one.why}; remove it when it "
                    f"is no longer needed"
                )
            return one
    raise ShmqError(
        f"no file set aside in {own.directory} is called {file!r}: shmq doctor lists them"
    )


def _restore_one(
    registry: Namespace,
    own: Disk,
    found: FileSetAside,
    new_name: str | None,
    *,
    salvage: bool,
    report: Report,
) -> Restored:
    before = found.before[found.file]
    if found.kind == "stream":
        return restore_stream_aside(
            registry, own, found.file, before, salvage=salvage, report=report
        )
    name = check_name(new_name or found.name)
    _check_name_is_free(registry, own, name)
    disk = RenamedDisk(own.directory, found.before)
    decision = plan(disk, salvage=salvage, report=report)[found.name]
    held = _count_bytes(decision)
    with Step(report, "restoring queues", held).part(held) as on_progress:
        return _restore(
            registry, disk, own.directory, decision, name, kept=False, on_progress=on_progress
        )


def _check_name_is_free(registry: Namespace, own: Disk, name: str) -> None:
    """Raises QueueExists if there is a queue of that name, or files of one."""
    if registry.has("queue", name) and _is_in_memory(registry, name):
        raise QueueExists(
            f"queue {name!r} exists: restore the files under another name (--as NAME), or delete "
            f"that queue first (shmq delete {name})"
        )
    files = catalog(own.names()).get(name)
    if files is not None and (files.snapshot or files.segments):
        raise QueueExists(
            f"{own.directory} has files of queue {name!r}: restore under another name "
            f"(--as NAME), or restore that queue (shmq restore -q {name})"
        )


def _restore_definitions(
    registry: Namespace, own: Disk, found: FileSetAside, *, alone: bool
) -> Restored:
    """Give the file its own name again, if it is intact; the next writer reads it."""
    aside, before = found.file, found.before[found.file]
    memory = registry.exchanges_path if before == EXCHANGES else registry.schemas_path
    if memory.exists():
        raise ShmqError(
            f"{memory} exists, and a writer would overwrite {before} with it: {aside} can be "
            f"restored only while there is none in memory, after a reboot"
        )
    if not alone:
        raise ShmqError(
            f"process {writer_of(own.directory)} writes in {own.directory}, and would "
            f"overwrite {before}: end it first"
        )
    if before in own.names():
        raise ShmqError(f"{own.path(before)} exists: move it away first")
    try:
        check_definitions(own, aside)
    except FileError as error:
        return Restored("file", aside, DAMAGED, 0, [f"{error}: restore {before} from a backup"])
    own.rename(aside, before)
    own.sync_directory()
    return Restored("file", before, RESTORED)


def _put_back_others(disk: Disk, own: Disk) -> list[Restored]:
    """Copy the files that belong to no queue or stream to ``own``, except those it has.

    A damaged one is not copied, nor is a file that is not shmq's.
    """
    done = []
    for name in others(disk):
        if name == TRANSACTIONS:
            continue
        if own.path(name).exists():
            done.append(Restored("file", name, THERE))
            continue
        try:
            check_definitions(disk, name)
        except (FileError, OSError) as error:
            done.append(Restored("file", name, DAMAGED, 0, [str(error)]))
            continue
        copy_file(disk, own, name)
        own.sync_directory()
        done.append(Restored("file", name, RESTORED))
    return [*done, *(Restored("file", name, FOREIGN) for name in foreign_files(disk))]


def _restore_tables(registry: Namespace, disk: Disk, own: Disk) -> list[Restored]:
    """Copy the tables to ``own``, except those whose names are in use."""
    done = []
    there = {each.name for each in tables_of(registry)}
    for table in tables_in(disk.path(TABLES), "disk", shared_gid(registry.name)):
        if table.name in there:
            done.append(Restored("table", table.name, THERE))
            continue
        own.under(TABLES).make()
        try:
            if not is_regular(table.path):
                raise FileError(f"{table.path} is not a regular file")
            copied(table, new_path(own.path(TABLES), check_name(table.name, "table")))
            done.append(Restored("table", table.name, RESTORED))
        except (FileError, SegmentError, InvalidName) as error:
            done.append(Restored("table", table.name, DAMAGED, 0, [str(error)]))
    return done


def _settle_transactions(registry: Namespace, disk: Disk, *, salvage: bool) -> list[Restored]:
    """Complete noted transactions in the files now: the next writer could not any more."""
    found = []
    if salvage and (problem := salvage_noted(disk)) is not None:
        count = len(read_noted(disk))
        found.append(Restored("transactions", TRANSACTIONS, SALVAGED, count, [problem]))
    complete_transactions(disk, in_memory(registry, live_keys(registry)))
    return found


def _restore_queues(
    registry: Namespace,
    disk: Disk,
    own: Path,
    queues: Sequence[str],
    new_name: str | None,
    *,
    salvage: bool,
    report: Report,
) -> list[Restored]:
    decisions = plan(disk, salvage=salvage, report=report)
    for name in queues:
        if name not in decisions:
            raise NoSuchQueue(f"there are no files of queue {name!r} in {disk.directory}")
    kept = disk.directory == own
    wanted = list(dict.fromkeys(queues) or sorted(decisions))
    held = {name: _count_bytes(decisions[name]) for name in wanted}
    step = Step(report, "restoring queues", sum(held.values()))
    done = []
    for name in wanted:
        with step.part(held[name]) as on_progress:
            one = decisions[name]
            done.append(
                _restore(
                    registry, disk, own, one, new_name or name, kept=kept, on_progress=on_progress
                )
            )
    return done


def _count_bytes(decision: Decision) -> int:
    """The bytes of the messages that the files hold."""
    return decision.chain.bytes if decision.chain is not None else 0


def _restore(
    registry: Namespace,
    disk: Disk,
    own: Path,
    decision: Decision,
    name: str,
    *,
    kept: bool,
    on_progress: OnProgress,
) -> Restored:
    """Restore one queue as ``name``. ``kept``: its files are in the namespace's directory."""
    if registry.has("queue", name) and _is_in_memory(registry, name):
        return Restored("queue", name, THERE)
    if decision.error is not None:
        return Restored("queue", name, DAMAGED, 0, [str(decision.error)])
    if decision.chain is None:
        return Restored("queue", name, DAMAGED, 0, ["none of its files was ever completed"])
    intact = not decision.problems
    logged = intact and name == decision.queue and kept
    if logged:
        disk.sync_directory()
        sync_files(disk, decision.lineage)
        rebuild_queue(registry, name, decision.chain, logged=True, on_progress=on_progress)
    else:
        with _make_way(Disk(own), name):
            rebuild_queue(registry, name, decision.chain, logged=False, on_progress=on_progress)
    state = RESTORED if intact else SALVAGED
    return Restored("queue", name, state, decision.chain.messages, list(decision.problems))


def _is_in_memory(registry: Namespace, name: str) -> bool:
    try:
        registry.open_segment(name)
    except NoSuchQueue:  # a half created one was removed
        return False
    return True


@contextlib.contextmanager
def _make_way(own: Disk, name: str) -> Iterator[None]:
    """Set aside the namespace's files of that name; undo that if the block raises."""
    files = catalog(own.names()).get(name)
    if files is None:
        yield
        return
    keys = {file: hash_key_of(own, file) for file in files.names()}
    aside = set_aside(own, name, keys)
    try:
        yield
    except BaseException:
        for file, there in aside.items():
            own.rename(there, file)
        own.sync_directory()
        raise
