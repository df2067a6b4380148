"""The file beside a table's database that its writers lock, and by which readers learn of writes.

It has three words of 8 bytes, which every process that uses the table maps:

- **changes**: odd while a writer may change the table, and another even number afterwards. What
  was read while it was an even number is valid as long as it is that number. A writer that is
  killed leaves it odd, until the next writer is done. 0: nothing has been written since the file
  was created, which is not known to be the time of the table's creation.
- **expiry**: no entry of the table expires before that time, on the clock of its deadlines. 0
  once a process has opened the file: after a loss of power the word may be older than the table.
- **deleted**: not 0 once a process has started to delete the table.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Final

from shmq.native import _clock as time
from shmq.native.descriptors import open_file

#: The file's name ends so, after that of the database.
LOCK: Final = ".lock"

_CHANGES, _EXPIRY, _DELETED = range(3)
_WORD: Final = 8
_SIZE: Final = 3 * _WORD
_TRY: Final = fcntl.LOCK_EX | fcntl.LOCK_NB


class LockFile:
    """A table's lock file, open and mapped. It is closed with its last reference."""

    def __init__(self, database: str) -> None:
        """Open or create it. Raises OSError."""
        self.fd = -1
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = open_file(f"{database}{LOCK}", flags, 0o600)
        if os.fstat(self.fd).st_size < _SIZE:
            os.posix_fallocate(self.fd, 0, _SIZE)  # a store to a hole may end the process: SIGBUS
        self._mapping = mmap.mmap(self.fd, _SIZE)
        self._words = memoryview(self._mapping).cast("q")
        self._words[_EXPIRY] = 0

    # ---- the lock ----

    def try_lock(self) -> bool:
        """Lock it, unless another process has. The kernel unlocks it at this process's death."""
        try:
            fcntl.flock(self.fd, _TRY)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Let other writers in."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    # ---- the words ----

    @property
    def is_removed(self) -> bool:
        """Whether the file has no name any more."""
        return not os.fstat(self.fd).st_nlink

    def count_changes(self) -> int:
        """A number that stays the same until the next write; 0: unknown."""
        changes = self._words[_CHANGES]
        if changes & 1 or self._words[_DELETED] or self.is_removed:
            return 0
        return changes

    def start_change(self) -> int:
        """Start to change the table; return what `count_changes` was. Needs the lock."""
        changes = self._words[_CHANGES]
        # A new file starts with a number that the one before it has not had.
        self._words[_CHANGES] = (changes or time.time_ns()) | 1
        return 0 if changes & 1 else changes

    def end_change(self) -> int:
        """End the change, done or undone; return what `count_changes` is. Needs the lock."""
        self._words[_CHANGES] = changes = (self._words[_CHANGES] | 1) + 1
        return changes

    @property
    def expiry(self) -> int:
        """The time before which no entry expires."""
        return self._words[_EXPIRY]

    @expiry.setter
    def expiry(self, deadline: int) -> None:
        self._words[_EXPIRY] = deadline

    # ---- the end ----

    def abandon(self) -> None:
        """Close it in the child of a fork, whose parent goes on with the same open file."""
        self._words.release()
        self._mapping.close()  # which has a descriptor of its own
        self._close()

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self._close()


def mark_deleted(database: str) -> None:
    """Let handles of the table find out that it is being deleted. Raises OSError."""
    try:
        fd = open_file(f"{database}{LOCK}", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        if os.fstat(fd).st_size >= _SIZE:
            os.pwrite(fd, b"\1", _DELETED * _WORD)
    finally:
        os.close(fd)
