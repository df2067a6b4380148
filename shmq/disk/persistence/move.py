"""Moving a namespace's files from its former data directory to another one.

The files are linked, or copied to another filesystem, while no writer runs. The move is complete
once the former directory's history says where they are: until then the former directory counts,
and afterwards the new one, whatever dies. The new directory must not hold files.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmq.disk.persistence.stream_restore import copy_file
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_lock import lock_file
from shmq.disk.storage.history import HISTORY, History, read_history, write_history
from shmq.disk.storage.inventory import LOCK, OWN
from shmq.disk.storage.paths import TABLES
from shmq.errors import ShmqError
from shmq.host.namespace.data_directory import is_moved, remember
from shmq.host.namespace.folder import shared_gid
from shmq.host.namespace.namespace import Namespace
from shmq.model.table.files import tables_in

log = logging.getLogger("shmq")

#: Why a file cannot be linked, and must be copied.
_NO_LINK: Final = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


def move_files(registry: Namespace, former: Path, disk: Disk) -> None:
    """Move the namespace's files from ``former`` to the directory of ``disk``.

    Needs the registry lock, and the new directory. May be killed at any moment; then `finish_move`
    completes it, or this is called again. Raises OSError, and ShmqError if the new directory holds
    files, if a writer still has the former one, or if other processes may use its tables.
    """
    here, there = former.resolve(), disk.directory.resolve()
    if here in there.parents or there in here.parents:
        raise ShmqError(
            f"the files of namespace {registry.name!r} are in {former}, and {disk.directory} "
            f"must neither contain it nor be in it: name another directory"
        )
    with _exclude_writers(former):
        if (
            tables_in(former / TABLES, "disk", shared_gid(registry.name))
            and registry.processes.is_shared()
        ):
            raise ShmqError(
                f"the tables in {former} may be in use, so the files cannot be moved to "
                f"{disk.directory}: end the other processes of namespace {registry.name!r} first"
            )
        source = Disk(former)
        if read_history(disk).moving_from == former:
            _remove_files(disk)  # those of a move that was cut off
        elif found := _list_files(disk.directory):
            raise ShmqError(
                f"namespace {registry.name!r} keeps its durable data in {former}, and "
                f"{disk.directory} holds files already ({found[0]}): `shmq restore "
                f"{disk.directory}` takes what they hold into the namespace; to move its data, "
                f"name an empty directory"
            )
        write_history(disk, History(moving_from=former))
        log.info("the files of namespace %r are moved from %s", registry.name, former)
        for name in _list_files(former):
            _move_file(source, disk, name)
        before = read_history(source)
        write_history(disk, before._replace(moving_from=former, moved_to=None))
        write_history(source, before._replace(moved_to=disk.directory.absolute()))
        registry.roles.note_data_dir(disk.directory)
        remember(registry.name, disk.directory)
        _finish(disk, source)


def finish_move(disk: Disk) -> None:
    """Complete a move to the directory that died after its files were there.

    Needs the directory. Raises ShmqError if the files are still in the former directory, and
    OSError.
    """
    former = read_history(disk).moving_from
    if former is None:
        return
    if not is_moved(former, disk.directory):
        raise ShmqError(
            f"the files in {disk.directory} are an incomplete copy of those in {former}: start "
            f"the writer there, or, if that directory is lost, remove "
            f"{disk.path(HISTORY)} while nothing of the namespace is in memory to continue with "
            f"the copy"
        )
    with _exclude_writers(former):
        _finish(disk, Disk(former))


def _finish(disk: Disk, source: Disk) -> None:
    _remove_files(source)
    write_history(disk, read_history(disk)._replace(moving_from=None))


@contextlib.contextmanager
def _exclude_writers(former: Path) -> Iterator[None]:
    """Keep writers out of the former directory during the block. Raises ShmqError."""
    try:
        lock = lock_file(former / LOCK)
    except BlockingIOError:
        raise ShmqError(
            f"another process writes in {former}, so its files cannot be moved: end it first "
            f"(fuser {former / LOCK} finds it)"
        ) from None
    try:
        yield
    finally:
        os.close(lock)


def _list_files(directory: Path) -> list[str]:
    """The files there, at any depth, but for the writer's own and unfinished ones."""
    found = []
    for below, directories, files in os.walk(directory, followlinks=True):
        directories[:] = [name for name in directories if not name.startswith(".")]
        found += [
            str(Path(below, name).relative_to(directory))
            for name in files
            if name not in OWN and not name.startswith(".") and not name.endswith(".sock")
        ]
    return sorted(found)


def _move_file(source: Disk, disk: Disk, name: str) -> None:
    """Link or copy one file durably. Raises OSError."""
    parent = Path(name).parent
    below, there = source.under(str(parent)), disk.under(str(parent))
    there.make()
    file = Path(name).name
    try:
        os.link(below.path(file), there.path(file), follow_symlinks=True)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        copy_file(below, there, file)
    there.sync_directory()


def _remove_files(disk: Disk) -> None:
    """Remove the files that a move takes, and the directories that are empty then."""
    for name in _list_files(disk.directory):
        disk.unlink(name)
    below = (path for path in disk.directory.rglob("*") if path.is_dir())
    for path in sorted(below, reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir()
    disk.sync_directory()
