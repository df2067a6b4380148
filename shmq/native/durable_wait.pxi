# Waiting until puts are on disk.

cdef enum:
    SYNC_SLICE = 50000000       # ns: the most that a writer's death can delay a sleeper


@cython.no_gc_clear
cdef class _Confirmer(_Attachment):
    """The part of a handle that waits for the journal."""

    @property
    def synced_seq(self) -> int:
        """Every put up to this sequence number is on disk, or was settled before it got there."""
        return shmq_synced(&self.q)

    @property
    def journal_error(self) -> int:
        """The errno of the journal's last attempt to write; 0 if it succeeded."""
        return self.q.h.journal.error

    @property
    def journal_writer(self) -> int:
        """The process number of the queue's persistence writer; 0 if there is none."""
        return self.q.h.journal.writer

    @property
    def spent(self) -> int:
        """How many settled messages keep their slots until the journal records their settlement."""
        return self.q.h.spent

    def request_sync(self, uint64_t seq):
        """Ask the writer to write the puts up to ``seq`` without delay. Does not wait."""
        shmq_request_sync(&self.q, seq)

    def wait_synced(self, uint64_t seq, timeout: float | None) -> bool:
        """Wait until all puts up to ``seq`` are on disk; whether that was within ``timeout`` s.

        None waits without limit. The wait also ends if the disk fails, the queue is deleted or
        the handle is closed.
        """
        return self._wait_synced(seq, _deadline(timeout))

    cdef bint _wait_synced(self, uint64_t seq, int64_t until) except -1:
        cdef int status = SHMQ_TIMED_OUT
        cdef int64_t left = SYNC_SLICE
        shmq_request_sync(&self.q, seq)
        while shmq_synced(&self.q) < seq:
            if until != FOREVER:
                left = min(SYNC_SLICE, until - _real_now())
            if left <= 0 or not self.open_:
                return False
            with nogil:
                status = shmq_wait_synced(&self.q, seq, left)
            PyErr_CheckSignals()
            if status == SHMQ_TIMED_OUT:
                self.await_writer()
            if status != SHMQ_OK and status != SHMQ_TIMED_OUT and status != SHMQ_INTERRUPTED:
                return False
        return True

    # Whether a put must be on disk when it returns.
    cdef bint _confirms(self, confirm) except -1:
        if confirm is None:
            return self.confirms
        if not isinstance(confirm, str):
            raise TypeError(f"confirm={confirm!r} must be one of 'memory', 'disk', not "
                            f"{type(confirm).__name__}")
        if confirm == "memory":
            return False
        if confirm != "disk":
            raise _errors.InvalidOption(f"confirm={confirm!r} must be one of 'memory', 'disk'")
        if not self.q.journaled:
            durability = _DURABILITY[self.q.h.options.durability % 3]
            raise _errors.InvalidOption(
                f"confirm='disk': queue {self.name!r} keeps no journal "
                f"(durability={durability!r}): make it with durability='journal', or put with "
                f"confirm='memory'")
        return True

    def confirms_on_disk(self, confirm: str | None) -> bool:
        """Whether a put with this ``confirm`` must be on disk. Raises what ``put`` raises."""
        return self._confirms(confirm)

    # Waits after `taken` messages were put, the last one with number `seq`. Raises NotConfirmed.
    cdef int _confirm(self, uint64_t seq, Py_ssize_t taken, int64_t until) except -1:
        if not self._wait_synced(seq, until):
            raise self._not_confirmed(seq, taken)
        return 0
