"""The file beside a table's database that its writers lock, and by which readers learn of writes.

It has three words of 8 bytes, which every process that uses the table maps, see `TableLock`:

- **changes**: odd while a writer may change the table, and another even number afterwards. What
  was read while it was an even number is valid as long as it is that number. A writer that is
  killed leaves it odd until the next write is done. 0: nothing has been written since the file was
  created, which need not be the time of the table's creation.
- **expiry**: no entry of the table expires before that time, on the clock of its deadlines. 0
  once a process has opened the file: after a loss of power the word may be older than the table.
- **deleted**: not 0 once a process has started to delete the table.
"""

from __future__ import annotations

import os
from typing import Final

from shmq.native._table import DELETED_AT, SIZE, TableLock
from shmq.native.descriptors import open_file

#: The file's name ends so, after that of the database.
LOCK: Final = ".lock"


def open_lock_file(database: str) -> TableLock:
    """Open the lock file of the database, which is created if it does not exist. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = open_file(f"{database}{LOCK}", flags)
    try:
        if os.fstat(fd).st_size < SIZE:
            os.posix_fallocate(fd, 0, SIZE)  # a store to a hole may end the process: SIGBUS
    except OSError:
        os.close(fd)
        raise
    lock = TableLock(fd)
    lock.expiry = 0
    return lock


def mark_deleted(database: str) -> None:
    """Let the handles of a table find out that it is being deleted. Raises OSError."""
    try:
        fd = open_file(f"{database}{LOCK}", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        if os.fstat(fd).st_size >= SIZE:
            os.pwrite(fd, b"\1", DELETED_AT)
    finally:
        os.close(fd)
