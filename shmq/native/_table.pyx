# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: annotation_typing=False, embedsignature=False
"""The lock of a table's writers, and the count of its changes: see model/table/lock_file.py."""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

from system cimport LOCK_EX, LOCK_NB, LOCK_UN, flock

import os as _os

from shmq.native import _clock as _time


cdef extern from * nogil:
    enum:
        __ATOMIC_ACQUIRE
        __ATOMIC_RELEASE
        __ATOMIC_SEQ_CST
    void __atomic_thread_fence(int order)
    int64_t __atomic_load_n(int64_t *word, int order)
    void __atomic_store_n(int64_t *word, int64_t value, int order)


cdef enum:
    CHANGES = 0
    EXPIRY = 1
    DELETED = 2
    WORDS = 3
    WORD = 8

#: The bytes of the file, and the place of the word that is not 0 once the table is being deleted.
SIZE = WORDS * WORD
DELETED_AT = DELETED * WORD


cdef class TableLock:
    """A table's lock file, mapped. It is closed with its last reference."""

    cdef readonly int fd
    cdef int64_t *_words

    def __cinit__(self, int fd):
        """Map the file ``fd`` of at least `SIZE` bytes, which becomes its own. Raises OSError."""
        self.fd = fd
        cdef void *base = mmap(NULL, WORDS * WORD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if base == MAP_FAILED:
            raise OSError(errno, _os.strerror(errno))
        self._words = <int64_t *>base

    def __dealloc__(self):
        self._close()

    cdef void _close(self) noexcept:
        if self._words != NULL:
            munmap(self._words, WORDS * WORD)
        if self.fd >= 0:
            close(self.fd)
        self._words = NULL
        self.fd = -1

    def abandon(self) -> None:
        """Close it in the child of a fork, whose parent goes on with the same open file."""
        self._close()

    # ---- the lock ----

    def try_lock(self) -> bool:
        """Lock the file, unless another process has it locked; return whether it is locked.

        The kernel unlocks it at this process's death. Raises OSError.
        """
        if flock(self.fd, LOCK_EX | LOCK_NB) == 0:
            return True
        if errno == EAGAIN:
            return False
        raise OSError(errno, _os.strerror(errno))

    def unlock(self) -> None:
        """Let other writers in."""
        flock(self.fd, LOCK_UN)

    # ---- the words ----

    cdef int _is_removed(self) noexcept:
        cdef struct_stat status
        # Of a file that was cut off the words cannot be read: SIGBUS.
        return (fstat(self.fd, &status) != 0 or status.st_nlink == 0
                or status.st_size < WORDS * WORD)

    cdef int64_t _load(self, int word) noexcept:
        return 0 if self._words == NULL else __atomic_load_n(&self._words[word], __ATOMIC_ACQUIRE)

    cdef void _store(self, int word, int64_t value) noexcept:
        if self._words != NULL:
            __atomic_store_n(&self._words[word], value, __ATOMIC_RELEASE)

    def is_removed(self) -> bool:
        """Whether the file has no name any more, or was cut off."""
        return self._is_removed() != 0

    def is_doubtful(self) -> bool:
        """Whether the table may have been deleted."""
        return self._is_removed() != 0 or self._load(DELETED) != 0

    def count_changes(self) -> int:
        """A number that stays the same until the next write by any process; 0: unknown."""
        cdef int64_t changes = 0 if self._is_removed() else self._load(CHANGES)
        return 0 if changes & 1 or self._load(DELETED) else changes

    def start_change(self) -> int:
        """Start to change the table; return what `count_changes` was. Needs the lock."""
        cdef int64_t changes = self._load(CHANGES)
        # A new file starts with a number that the one before it has not had.
        self._store(CHANGES, (changes if changes else <int64_t>_time.time_ns()) | 1)
        __atomic_thread_fence(__ATOMIC_SEQ_CST)  # before anything that the change stores
        return 0 if changes & 1 else changes

    def end_change(self) -> int:
        """End the change, done or undone; return what `count_changes` is. Needs the lock."""
        cdef int64_t changes = (self._load(CHANGES) | 1) + 1
        self._store(CHANGES, changes)
        return changes

    @property
    def expiry(self) -> int:
        """The time before which no entry expires."""
        return self._load(EXPIRY)

    @expiry.setter
    def expiry(self, int64_t deadline):
        self._store(EXPIRY, deadline)
