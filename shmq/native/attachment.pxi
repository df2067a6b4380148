# One attachment of one process to one queue: locking, waiting and maintenance.

@cython.no_gc_clear
cdef class _Attachment:
    """The base of all queue operations. `Handle` is the complete class."""

    cdef shmq_queue q
    cdef readonly Segment segment
    cdef readonly str name
    cdef bytes bells               # what q.wakeup_prefix points to
    cdef sem_t *semaphores[2]
    cdef uint64_t generation
    cdef uint64_t number           # this process's number in the namespace
    cdef Spin spins[2]             # one for each event
    cdef int64_t looked_at         # when this handle last looked for dead processes
    cdef uint32_t views            # pins that this handle's process holds
    cdef uint32_t awake[2]         # by event: awake, but still counted as asleep
    cdef bint open_
    cdef bint tending
    cdef bint blocks               # overflow="block"
    cdef bint drops                # overflow="drop-oldest" with a journal, told of drops first
    cdef bint confirms             # confirm="disk"

    def __cinit__(self, *args, **kwargs):
        self.semaphores[0] = self.semaphores[1] = NULL
        self.open_ = False
        self.views = 0
        self.awake[0] = self.awake[1] = 0
        self.q.attachment = SHMQ_NIL

    def __init__(self, str name, Segment segment, not_empty: str, not_full: str, bells: str):
        """Bind the handle; ``not_empty`` and ``not_full`` name existing semaphores.

        ``bells`` is the prefix of the names of the namespace's wakeup semaphores.
        """
        self.name = name
        self.segment = segment
        shmq_bind(&self.q, segment.base, segment.fd, &segment.geo)
        self.bells = bells.encode()
        self.q.wakeup_prefix = PyBytes_AS_STRING(self.bells)
        self.confirms = self.q.h.options.confirm == 1
        self.blocks = self.q.h.options.overflow == SHMQ_BLOCK
        self.drops = self.q.h.options.overflow == SHMQ_DROP_OLDEST and self.q.journaled
        for bell in range(2):
            _spin_init(&self.spins[bell], LEAST_SPIN)
        for bell, path in enumerate((not_empty, not_full)):
            raw = path.encode()
            self.semaphores[bell] = sem_open(raw, 0)
            if self.semaphores[bell] == SEM_FAILED:
                self.semaphores[bell] = NULL
                raise self._no_semaphore(path, errno)
        self.open_ = True
        self._attach()

    def __dealloc__(self):
        if self.open_ and self.generation == fork_generation:
            with nogil:
                self._leave()
        for bell in range(2):
            if self.semaphores[bell] != NULL:
                sem_close(self.semaphores[bell])

    cdef object _no_semaphore(self, path, int error):
        if error == ENOENT and self.segment.deleted:
            return _errors.NoSuchQueue(f"queue {self.name!r} is being deleted")
        if error == ENOENT:
            return _errors.DamagedSegment(
                f"queue {self.name!r} has lost its semaphore {path}: it was half removed; delete "
                f"it and make it anew"
            )
        return _errors.no_descriptor(OSError(
            error, f"queue {self.name!r}: cannot open its semaphore: {_os.strerror(error)}", path))

    # ---- overridden by the layer above ----

    def _process_number(self) -> int:
        """This process's number in the namespace; > 0."""
        raise NotImplementedError

    def _look_for_dead(self):
        """Reclaim what dead processes hold."""
        raise NotImplementedError

    def await_writer(self):
        """Start a persistence writer if none is running. Does not wait for it."""
        raise NotImplementedError

    def _why_unwritten(self, spent: int) -> str:
        """Why ``spent`` settled messages keep their slots, as text for an error."""
        raise NotImplementedError

    def _move_dying(self, limit: int = 256):
        """Move up to ``limit`` dying messages to the dead-letter queue."""
        raise NotImplementedError

    def _wait_filtered(self, attempt: Callable[[], Any], block: bool,
                       timeout: float | None) -> Any:
        """Return what ``attempt()`` returns once that is true, or its last result at the timeout.

        ``attempt`` is called again whenever a message has arrived.
        """
        raise NotImplementedError

    def _not_confirmed(self, sequence: int, taken: int) -> Exception:
        """The error for a put that is not known to be on disk."""
        raise NotImplementedError

    # ---- the lock ----

    cdef object _error(self, int status):
        if status == SHMQ_DELETED:
            return _errors.QueueDeleted(f"queue {self.name!r} was deleted")
        if status == SHMQ_DAMAGED:
            return _errors.DamagedSegment(
                f"the segment of queue {self.name!r} is damaged: its slots contradict each "
                f"other; delete the queue"
            )
        if status == SHMQ_NO_SPACE:
            return _no_space(self.segment.fd, self.q.refused_bytes)
        if status == SHMQ_CROWDED:
            return _errors.ShmqError(
                f"queue {self.name!r} has as many handles attached as it can; close some"
            )
        return _errors.ShmqError(f"queue {self.name!r}: status {status}")

    cdef object _full(self):
        o = &self.q.h.options
        spent = self.q.h.spent
        advice = self._why_unwritten(spent) if spent else (
            "consume, wait (block=True), or make it larger")
        return _errors.Full(
            f"queue {self.name!r} is full: {self.q.h.live} of {o.capacity} messages, "
            f"{(self.q.h.units_used - self.q.h.units_cached) * SHMQ_UNIT} of "
            f"{o.arena_bytes} bytes; {advice}"
        )

    cdef object _too_large(self, size, uint32_t meta):
        return _errors.MessageTooLarge(
            f"a body of {size} bytes with {meta} bytes of properties can never fit into queue "
            f"{self.name!r}: max_message_bytes={self.q.h.options.max_message_bytes}, "
            f"arena_bytes={self.q.h.options.arena_bytes}"
        )

    # For an operation without a timeout.
    cdef inline int _lock(self) except -1:
        return self._lock_by(AT_ONCE)

    cdef inline int _lock_by(self, int64_t until) except -1:
        cdef int status
        if not self.open_ or self.generation != fork_generation:
            self._reopen()
        status = shmq_lock(&self.q)
        if status != SHMQ_OK:
            self._lock_slowly(status, until)
        return 0

    # Locks only the get side: for leases and settlements.
    cdef inline int _lock_gets(self) except -1:
        cdef int status
        if not self.open_ or self.generation != fork_generation:
            self._reopen()
        status = shmq_lock_gets(&self.q)
        if status != SHMQ_OK:
            self._lock_slowly(status, AT_ONCE)
        return 0

    # For an operation with a timeout: locks the whole queue, or only the get side. `until`: see
    # _end_of.
    cdef inline int _lock_until(self, bint whole, int bell, block, timeout,
                                int64_t *until) except -1:
        cdef int status
        if not self.open_ or self.generation != fork_generation:
            self._reopen()
        status = shmq_lock(&self.q) if whole else shmq_lock_gets(&self.q)
        if status != SHMQ_OK:
            self._lock_slowly(status, self._end_of(bell, block, timeout, until))
        return 0

    # Waits without the GIL until the lock is free, then tries to take it with the GIL: the holder
    # of the lock must never wait for the GIL, which could take long. If other processes are
    # quicker each time, this thread finally keeps the lock; if no other thread can hold the GIL, it
    # keeps it at once. Raises LockTimeout at the operation's deadline, see
    # shmq/core/base/robust_mutex.h.
    cdef int _lock_slowly(self, int status, int64_t until) except -1:
        cdef int64_t waited = 0, slice_
        cdef int tries = 0, patience
        while status == SHMQ_BUSY:
            slice_ = shmq_patience(waited, until, shmq_lock_holder(&self.q))
            if not slice_:
                raise self._locked_out(waited)
            tries += 1
            patience = PATIENCE if _has_threads() else 0
            with nogil:
                status = shmq_lock_slowly(&self.q, slice_)
                if status == SHMQ_BUSY:
                    waited += slice_
                elif status == SHMQ_OK and tries < patience:
                    self._unlock()
                    status = SHMQ_BUSY
            if status == SHMQ_BUSY:
                PyErr_CheckSignals()
                status = shmq_lock(&self.q)
        if status != SHMQ_OK:
            raise self._error(status)
        if not self.open_:  # another thread has closed it meanwhile
            self._unlock()
            raise self._closed_error()
        return 0

    cdef object _locked_out(self, int64_t waited):
        return _holders.lock_timeout(f"queue {self.name!r}", shmq_lock_holder(&self.q),
                                     waited / 1e9)

    cdef object _closed_error(self):
        return _errors.ShmqError(f"this handle of queue {self.name!r} is closed")

    cdef inline void _unlock(self) noexcept nogil:
        cdef uint32_t post[2]
        shmq_unlock(&self.q, post)
        if post[0] or post[1]:
            shmq_post(self.semaphores, post)
        if shmq_must_wake(&self.q):
            shmq_wake_parties(&self.q)

    cdef int _reopen(self) except -1:
        if not self.open_:
            raise self._closed_error()
        self.q.attachment = SHMQ_NIL
        self.views = self.awake[0] = self.awake[1] = 0
        self._attach()
        return 0

    cdef int _attach(self) except -1:
        cdef int status
        cdef bytes comm = _process_name()
        self.number = self._process_number()
        self.generation = fork_generation
        self._lock()
        status = shmq_attach(&self.q, self.number, _os.getpid(), comm)
        self._unlock()
        if status != SHMQ_OK:
            self.open_ = False
            raise self._error(status)
        return 0

    # Does the pending maintenance after an operation, once the lock is free again. This must not
    # fail an operation that succeeded: what cannot be locked now is left for later.
    cdef inline int _after(self) except -1:
        if self.q.look_for_dead or self.q.h.dying.head != SHMQ_NIL:
            self._tend()
        return 0

    cdef int _tend(self) except -1:
        if self.tending:
            return 0
        self.tending = True
        try:
            if self.q.look_for_dead:
                self.q.look_for_dead = False
                self.looked_at = _real_now()
                self._look_for_dead()
            if self.q.h.dying.head != SHMQ_NIL:
                self._move_dying()
        except _errors.LockTimeout:
            pass
        finally:
            self.tending = False
        return 0

    def tend(self):
        """Do the maintenance that is due: timers, dead processes, dying messages."""
        self._tick()

    # Does all maintenance that is due, however much it is.
    cdef int _tick(self) except -1:
        cdef int64_t now
        cdef bint more = True, damaged = False
        self.q.look_for_dead = True
        self._tend()
        while more:
            self._lock()
            now = shmq_now()
            shmq_tick(&self.q, now)
            more = shmq_next_due(&self.q) <= now
            damaged = self.q.damaged
            self._unlock()
            if damaged:
                raise self._error(SHMQ_DAMAGED)
            PyErr_CheckSignals()
        if self.q.h.dying.head != SHMQ_NIL and not self.tending:
            self.tending = True
            try:
                self._move_dying(1 << 31)
            except _errors.LockTimeout:
                pass
            finally:
                self.tending = False
        return 0

    # ---- detaching ----

    # Takes the lock to release something, even that of a deleted queue. Returns whether it was
    # taken; if not, what is left is reclaimed with the handle or the process.
    cdef bint _lock_to_end(self) noexcept nogil:
        cdef int64_t waited = 0, slice_
        cdef int status = SHMQ_BUSY
        if self.q.attachment == SHMQ_NIL:
            return False
        while status == SHMQ_BUSY:
            slice_ = shmq_patience(waited, AT_ONCE, shmq_lock_holder(&self.q))
            if not slice_:
                return False
            status = shmq_lock_even_deleted(&self.q, slice_)
            waited += slice_
        return status == SHMQ_OK

    # The caller holds the lock.
    cdef void _detach(self) noexcept nogil:
        shmq_reclaim(&self.q, self.q.attachment, self.number, shmq_now())
        self.q.attachment = SHMQ_NIL

    cdef void _leave(self) noexcept nogil:
        if not self._lock_to_end():
            return
        if self.views:
            shmq_retire(&self.q, shmq_now())
        else:
            self._detach()
        self._unlock()

    def close(self):
        """Detach: messages leased through the handle return at once. May be called again.

        Views stay valid; their bytes are released as the views are.
        """
        if not self.open_:
            return
        self.open_ = False
        if self.generation == fork_generation:
            with nogil:
                self._leave()

    def leave(self):
        """Do what `close` does, but raise LockTimeout and change nothing if the lock is held."""
        cdef int status = SHMQ_OK
        if self.open_ and self.generation == fork_generation:
            with nogil:
                status = shmq_lock_even_deleted(&self.q, LEAVE_WITHIN)
                if status == SHMQ_OK:
                    self._unlock()
        if status == SHMQ_BUSY:
            raise self._locked_out(LEAVE_WITHIN)
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the handle was closed."""
        return not self.open_

    cdef void _unpin(self, uint32_t at, uint64_t generation) noexcept:
        if generation != fork_generation or self.generation != fork_generation:
            return  # the pin belongs to the parent
        with nogil:
            if self._lock_to_end():
                shmq_unpin(&self.q, at)
                self.views -= 1
                if not self.views and not self.open_:
                    self._detach()
                self._unlock()

    # ---- waiting ----

    cdef bint _blocks(self, block, timeout) except -1:
        if block is None:
            return self.blocks or timeout is not None
        return bool(block)

    # The deadline of an operation's waits: monotonic ns, FOREVER or AT_ONCE. An UNKNOWN `until` is
    # computed from the timeout now, so an operation that succeeds at once never reads the clock.
    cdef int64_t _end_of(self, int bell, block, timeout, int64_t *until) except -1:
        if until[0] == UNKNOWN:
            if self._blocks(block, timeout) if bell == SHMQ_NOT_FULL else block:
                until[0] = _deadline(timeout)
            else:
                until[0] = AT_ONCE
        return until[0]

    # Whether to try again after SHMQ_FULL or SHMQ_EMPTY. Even without blocking there is one more
    # try, after a look for dead processes.
    cdef bint _may_wait(self, int bell, block, timeout, int64_t *until, int *round_) except -1:
        cdef int64_t end = self._end_of(bell, block, timeout, until)
        if end == AT_ONCE and round_[0] == 0:
            # A dropped message frees its slot once the journal, if it has a writer, has the drop.
            if bell == SHMQ_NOT_FULL and block is None and self.drops and self.q.h.spent:
                end = until[0] = _real_now() + ROOM_SOON
            else:
                self.q.look_for_dead = True
                self._tend()
                round_[0] = 2
                return True
        return self._wait(bell, end, round_)

    # Waits after an operation that found nothing; returns whether to try again. It spins first, as
    # long as that pays, then sleeps; before a sleep the failed operation must have counted this
    # handle as a sleeper with shmq_fall_asleep. It looks for dead processes before the sleep,
    # unless it just has, then during it, and once more before it gives up at the deadline.
    cdef bint _wait(self, int bell, int64_t until, int *round_) except -1:
        cdef bint posted
        if round_[0] == 2:
            return False
        if round_[0] <= 0:
            if round_[0] > -MOST_SPINS and self._spin(bell):
                round_[0] -= 1
                if until == FOREVER or _real_now() < until:
                    return True
            round_[0] = 1
            if _real_now() - self.looked_at > WAIT_SLICE:
                self.q.look_for_dead = True
                self._tend()
            return True
        posted = self._sleep(bell, until)
        try:
            PyErr_CheckSignals()
            if self.q.look_for_dead or self.q.h.dying.head != SHMQ_NIL:
                self._tend()
        except:
            if posted:
                self._pass_on(bell)
            raise
        if not posted and until != FOREVER and _real_now() >= until:
            round_[0] = 2
            self.q.look_for_dead = True
            self._tend()
        return True

    # Spins; whether the awaited change seems to have come.
    cdef bint _spin(self, int bell) noexcept:
        cdef int64_t took, ns = _spin_time(&self.spins[bell])
        if not ns:
            return False
        with nogil:
            took = shmq_spin(&self.q, bell, ns)
        _spin_learn(&self.spins[bell], ns, took)
        return took >= 0

    # Wakes sleepers that should be awake, after a put that is done: so it neither raises nor looks
    # at signals. If the lock is not to be had, a sleeper sleeps up to one slice longer.
    cdef void _rouse(self) noexcept:
        if shmq_lock(&self.q) == SHMQ_OK:
            self._unlock()
            return
        with nogil:
            if self._lock_to_end():
                self._unlock()

    cdef void _pass_on(self, int bell) noexcept nogil:
        if self._lock_to_end():
            shmq_pass_on(&self.q, bell)
            self._unlock()

    # Sleeps; whether it was woken. A woken caller tries again even past its deadline, because the
    # wakeup was for it alone.
    cdef bint _sleep(self, int bell, int64_t until) except -1:
        cdef int status, lock_status
        cdef int64_t waited = 0, due = self.q.h.next_tick - shmq_now()
        cdef int64_t slice_ = min(WAIT_SLICE, until - _real_now() if until != FOREVER else FOREVER)
        cdef uint32_t sleepers = self.awake[bell] + 1
        if due < slice_ and not shmq_clock_set:
            slice_ = max(due, 0)
        self.awake[bell] = 0
        with nogil:
            status = shmq_sleep(self.semaphores[bell], slice_)
            slice_ = shmq_patience(0, until, 0)
            lock_status = self._count_out(bell, status == SHMQ_OK, sleepers, slice_)
        if lock_status != SHMQ_OK:
            self.awake[bell] += sleepers
            while lock_status == SHMQ_BUSY:
                PyErr_CheckSignals()
                waited += slice_
                slice_ = shmq_patience(waited, until, shmq_lock_holder(&self.q))
                if not slice_:
                    raise self._locked_out(waited)
                with nogil:
                    lock_status = self._count_out(bell, status == SHMQ_OK, sleepers, slice_)
            if lock_status != SHMQ_OK:
                raise self._error(lock_status)
            self.awake[bell] -= sleepers
        return status == SHMQ_OK

    # Takes the lock within `ns`, and subtracts those from the count who no longer sleep.
    cdef int _count_out(self, int bell, bint posted, uint32_t sleepers, int64_t ns) noexcept nogil:
        cdef int left = 0, status = shmq_lock_even_deleted(&self.q, ns)
        if status != SHMQ_OK:
            return status
        if self.open_:  # closing a handle subtracts its sleepers
            sem_getvalue(self.semaphores[bell], &left)
            while sleepers:
                sleepers -= 1
                shmq_wake_up(&self.q, bell, posted, left)
                posted = False
        self._unlock()
        return SHMQ_OK
