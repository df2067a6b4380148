# The journal of a queue, as its handles see it: how far it is on disk, and waiting for that.

cdef enum:
    SYNC_SLICE = 50000000       # ns: the most that a writer's death can delay a sleeper


cdef bint _wait_synced(Handle handle, uint64_t seq, int64_t until) except -1:
    cdef int status = SHMQ_TIMED_OUT
    cdef int64_t left = SYNC_SLICE
    while shmq_synced(&handle.q) < seq:
        if until != FOREVER:
            left = min(SYNC_SLICE, until - _real_now())
        if left <= 0 or not handle.open_:
            handle.disk_error = 0
            return False
        with nogil:
            status = shmq_wait_synced(&handle.q, seq, left)
        PyErr_CheckSignals()
        if status == SHMQ_TIMED_OUT:
            handle.await_writer()
        elif status == SHMQ_NO_SPACE:
            handle.disk_error = shmq_journal_error(&handle.q)
            if handle.disk_error:
                return False
        elif status != SHMQ_OK and status != SHMQ_INTERRUPTED:
            return False
    return True


@cython.final
cdef class JournalProgress:
    """How far the journal of a handle's queue is on disk, and waits for it."""

    cdef Handle handle

    def __cinit__(self, Handle handle not None):
        self.handle = handle

    @property
    def synced(self) -> int:
        """Every put up to this sequence number is on disk, or was settled before it got there."""
        return shmq_synced(&self.handle.q)

    @property
    def error(self) -> int:
        """The errno with which a living writer's last attempt to write failed; 0 if none did."""
        return shmq_journal_error(&self.handle.q)

    @property
    def last_error(self) -> int:
        """The errno for which the handle's latest wait ended; 0: it ended for another reason."""
        return self.handle.disk_error

    @property
    def writer(self) -> int:
        """The process number of the queue's persistence writer; 0 if there is none."""
        return self.handle.q.h.journal.writer

    def request_sync(self, uint64_t seq):
        """Ask the writer to write the puts up to ``seq`` without delay. Does not wait."""
        shmq_request_sync(&self.handle.q, seq)

    def wait_synced(self, uint64_t seq, timeout: float | None) -> bool:
        """Wait until all puts up to ``seq`` are on disk; whether that was within ``timeout`` s.

        None waits without limit. The wait also ends if the disk fails, the queue is deleted or
        the handle is closed.
        """
        return _wait_synced(self.handle, seq, _deadline(timeout))
