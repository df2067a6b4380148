# One attachment of one process to one queue: the lock, waiting, and what is due.

@cython.no_gc_clear
cdef class _Attachment:
    """What the operations stand on. `Handle` is the whole."""

    cdef shmq_queue q
    cdef readonly Segment segment
    cdef readonly str name
    cdef bytes bells               # what q.wakeup_prefix points to
    cdef sem_t *semaphores[2]
    cdef uint64_t generation
    cdef uint64_t number           # this process's, in the namespace
    cdef Spin spins[2]             # by the bell
    cdef int64_t looked_at         # when dead processes were looked for
    cdef uint32_t views            # pins that this handle's process holds
    cdef uint32_t awake[2]         # counted as asleep still, for want of the lock, by the bell
    cdef bint open_
    cdef bint tending
    cdef bint blocks               # overflow="block"
    cdef bint drops                # overflow="drop-oldest", and a journal is told of it first
    cdef bint confirms             # confirm="disk"

    def __cinit__(self, *args, **kwargs):
        self.semaphores[0] = self.semaphores[1] = NULL
        self.open_ = False
        self.views = 0
        self.awake[0] = self.awake[1] = 0
        self.q.attachment = SHMQ_NIL

    def __init__(self, str name, Segment segment, not_empty: str, not_full: str, bells: str):
        """Bind the handle; ``not_empty`` and ``not_full`` name existing semaphores.

        ``bells`` is what the names of the namespace's bells begin with.
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

    # ---- what the policy above provides ----

    def _process_number(self) -> int:
        """This process's number in the namespace; > 0."""
        raise NotImplementedError

    def _look_for_dead(self):
        """Reclaim what dead processes hold."""
        raise NotImplementedError

    def await_writer(self):
        """Have a persistence writer started if there is none; waits for nothing."""
        raise NotImplementedError

    def _why_unwritten(self, spent: int) -> str:
        """Why ``spent`` settled messages keep their slots, for the text of an error."""
        raise NotImplementedError

    def _bury(self, limit: int = 256):
        """Move up to ``limit`` dying messages to the dead-letter queue."""
        raise NotImplementedError

    def _wait_filtered(self, attempt: Callable[[], Any], block: bool,
                       timeout: float | None) -> Any:
        """What ``attempt()`` returns as soon as that is true; its last result after the timeout.

        It is called again whenever a message has come.
        """
        raise NotImplementedError

    def _not_confirmed(self, sequence: int, taken: int) -> Exception:
        """Why what was put is not known to be on disk: the error to raise."""
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

    # For an operation that is to be done at once.
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

    # The side of the gets alone: for leases and settlements.
    cdef inline int _lock_gets(self) except -1:
        cdef int status
        if not self.open_ or self.generation != fork_generation:
            self._reopen()
        status = shmq_lock_gets(&self.q)
        if status != SHMQ_OK:
            self._lock_slowly(status, AT_ONCE)
        return 0

    # For one with a timeout: the whole queue, or the side of the gets. `until`: see _end_of.
    cdef inline int _lock_until(self, bint whole, int bell, block, timeout,
                                int64_t *until) except -1:
        cdef int status
        if not self.open_ or self.generation != fork_generation:
            self._reopen()
        status = shmq_lock(&self.q) if whole else shmq_lock_gets(&self.q)
        if status != SHMQ_OK:
            self._lock_slowly(status, self._end_of(bell, block, timeout, until))
        return 0

    # Waits without the GIL until the lock is free, then tries again with it: whoever has
    # the lock never waits for the GIL, which could be long in coming. Where others are
    # always quicker, the lock is kept after all; and where no other thread can have the GIL,
    # at once. Raises LockTimeout when the operation's end has come, see
    # shmq/core/base/lock_holder.h.
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

    # What is to be done beside the operation itself, once the lock is free again. It must
    # not fail an operation that has been carried out: what cannot be locked is left to later.
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
                self._bury()
        except _errors.LockTimeout:
            pass
        finally:
            self.tending = False
        return 0

    def tend(self):
        """Do what is due: timers, dead processes, dying messages."""
        self._tick()

    # Does all that is due, however much it is.
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
                self._bury(1 << 31)
            except _errors.LockTimeout:
                pass
            finally:
                self.tending = False
        return 0

    # ---- leaving ----

    # For what ends: takes the lock even of a deleted queue; whether it could be had. If not,
    # what is left is cleared away with the handle, or the process.
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

    # Holds the lock.
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
        """Detach: what the handle holds leased goes back at once. May be called again.

        Views stay valid; their bytes are given back as they go.
        """
        if not self.open_:
            return
        self.open_ = False
        if self.generation == fork_generation:
            with nogil:
                self._leave()

    def leave(self):
        """As `close`, unless the lock cannot be had: then LockTimeout, and all is as before."""
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
            return  # the pin is the parent's
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

    # The end of an operation's waits, monotonic ns, FOREVER or AT_ONCE: of `until`, or where
    # that is UNKNOWN, from now on. Who finds at once what it wants need not read the clock.
    cdef int64_t _end_of(self, int bell, block, timeout, int64_t *until) except -1:
        if until[0] == UNKNOWN:
            if self._blocks(block, timeout) if bell == SHMQ_NOT_FULL else block:
                until[0] = _deadline(timeout)
            else:
                until[0] = AT_ONCE
        return until[0]

    # Whether to try again after SHMQ_FULL or SHMQ_EMPTY. Without blocking there is still
    # one more try, after the dead have been looked for.
    cdef bint _may_wait(self, int bell, block, timeout, int64_t *until, int *round_) except -1:
        cdef int64_t end = self._end_of(bell, block, timeout, until)
        if end == AT_ONCE and round_[0] == 0:
            # What was dropped makes room once the journal has that, if somebody writes it.
            if bell == SHMQ_NOT_FULL and block is None and self.drops and self.q.h.spent:
                end = until[0] = _real_now() + ROOM_SOON
            else:
                self.q.look_for_dead = True
                self._tend()
                round_[0] = 2
                return True
        return self._wait(bell, end, round_)

    # After an operation that found nothing: whether to try again. First it spins, as long as
    # that pays; then it sleeps, which takes that the operation, when it failed, counted us in
    # with shmq_fall_asleep. Dead processes are looked for before that, unless they have just
    # been, in the course of the sleep, and before its time is over for good.
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

    # Whether a spin looks as if it had ended the wait.
    cdef bint _spin(self, int bell) noexcept:
        cdef int64_t took, ns = _spin_time(&self.spins[bell])
        if not ns:
            return False
        with nogil:
            took = shmq_spin(&self.q, bell, ns)
        _spin_learn(&self.spins[bell], ns, took)
        return took >= 0

    # Wakes whoever sleeps and should not. After a put that is done: nothing may raise here, nor
    # look at signals, and what cannot be had costs a sleeper a slice.
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

    # Whether it was posted. Such a one tries again though its time may be over: what it was
    # posted for is nobody else's to look for.
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

    # Takes the lock within `ns`, and counts those out who sleep no longer.
    cdef int _count_out(self, int bell, bint posted, uint32_t sleepers, int64_t ns) noexcept nogil:
        cdef int left = 0, status = shmq_lock_even_deleted(&self.q, ns)
        if status != SHMQ_OK:
            return status
        if self.open_:  # who closes a handle counts its sleepers out
            sem_getvalue(self.semaphores[bell], &left)
            while sleepers:
                sleepers -= 1
                shmq_wake_up(&self.q, bell, posted, left)
                posted = False
        self._unlock()
        return SHMQ_OK
