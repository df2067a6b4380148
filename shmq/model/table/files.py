"""The files of a namespace's tables: where they are, how they are made, found and removed.

A table is ``NAME.ID.sqlite``, with files of the same name and another ending beside it: SQLite's,
and the lock of its writers. ID is its identity in 16 hexadecimal digits, so no path is used twice.
The directory is ``/dev/shm/tables.shmq@NAMESPACE``, or ``tables`` in the namespace's data
directory; only the user, or the group, may enter it, because SQLite trusts the files beside a
database.

A table is made as ``.NAME.ID.tmp`` and gets its name when it is complete; its name is removed
first. So a process that dies in the meantime leaves the table or none, and files that the next one
removes. All of it happens under the registry lock.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from shmq.api.names import check_name
from shmq.api.table import TableDurability
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import TABLES
from shmq.errors import InvalidOption, NoSpace, NoSuchTable, ShmqError
from shmq.host.namespace.data_directory import adopt_directory, directory_of, shared_disk
from shmq.host.namespace.folder import shared_gid
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import as_foreign, as_no_file, new_identity
from shmq.model.table.database import AUXILIARY, Database, check_private, initialize, remove_files
from shmq.native.descriptors import open_file
from shmq.native.directories import make_directory

_SUFFIX: Final = ".sqlite"
_TABLE: Final = re.compile(
    rf"(?P<name>[^@/]+)\.(?P<identity>[0-9a-f]{{16}}){re.escape(_SUFFIX)}", re.ASCII
)
_BESIDE: Final = re.compile(rf"(?P<table>.+{re.escape(_SUFFIX)})({'|'.join(AUXILIARY)})", re.ASCII)
_UNFINISHED: Final = re.compile(rf"\..+\.[0-9a-f]{{16}}\.tmp({'|'.join(AUXILIARY)})?", re.ASCII)


class TableFile(NamedTuple):
    """A table's file."""

    name: str
    durability: TableDurability
    path: Path

    @property
    def identity(self) -> int:
        """The number that no other table has."""
        found = _TABLE.fullmatch(self.path.name)
        assert found is not None
        return int(found["identity"], 16)

    def opened(self) -> Database:
        """Its database, which is opened when it is used."""
        return Database(self.name, self.path, self.durability)


# ---- finding ----


def disk_directory(namespace: Namespace) -> Path | None:
    """The directory of the tables on disk, which need not exist; None: this user has none.

    Raises :class:`~shmq.WrongDirectory`.
    """
    try:
        return directory_of(namespace) / TABLES
    except InvalidOption:
        return None


def tables_in(
    directory: Path | None, durability: TableDurability, gid: int | None = None
) -> list[TableFile]:
    """The tables of a directory, sorted by name; none if it does not exist.

    ``gid`` is the group whose users share it. Raises ForeignSegment if others may enter it.
    """
    if directory is None:
        return []
    try:
        check_private(directory, gid, directory=True)
        entries = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise as_foreign(error, directory) from error
    found = (_TABLE.fullmatch(entry) for entry in entries)
    return [TableFile(each["name"], durability, directory / each[0]) for each in found if each]


def tables_of(namespace: Namespace) -> list[TableFile]:
    """The tables of the namespace, sorted by name. Raises ForeignSegment."""
    gid = shared_gid(namespace.name)
    found = tables_in(namespace.tables_path, "memory", gid)
    return sorted([*found, *tables_in(disk_directory(namespace), "disk", gid)])


def find(namespace: Namespace, name: str) -> TableFile:
    """The table of that name. Raises InvalidName, NoSuchTable, ForeignSegment."""
    found = _find(namespace, check_name(name, "table"))
    if found is None:
        raise NoSuchTable.of(name, f"in namespace {namespace.name!r}")
    return found


def _find(namespace: Namespace, name: str) -> TableFile | None:
    return next((each for each in tables_of(namespace) if each.name == name), None)


# ---- making and removing ----


