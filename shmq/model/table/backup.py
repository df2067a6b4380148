"""Copies of tables that are in use, and the check of a table's database."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from shmq.disk.storage.disk import Disk
from shmq.errors import DamagedFile
from shmq.model.table.database import connected, remove_files
from shmq.model.table.files import TableFile
from shmq.native.descriptors import open_file

#: The most problems that a check tells.
_MOST: Final = 20


def copied(table: TableFile, target: Path) -> int:
    """Copy the table as it is at one moment to the new file; returns its bytes.

    The file gets its name when it is complete, checked, and on disk. Raises DamagedFile, NoSpace,
    ShmqError and OSError.
    """
    unfinished = target.with_name(f".{target.stem}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    os.close(open_file(unfinished, flags))
    try:
        _copy(table, unfinished)
        size = unfinished.stat().st_size
        unfinished.rename(target)
    except BaseException:
        remove_files(unfinished)
        raise
    Disk(target.parent).sync_directory()
    return size


def _copy(table: TableFile, unfinished: Path) -> None:
    database = table.opened()
    try:
        with database.using() as source, contextlib.closing(connected(unfinished)) as copy:
            source.backup(copy)
            problems = _check(copy)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        database.close()
    if problems:
        raise DamagedFile(str(table.path), 0, f"{problems[0]}; see `shmq fsck`")


def problems_of(table: TableFile) -> list[str]:
    """What is wrong with the table, a sentence each. Raises TableDeleted, LockTimeout."""
    database = table.opened()
    try:
        with database.using() as connection:
            return [f"{table.path}: {line}" for line in _check(connection)]
    finally:
        database.close()


def _check(connection: sqlite3.Connection) -> list[str]:
    """What SQLite's own check finds; it reads the whole file."""
    rows = connection.execute(f"PRAGMA quick_check({_MOST})").fetchall()
    found = [str(row[0]) for row in rows]
    return [] if found == ["ok"] else found
