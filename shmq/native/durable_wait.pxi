# Waiting until what was put is on disk.

cdef enum:
    SYNC_SLICE = 50000000       # ns: what a writer's death at the wrong moment can cost a sleeper


@cython.no_gc_clear
cdef class _Confirmer(_Attachment):
    """The part of a handle that waits for the journal."""

    @property
    def synced_seq(self) -> int:
        """Every put up to this sequence number is on disk, or was settled before."""
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
        """How many settled messages keep their slots until the journal has that, too."""
        return self.q.h.spent

    def request_sync(self, uint64_t seq):
        """Have the writer not linger with what was put up to ``seq``. Does not wait."""
        shmq_request_sync(&self.q, seq)

    def wait_synced(self, uint64_t seq, timeout: float | None) -> bool:
        """Wait until all up to ``seq`` is on disk: whether it is, within ``timeout`` seconds.

        None waits without limit. It waits no longer for a disk that fails, for a queue that
        was deleted, or through a handle that was closed.
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

    # Whether a put is to be on disk when it returns.
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
        """Whether a put with that ``confirm`` is to be on disk. Raises what ``put`` raises."""
        return self._confirms(confirm)

    # After `taken` messages were put, the last one being `seq`. Raises NotConfirmed.
    cdef int _confirm(self, uint64_t seq, Py_ssize_t taken, int64_t until) except -1:
        if not self._wait_synced(seq, until):
            raise self._not_confirmed(seq, taken)
        return 0