def new_path(directory: Path, name: str) -> Path:
    """A path for a new table of that name, which no other has had."""
    return directory / f"{name}.{new_identity():016x}{_SUFFIX}"


def make(
    namespace: Namespace, name: str, durability: TableDurability, max_bytes: int | None
) -> TableFile:
    """Make the table, unless there is one of that name. Raises NoSpace and what `find` raises."""
    check_name(name, "table")
    with namespace.locked():
        found = _find(namespace, name)
        if found is not None:
            return found
        directory = _make_directory(namespace, durability)
        _clear(directory)
        path = new_path(directory, name)
        try:
            _make_file(path, name, durability, max_bytes)
        except OSError as error:
            raise as_no_file(error, path) from error
        except sqlite3.Error as error:
            raise _make_unmade_error(error, path) from error
        finally:
            _drop_if_empty(namespace)
        return TableFile(name, durability, path)


def _make_directory(namespace: Namespace, durability: TableDurability) -> Path:
    """The directory, which is made if it does not exist. Raises ShmqError."""
    if durability == "memory":
        try:
            make_directory(namespace.tables_path, shared_gid(namespace.name))
        except OSError as error:
            raise as_no_file(error, namespace.tables_path) from error
        check_private(namespace.tables_path, shared_gid(namespace.name), directory=True)
        return namespace.tables_path
    disk = shared_disk(namespace.name, adopt_directory(namespace))
    try:
        disk.make()
        disk.under(TABLES).make()
    except OSError as error:
        raise ShmqError(
            f"data_dir={str(disk.directory)!r} cannot be used for tables: {error.strerror or error}"
        ) from error
    return disk.directory / TABLES


def _make_file(path: Path, name: str, durability: TableDurability, max_bytes: int | None) -> None:
    unfinished = path.with_name(f".{path.stem}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    os.close(open_file(unfinished, flags))
    try:
        initialize(unfinished, name, durability, max_bytes)
        unfinished.rename(path)
    except BaseException:
        remove_files(unfinished)
        raise
    if durability == "disk":
        Disk(path.parent).sync_directory()


def _make_unmade_error(error: sqlite3.Error, path: Path) -> ShmqError:
    space = os.statvfs(path.parent)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
        return NoSpace(
            f"there is not enough space for {path}: {space.f_bavail * space.f_frsize} bytes are "
            f"available; "
            f"delete what is not needed, or give it more room"
        )
    return ShmqError(f"{path} cannot be made: {error}")


def remove(namespace: Namespace, name: str) -> None:
    """Remove the table, in any state. Raises NoSuchTable, ForeignSegment."""
    with namespace.locked():
        table = find(namespace, name)
        try:
            remove_files(table.path)
            _clear(table.path.parent)
            if table.durability == "disk":
                Disk(table.path.parent).sync_directory()
        except OSError as error:
            raise ShmqError(f"table {name!r} cannot be removed: {error}") from error
        _drop_if_empty(namespace)


def tidy(namespace: Namespace) -> None:
    """Remove what dead processes have left in shared memory, and the directory if it is empty."""
    with namespace.locked(), contextlib.suppress(OSError):
        check_private(namespace.tables_path, shared_gid(namespace.name), directory=True)
        _clear(namespace.tables_path)
        _drop_if_empty(namespace)


def _drop_if_empty(namespace: Namespace) -> None:
    """Remove the directory in shared memory if it is empty."""
    with contextlib.suppress(OSError):
        namespace.tables_path.rmdir()


# ---- leftovers ----


def leftovers(directory: Path | None) -> Iterator[Path]:
    """The files that processes which died have left. Needs the registry lock."""
    try:
        entries = set(os.listdir(directory)) if directory is not None else set()
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in sorted(entries):
        beside = _BESIDE.fullmatch(entry)
        alone = beside is not None and beside["table"] not in entries
        if directory is not None and (alone or _UNFINISHED.fullmatch(entry)):
            yield directory / entry


def _clear(directory: Path) -> None:
    for path in list(leftovers(directory)):
        path.unlink(missing_ok=True)
