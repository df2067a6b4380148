# A handle: one attachment of one process to one queue, and every operation on it.

cdef enum:
    SMALL = 4096                # bodies up to this are copied with the operation itself
    MOST_UNDER_LOCK = 1 << 20   # bytes copied in one critical section of a batch
    NOGIL_COPY = 1 << 16        # copies from this size on let other threads run
    LOCK_SLICE = 50000000       # ns
    WAIT_SLICE = 50000000       # ns: what a death at the wrong moment can cost a sleeper
    MOST_SPIN = 50000           # ns
    LEAST_SPIN = 1000

cdef int64_t FOREVER = 0x7FFFFFFFFFFFFFFF
cdef int64_t LONG_AGO = -FOREVER
cdef object _decode = None
cdef object _encode = None
cdef object _unpack = None


def install(encode, decode, unpack):
    """Set how bodies and properties become bytes and back: see shmq/codecs.py."""
    global _encode, _decode, _unpack
    _encode, _decode, _unpack = encode, decode, unpack


cdef inline int64_t _real_now():
    return <int64_t>(_time.monotonic() * 1e9)


cdef int64_t _deadline(timeout) except? -1:
    """The end of a wait of ``timeout`` seconds (None: never), in monotonic ns."""
    if timeout is None:
        return FOREVER
    _check_timeout(timeout)
    return FOREVER if timeout > 1e9 else _real_now() + <int64_t>(timeout * 1e9)


cdef int _check_timeout(timeout) except -1:
    if timeout is None:
        return 0
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(
            f"timeout={timeout!r} must be a number of seconds, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise _errors.InvalidOption(f"timeout={timeout} must be 0 or more seconds")
    return 0


cdef void _copy(void *to, const void *source, size_t size) noexcept:
    if size >= NOGIL_COPY:
        with nogil:
            memcpy(to, source, size)
    else:
        memcpy(to, source, size)


@cython.freelist(64)
@cython.final
cdef class Put:
    """What a put returns: see shmq.contract.Put."""

    cdef readonly uint64_t sequence
    cdef readonly bint duplicate

    def __repr__(self):
        return f"Put(sequence={self.sequence}, duplicate={self.duplicate})"

    def __eq__(self, other):
        return (isinstance(other, Put) and self.sequence == other.sequence
                and self.duplicate == other.duplicate)

    def __hash__(self):
        return hash((self.sequence, self.duplicate))


cdef inline Put _new_put(uint64_t sequence, bint duplicate):
    cdef Put put = Put.__new__(Put)
    put.sequence = sequence
    put.duplicate = duplicate
    return put


# Kept from the collector: it would clear a memoryview in `keep` that `buffer` still uses.
@cython.no_gc
cdef class Parcel:
    """A message on its way in: body, properties and options, ready for the core."""

    cdef shmq_put c
    cdef Py_buffer buffer
    cdef bint held
    cdef object keep         # what `buffer` and `c` point into
    cdef bytes meta
    cdef uint64_t dedupe[2]

    def __cinit__(self):
        memset(&self.c, 0, sizeof(shmq_put))
        self.held = False

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)

    cdef int _set_body(self, body) except -1:
        PyObject_GetBuffer(body, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.c.body = self.buffer.buf
        self.c.body_bytes = self.buffer.len
        return 0

    cdef int _set_meta(self, bytes meta) except -1:
        self.meta = meta
        self.c.meta = PyBytes_AS_STRING(meta)
        self.c.meta_bytes = <uint32_t>PyBytes_GET_SIZE(meta)
        return 0


@cython.no_gc_clear
cdef class Handle:
    """One attachment to a queue. shmq.client.local builds its queue upon it."""

    cdef shmq_queue q
    cdef readonly Segment segment
    cdef readonly str name
    cdef sem_t *semaphores[2]
    cdef uint64_t generation
    cdef uint64_t number           # this process's, in the namespace
    cdef int64_t spin[2]
    cdef uint32_t views            # pins that this handle's process holds
    cdef uint8_t middle
    cdef bint open_
    cdef bint tending
    cdef bint blocks               # overflow="block"

    def __cinit__(self, *args, **kwargs):
        self.semaphores[0] = self.semaphores[1] = NULL
        self.open_ = False
        self.views = 0
        self.q.attachment = SHMQ_NIL

    def __init__(self, str name, Segment segment, not_empty, not_full):
        """Bind the handle; ``not_empty`` and ``not_full`` name existing semaphores."""
        self.name = name
        self.segment = segment
        shmq_bind(&self.q, segment.base, segment.fd, &segment.geo)
        self.middle = <uint8_t>(self.q.h.options.priorities // 2)
        self.blocks = self.q.h.options.overflow == 1
        self.spin[0] = self.spin[1] = 20000 if (_os.cpu_count() or 1) > 1 else 0
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
            self._leave()
        for bell in range(2):
            if self.semaphores[bell] != NULL:
                sem_close(self.semaphores[bell])

    cdef object _no_semaphore(self, path, int error):
        if error == ENOENT:
            return _errors.NoSuchQueue(
                f"queue {self.name!r} has lost its semaphore {path}: it is being deleted, or was "
                f"half removed; delete it and make it anew"
            )
        return OSError(error, f"queue {self.name!r}: cannot open its semaphore {path}: "
                              f"{_os.strerror(error)}")

    # ---- what the policy above provides ----

    def _process_number(self):
        """This process's number in the namespace; > 0."""
        raise NotImplementedError

    def _look_for_dead(self):
        """Reclaim what dead processes hold."""
        raise NotImplementedError

    def _bury(self, limit=256):
        """Move up to ``limit`` dying messages to the dead-letter queue."""
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
            return _no_space(self.segment.fd, self.q.wanted)
        if status == SHMQ_CROWDED:
            return _errors.ShmqError(
                f"queue {self.name!r} has as many handles attached as it can; close some"
            )
        return _errors.ShmqError(f"queue {self.name!r}: status {status}")

    cdef object _full(self):
        o = &self.q.h.options
        return _errors.Full(
            f"queue {self.name!r} is full: {self.q.h.live} of {o.capacity} messages, "
            f"{(self.q.h.units_used - self.q.h.units_cached) * SHMQ_UNIT} of "
            f"{o.arena_bytes} bytes; consume, wait (block=True), or make it larger"
        )

    cdef object _too_large(self, size, uint32_t meta):
        return _errors.MessageTooLarge(
            f"a body of {size} bytes with {meta} bytes of properties can never fit into queue "
            f"{self.name!r}: max_message_bytes={self.q.h.options.max_message_bytes}, "
            f"arena_bytes={self.q.h.options.arena_bytes}"
        )

    cdef inline int _lock(self) except -1:
        cdef int status
        if not self.open_ or self.generation != fork_generation:
            self._reopen()
        status = shmq_lock(&self.q)
        if status != SHMQ_OK:
            self._lock_slowly(status)
        return 0

    cdef int _lock_slowly(self, int status) except -1:
        while status == SHMQ_BUSY:
            with nogil:
                status = shmq_lock_slowly(&self.q, LOCK_SLICE)
            if status == SHMQ_BUSY:
                PyErr_CheckSignals()
        if status != SHMQ_OK:
            raise self._error(status)
        if not self.open_:  # another thread has closed it meanwhile
            self._unlock()
            raise self._closed_error()
        return 0

    cdef object _closed_error(self):
        return _errors.ShmqError(f"this handle of queue {self.name!r} is closed")

    cdef inline void _unlock(self) noexcept:
        cdef uint32_t post[2]
        shmq_unlock(&self.q, post)
        if post[0] or post[1]:
            self._post(post)

    cdef void _post(self, uint32_t *post) noexcept:
        cdef uint32_t i
        for bell in range(2):
            for i in range(post[bell]):
                sem_post(self.semaphores[bell])

    cdef int _reopen(self) except -1:
        if not self.open_:
            raise self._closed_error()
        self.q.attachment = SHMQ_NIL
        self.views = 0
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
    # not fail an operation that has been carried out.
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
                self._look_for_dead()
            if self.q.h.dying.head != SHMQ_NIL:
                self._bury()
        finally:
            self.tending = False
        return 0

    def tend(self):
        """Do what is due: timers, dead processes, dying messages."""
        self._tick()

    # ---- leaving ----

    cdef void _leave(self) noexcept:
        cdef int status = SHMQ_BUSY
        cdef int tries = 0
        cdef uint32_t post[2]
        if self.q.attachment == SHMQ_NIL:
            return
        while status == SHMQ_BUSY and tries < 100:
            tries += 1
            with nogil:
                status = shmq_lock_even_deleted(&self.q, LOCK_SLICE)
        if status != SHMQ_OK:
            return
        if self.views:
            shmq_retire(&self.q, shmq_now())
        else:
            shmq_reclaim(&self.q, self.q.attachment, self.number, shmq_now())
            self.q.attachment = SHMQ_NIL
        shmq_unlock(&self.q, post)
        if post[0] or post[1]:
            self._post(post)

    def close(self):
        """Detach: what the handle holds leased goes back at once. May be called again.

        Views stay valid; their bytes are given back as they go.
        """
        if not self.open_:
            return
        self.open_ = False
        if self.generation == fork_generation:
            self._leave()

    @property
    def closed(self):
        """Whether the handle was closed."""
        return not self.open_

    cdef void _unpin(self, uint32_t at, uint64_t generation) noexcept:
        cdef int status = SHMQ_BUSY
        cdef int tries = 0
        cdef uint32_t post[2]
        if generation != fork_generation or self.generation != fork_generation:
            return  # the pin is the parent's
        if self.q.attachment == SHMQ_NIL:
            return
        while status == SHMQ_BUSY and tries < 100:
            tries += 1
            with nogil:
                status = shmq_lock_even_deleted(&self.q, LOCK_SLICE)
        if status != SHMQ_OK:
            return
        shmq_unpin(&self.q, at)
        self.views -= 1
        if not self.views and not self.open_:
            shmq_reclaim(&self.q, self.q.attachment, self.number, shmq_now())
            self.q.attachment = SHMQ_NIL
        shmq_unlock(&self.q, post)
        if post[0] or post[1]:
            self._post(post)

    # ---- waiting ----

    # After an operation that found nothing: whether to try again. The first time, dead
    # processes are looked for and the wait spins; then it sleeps, which takes that the
    # operation, when it failed, counted us in with shmq_fall_asleep.
    cdef bint _wait(self, int bell, int64_t until, int *round_) except -1:
        cdef bint found
        cdef int64_t spin
        if round_[0] == 0:
            round_[0] = 1
            self.q.look_for_dead = True
            self._tend()
            if bell == SHMQ_NOT_EMPTY and shmq_ready(self.q.h):
                return True
            spin = self.spin[bell]
            if until == 0 or spin == 0:
                return True
            with nogil:
                found = shmq_spin(&self.q, bell, spin)
            if found:
                self.spin[bell] = min(spin * 2, MOST_SPIN)
            else:
                self.spin[bell] = max(spin // 2, LEAST_SPIN)
            return True
        self._sleep(bell, until)
        PyErr_CheckSignals()
        if self.q.look_for_dead or self.q.h.dying.head != SHMQ_NIL:
            self._tend()
        return until == FOREVER or _real_now() < until

    cdef int _sleep(self, int bell, int64_t until) except -1:
        cdef int status, lock_status = SHMQ_BUSY, left = 0
        cdef int64_t due = shmq_next_due(&self.q) - shmq_now()
        cdef int64_t slice_ = min(WAIT_SLICE, until - _real_now() if until != FOREVER else FOREVER)
        if due < slice_ and not shmq_clock_set:
            slice_ = max(due, 0)
        with nogil:
            status = shmq_sleep(self.semaphores[bell], slice_)
            while lock_status == SHMQ_BUSY:
                lock_status = shmq_lock_even_deleted(&self.q, LOCK_SLICE)
        if lock_status != SHMQ_OK:
            raise self._error(lock_status)
        if self.open_:  # who closes a handle counts its sleepers out
            sem_getvalue(self.semaphores[bell], &left)
            shmq_wake_up(&self.q, bell, status == SHMQ_OK, left)
        self._unlock()
        return 0

    # ---- put ----

    cdef bint _blocks(self, block, timeout) except -1:
        if block is None:
            return self.blocks or timeout is not None
        return bool(block)

    def put(self, body, block=None, timeout=None, *, priority=None, group=None, headers=None,
            delay=None, deliver_at=None, ttl=None, dedupe_id=None, codec=None, reply_to=None,
            correlation=None):
        """See shmq.contract.Queue.put."""
        cdef shmq_put c
        cdef Parcel parcel
        if timeout is not None:
            _check_timeout(timeout)
        if (type(body) is bytes and PyBytes_GET_SIZE(body) <= SMALL and priority is None
                and group is None and headers is None and delay is None
                and deliver_at is None and ttl is None and dedupe_id is None
                and codec is None and reply_to is None and correlation is None):
            memset(&c, 0, sizeof(c))
            c.body = PyBytes_AS_STRING(body)
            c.body_bytes = PyBytes_GET_SIZE(body)
            c.priority = self.middle
            return self._put(&c, block, timeout)
        parcel = self._wrap(body, codec, priority, group, headers, delay, deliver_at, ttl,
                            dedupe_id, reply_to, correlation)
        if parcel.c.body_bytes > SMALL:
            return self._put_large(parcel, block, timeout)
        return self._put(&parcel.c, block, timeout)

    cdef Parcel _wrap(self, body, codec, priority, group, headers, delay, deliver_at, ttl,
                      dedupe_id, reply_to, correlation, encoded=False):
        cdef Parcel parcel = Parcel.__new__(Parcel)
        buffer, number, meta, level, delay_s, ttl_s = _encode(
            body, codec, priority, group, headers, delay, deliver_at, ttl, dedupe_id, reply_to,
            correlation, self.q.h.options.priorities, encoded)
        parcel.keep = buffer
        parcel._set_body(buffer)
        parcel._set_meta(meta)
        parcel.c.codec = number
        parcel.c.priority = level
        parcel.c.delay = _ns(delay_s)
        parcel.c.ttl = _ns(ttl_s)
        if group is not None:
            parcel.c.group = self._hash(group)[0] or 1
        if dedupe_id is not None:
            parcel.dedupe[0], parcel.dedupe[1] = self._hash(dedupe_id)
            parcel.c.dedupe = parcel.dedupe
        return parcel

    cdef tuple _hash(self, text):
        return siphash(self.q.h.options.queue_id, text.encode("utf-8", "surrogatepass"))

    cdef Put _put(self, const shmq_put *c, block, timeout):
        cdef uint64_t seq = 0
        cdef int status, round_ = 0
        cdef int64_t until = -1
        if shmq_fits(&self.q, c.body_bytes, c.meta_bytes) != SHMQ_OK:
            raise self._too_large(c.body_bytes, c.meta_bytes)
        while True:
            self._lock()
            status = c_put(&self.q, c, shmq_now(), &seq)
            if status == SHMQ_FULL and round_ == 1:
                shmq_fall_asleep(&self.q, SHMQ_NOT_FULL)
            self._unlock()
            if status == SHMQ_OK or status == SHMQ_DUPLICATE:
                self._after()
                return _new_put(seq, status == SHMQ_DUPLICATE)
            if status != SHMQ_FULL:
                raise self._error(status)
            if not self._may_wait(SHMQ_NOT_FULL, block, timeout, &until, &round_):
                raise self._full()

    # Whether to try again after SHMQ_FULL or SHMQ_EMPTY. Without blocking there is still
    # one more try, after the dead have been looked for.
    cdef bint _may_wait(self, int bell, block, timeout, int64_t *until, int *round_) except -1:
        if until[0] == -1:
            if bell == SHMQ_NOT_FULL:
                until[0] = _deadline(timeout) if self._blocks(block, timeout) else 0
            else:
                until[0] = _deadline(timeout) if block else 0
            if until[0] == 0:
                self.q.look_for_dead = True
                self._tend()
                round_[0] = 2
                return True
        elif until[0] == 0:
            return False
        return self._wait(bell, until[0], round_)

    # A large body is written without the lock, into space that is ours and pinned: not
    # even closing the handle meanwhile lets another message have it.
    cdef Put _put_large(self, Parcel parcel, block, timeout):
        cdef Loan loan = _borrow(self, parcel, block, timeout)
        if loan.ended:
            return loan.put
        _copy(loan.holder.place, parcel.c.body, parcel.c.body_bytes)
        shmq_mark()
        return loan.commit()

    # Reserves and pins space: SHMQ_OK or SHMQ_DUPLICATE. Raises Full.
    cdef int _reserve(self, Parcel parcel, block, timeout, shmq_view *view,
                      uint64_t *seq) except -1:
        cdef int status, round_ = 0
        cdef int64_t until = -1
        if shmq_fits(&self.q, parcel.c.body_bytes, parcel.c.meta_bytes) != SHMQ_OK:
            raise self._too_large(parcel.c.body_bytes, parcel.c.meta_bytes)
        while True:
            self._lock()
            status = self._reserve_locked(parcel, view, seq)
            if status == SHMQ_FULL and round_ == 1:
                shmq_fall_asleep(&self.q, SHMQ_NOT_FULL)
            self._unlock()
            if status == SHMQ_OK or status == SHMQ_DUPLICATE:
                return status
            if status != SHMQ_FULL:
                raise self._error(status)
            if not self._may_wait(SHMQ_NOT_FULL, block, timeout, &until, &round_):
                raise self._full()

    cdef int _reserve_locked(self, Parcel parcel, shmq_view *view, uint64_t *seq):
        cdef int64_t now = shmq_now()
        cdef int status = shmq_reserve(&self.q, parcel.c.body_bytes, parcel.c.meta_bytes, now,
                                       parcel.c.dedupe, view, seq)
        if status == SHMQ_OK:
            status = shmq_pin(&self.q, view.receipt, now, view)
            if status == SHMQ_OK:
                self.views += 1
        return status

    cdef Put _fill(self, uint64_t receipt, Parcel parcel):
        cdef uint64_t seq = 0
        cdef int status
        self._lock()
        status = shmq_fill(&self.q, receipt, &parcel.c, shmq_now(), &seq)
        self._unlock()
        self._after()
        if status == SHMQ_OK or status == SHMQ_DUPLICATE:
            return _new_put(seq, status == SHMQ_DUPLICATE)
        if status == SHMQ_FULL:
            raise self._full()
        if status == SHMQ_STALE:
            raise _errors.LeaseExpired(
                f"the space in queue {self.name!r} was given back before the message was put")
        raise self._error(status)

    def abandon(self, uint64_t receipt):
        """Give space back that was reserved or staged; whether it was still ours."""
        cdef int status
        self._lock()
        status = shmq_abandon(&self.q, receipt)
        self._unlock()
        return status == SHMQ_OK

    def put_many(self, bodies, block=None, timeout=None, *, priority=None, group=None,
                 headers=None, delay=None, ttl=None, codec=None):
        """See shmq.contract.Queue.put_many."""
        _check_timeout(timeout)
        cdef list parcels = self._wrap_many(bodies, codec, priority, group, headers, delay, ttl)
        cdef Py_ssize_t done = 0, count = len(parcels)
        cdef int status, round_ = 0
        cdef int64_t until = -1
        while done < count:
            if self._is_large(parcels[done]):
                try:
                    self._put_large(parcels[done], block, timeout)
                except _errors.Full:
                    return done
                done += 1
                continue
            status = self._put_run(parcels, &done, round_ == 1)
            if status == SHMQ_OK:
                self._after()
                continue
            if status != SHMQ_FULL:
                if done:
                    return done
                raise self._error(status)
            if not self._may_wait(SHMQ_NOT_FULL, block, timeout, &until, &round_):
                return done
        return done

    cdef bint _is_large(self, parcel):
        return type(parcel) is not bytes and (<Parcel>parcel).c.body_bytes > SMALL

    # One critical section: puts what fits, from parcels[done[0]] on.
    cdef int _put_run(self, list parcels, Py_ssize_t *done, bint asleep_if_full) except -1:
        cdef Py_ssize_t count = len(parcels)
        cdef uint64_t seq, copied = 0
        cdef int64_t now
        cdef int status = SHMQ_OK
        cdef shmq_put c
        cdef const shmq_put *p
        memset(&c, 0, sizeof(c))
        c.priority = self.middle
        self._lock()
        now = shmq_now()
        while done[0] < count and copied < MOST_UNDER_LOCK:
            parcel = parcels[done[0]]
            if type(parcel) is bytes:
                c.body = PyBytes_AS_STRING(parcel)
                c.body_bytes = PyBytes_GET_SIZE(parcel)
                p = &c
            elif (<Parcel>parcel).c.body_bytes > SMALL:
                break
            else:
                p = &(<Parcel>parcel).c
            status = c_put(&self.q, p, now, &seq)
            if status != SHMQ_OK:
                break
            copied += p.body_bytes + 64
            done[0] += 1
        if status == SHMQ_FULL and asleep_if_full:
            shmq_fall_asleep(&self.q, SHMQ_NOT_FULL)
        self._unlock()
        return status

    cdef list _wrap_many(self, bodies, codec, priority, group, headers, delay, ttl):
        cdef bint plain = (codec is None and priority is None and group is None
                           and headers is None and delay is None and ttl is None)
        cdef list parcels = []
        cdef Parcel parcel
        for body in bodies:
            if plain and type(body) is bytes and PyBytes_GET_SIZE(body) <= SMALL:
                if shmq_fits(&self.q, PyBytes_GET_SIZE(body), 0) != SHMQ_OK:
                    raise self._too_large(PyBytes_GET_SIZE(body), 0)
                parcels.append(body)
                continue
            parcel = self._wrap(body, codec, priority, group, headers, delay, None, ttl, None,
                                None, None)
            if shmq_fits(&self.q, parcel.c.body_bytes, parcel.c.meta_bytes) != SHMQ_OK:
                raise self._too_large(parcel.c.body_bytes, parcel.c.meta_bytes)
            parcels.append(parcel)
        return parcels

    # ---- get ----

    def get(self, block=True, timeout=None):
        """See shmq.contract.Queue.get."""
        cdef shmq_view view
        cdef Message message
        cdef int status, round_ = 0
        cdef int64_t until = -1
        if timeout is not None:
            _check_timeout(timeout)
        while True:
            self._lock()
            status = shmq_lease(&self.q, shmq_now(), True, &view)
            if status == SHMQ_EMPTY and round_ == 1:
                shmq_fall_asleep(&self.q, SHMQ_NOT_EMPTY)
            self._unlock()
            if status == SHMQ_OK:
                message = _new_message(self, &view, None)
                self._after()
                if message is not None:
                    return message
                continue
            if status != SHMQ_EMPTY:
                raise self._error(status)
            if not self._may_wait(SHMQ_NOT_EMPTY, block, timeout, &until, &round_):
                raise self._empty(block, timeout)

    cdef object _empty(self, block, timeout):
        if block and timeout is not None:
            return _errors.Empty(f"no message came to queue {self.name!r} within {timeout} s")
        return _errors.Empty(f"no message is visible in queue {self.name!r}")

    def get_many(self, max, timeout=None, *, block=True):
        """See shmq.contract.Queue.get_many."""
        cdef shmq_view *views
        cdef list messages = []
        cdef int status, got, i, round_ = 0, most
        cdef int64_t until = -1
        if isinstance(max, bool) or not isinstance(max, int):
            raise TypeError(f"max={max!r} must be an int, not {type(max).__name__}")
        if max < 1:
            raise _errors.InvalidOption(f"max={max} must be 1 or more")
        _check_timeout(timeout)
        most = min(max, self.q.h.options.capacity)
        views = <shmq_view *>malloc(most * sizeof(shmq_view))
        if views == NULL:
            raise MemoryError
        try:
            while True:
                self._lock()
                status = self._lease_run(views, most, &got, round_ == 1)
                self._unlock()
                for i in range(got):
                    message = _new_message(self, &views[i], None)
                    if message is not None:
                        messages.append(message)
                if got:
                    self._after()
                if messages:
                    return messages
                if status != SHMQ_OK and status != SHMQ_EMPTY:
                    raise self._error(status)
                if got:
                    continue
                if not self._may_wait(SHMQ_NOT_EMPTY, block, timeout, &until, &round_):
                    return messages
        finally:
            free(views)

    # Holds the lock. Leases up to `most` messages as handed out.
    cdef int _lease_run(self, shmq_view *views, int most, int *got, bint asleep_if_empty):
        cdef int64_t now = shmq_now()
        cdef int status = SHMQ_OK
        got[0] = 0
        while got[0] < most:
            status = shmq_lease(&self.q, now, True, &views[got[0]])
            if status != SHMQ_OK:
                break
            got[0] += 1
        if status == SHMQ_EMPTY and not got[0] and asleep_if_empty:
            shmq_fall_asleep(&self.q, SHMQ_NOT_EMPTY)
        return status

    # ---- settle ----

    cdef int _settle(self, int how, uint64_t receipt, int64_t ns) except -1:
        cdef int64_t now
        cdef int status
        self._lock()
        now = shmq_now()
        if how == 0:
            status = shmq_ack(&self.q, receipt, now)
        elif how == 1:
            status = shmq_nack(&self.q, receipt, ns, now)
        elif how == 2:
            status = shmq_reject(&self.q, receipt, now)
        elif how == 3:
            status = shmq_extend(&self.q, receipt, ns, now)
        else:
            status = shmq_return(&self.q, receipt, now)
        self._unlock()
        self._after()
        if status == SHMQ_OK:
            return 0
        raise self._stale(receipt) if status == SHMQ_STALE else self._error(status)

    cdef object _stale(self, uint64_t receipt):
        return _errors.LeaseExpired(
            f"receipt {receipt} of queue {self.name!r} is no longer good: its lease ended, "
            f"or the message was settled; nothing was changed"
        )

    def ack(self, receipt):
        """Acknowledge by receipt."""
        self._settle(0, _receipt_of(receipt), 0)

    def nack(self, receipt, delay=None):
        """See shmq.contract.Queue.nack."""
        self._settle(1, _receipt_of(receipt), _delay_ns(delay))

    def reject(self, receipt):
        """See shmq.contract.Queue.reject."""
        self._settle(2, _receipt_of(receipt), 0)

    def extend(self, receipt, seconds):
        """See shmq.contract.Queue.extend."""
        self._settle(3, _receipt_of(receipt), _span_ns("seconds", seconds))

    def ack_many(self, messages):
        """See shmq.contract.Queue.ack_many."""
        cdef list items = list(messages), receipts, refused
        cdef Py_ssize_t i, count = len(items)
        cdef uint64_t *raw
        cdef uint8_t *settled
        cdef int64_t now
        cdef int status = SHMQ_OK
        receipts = [_receipt_of(item) for item in items]
        for item in items:
            if type(item) is Message:
                (<Message>item)._read_if_unread()
        raw = <uint64_t *>malloc((count + 1) * (sizeof(uint64_t) + 1))
        if raw == NULL:
            raise MemoryError
        settled = <uint8_t *>(raw + count)
        try:
            for i in range(count):
                raw[i] = receipts[i]
                settled[i] = False
            self._lock()
            now = shmq_now()
            for i in range(count):
                status = shmq_ack(&self.q, raw[i], now)
                settled[i] = status == SHMQ_OK
                if status != SHMQ_OK and status != SHMQ_STALE:
                    break
            self._unlock()
            if status != SHMQ_OK and status != SHMQ_STALE:
                raise self._error(status)
            refused = []
            for i in range(count):
                if not settled[i]:
                    refused.append(items[i] if isinstance(items[i], int) else receipts[i])
                elif type(items[i]) is Message:
                    (<Message>items[i])._settled = True
        finally:
            free(raw)
        self._after()
        return refused

    # ---- looking ----

    def purge(self):
        """See shmq.contract.Queue.purge."""
        cdef uint64_t removed = 0
        cdef int status
        self._tick()
        self._lock()
        status = shmq_purge(&self.q, &removed)
        self._unlock()
        self._after()
        if status != SHMQ_OK:
            raise self._error(status)
        return removed

    def qsize(self):
        """See shmq.contract.Queue.qsize."""
        self._tick()
        return self.q.h.visible

    def full(self):
        """See shmq.contract.Queue.full."""
        self._tick()
        return self.q.h.live >= self.q.h.options.capacity

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
            finally:
                self.tending = False
        return 0

    def numbers(self):
        """The header's counters by name: what shmq.contract.QueueStats is made of."""
        cdef shmq_header h
        cdef int64_t now
        cdef uint32_t largest
        self._tick()
        self._lock()
        now = shmq_now()
        largest = shmq_arena_largest(&self.q)
        memcpy(&h, self.q.h, sizeof(h))
        self._unlock()
        span = (now - h.samples[0].at) / 1e9
        return {
            "depth": h.visible, "delayed": h.delayed, "in_flight": h.leased, "dying": h.dead,
            "capacity": h.options.capacity, "put": h.last_seq, "acked": h.acked,
            "nacked": h.nacked, "expired": h.expired, "redelivered": h.redelivered,
            "dead_lettered": h.dead_lettered, "dropped": h.dropped, "deduped": h.deduped,
            "recoveries": h.recoveries, "arena_bytes": h.options.arena_bytes,
            "arena_used": (h.units_used - h.units_cached) * SHMQ_UNIT,
            "arena_largest_free": min(largest * SHMQ_UNIT, h.options.max_message_bytes),
            "waiting_get": h.asleep[0], "waiting_put": h.asleep[1],
            "rate_in": (h.last_seq - h.samples[0].inflow) / span if span > 0 else 0.0,
            "rate_out": (h.acked - h.samples[0].outflow) / span if span > 0 else 0.0,
        }

    def attached(self):
        """The attachments: (index, process number, pid, name, leases, since)."""
        cdef shmq_attachment *a
        cdef uint32_t at
        cdef list rows = []
        if self.q.h.state == SHMQ_GONE:
            raise self._error(SHMQ_DELETED)
        for at in range(min(self.q.h.attachments_made, 4096)):
            a = &self.q.attachments[at]
            if a.process:
                rows.append((at, a.process, a.pid, a.name[:31].split(b"\0")[0], a.leases,
                             a.since / 1e9))
        return rows

    def reclaim(self, uint32_t at, uint64_t process):
        """Return what attachment ``at`` of the dead process ``process`` holds."""
        self._lock()
        shmq_reclaim(&self.q, at, process, shmq_now())
        self._unlock()

    @property
    def process(self):
        """This process's number in the namespace."""
        return self.number

    def scan(self, uint32_t start, uint32_t count):
        """Live slots from ``start`` on, at most ``count`` looked at.

        Returns (rows, next start or None); a row is (slot, state, sequence, priority,
        deliveries, put_at, deadline, expires), times in monotonic ns.
        """
        cdef shmq_view *views = <shmq_view *>malloc(count * sizeof(shmq_view))
        cdef shmq_view *view
        cdef uint32_t at, end, made, i, live = 0
        cdef list rows = []
        if views == NULL:
            raise MemoryError
        try:
            self._lock()
            made = self.q.h.slots_made
            end = min(start + count, made)
            for at in range(start, end):
                if shmq_state_of(shmq_word(&self.q.slots[at])) != SHMQ_FREE:
                    shmq_look(&self.q, &self.q.slots[at], &views[live])
                    live += 1
            self._unlock()
            for i in range(live):
                view = &views[i]
                rows.append((view.at, shmq_state_of(view.word), view.seq, view.priority,
                             view.deliveries, view.put_at, view.deadline, view.expires))
        finally:
            free(views)
        return rows, (end if end < made else None)

    def oldest_put(self):
        """When the oldest visible message was put, monotonic ns; None if there is none."""
        cdef uint32_t at = 0, made = self.q.h.slots_made, end
        cdef int64_t oldest = FOREVER
        while at < made:
            self._lock()
            made = self.q.h.slots_made
            end = min(at + 65536, made)
            while at < end:
                if (shmq_state_of(shmq_word(&self.q.slots[at])) == SHMQ_READY
                        and self.q.slots[at].put_at < oldest):
                    oldest = self.q.slots[at].put_at
                at += 1
            self._unlock()
        return None if oldest == FOREVER else oldest

    def copy_at(self, uint32_t at, uint64_t seq):
        """A copy of message ``seq`` in slot ``at``, or None if it is not there any more."""
        cdef shmq_view view
        cdef Message message
        cdef unsigned char *place
        cdef int status = self._pin_at(at, seq, &view, NULL)
        if status == SHMQ_OK:
            message = _copy_message(self, &view, view.body, view.meta)
            self._unpin(at, fork_generation)
            return message
        if status == SHMQ_STALE:
            return None
        # Another process has pinned it: it is copied under the lock, into what is ready.
        raw = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>view.body_bytes + view.meta_bytes)
        status = self._pin_at(at, seq, &view, PyBytes_AS_STRING(raw))
        if status == SHMQ_OK:
            self._unpin(at, fork_generation)
            return self.copy_at(at, seq)
        if status == SHMQ_STALE:
            return None
        place = <unsigned char *>PyBytes_AS_STRING(raw)
        return _copy_message(self, &view, place, place + view.body_bytes)

    # SHMQ_OK: pinned. SHMQ_BUSY: body and properties are copied to `to`, if that is given.
    cdef int _pin_at(self, uint32_t at, uint64_t seq, shmq_view *view, char *to) except -1:
        cdef int status
        self._lock()
        status = shmq_pin_at(&self.q, at, seq, view)
        if status == SHMQ_OK:
            self.views += 1
        elif status == SHMQ_BUSY and to != NULL:
            memcpy(to, view.body, view.body_bytes)
            if view.meta_bytes:
                memcpy(to + view.body_bytes, view.meta, view.meta_bytes)
        self._unlock()
        if status != SHMQ_OK and status != SHMQ_BUSY and status != SHMQ_STALE:
            raise self._error(status)
        return status

    # ---- moving: see src/move.h ----

    cdef tuple _taken(self, const shmq_view *view):
        try:
            return (view.receipt, view.seq,
                    PyBytes_FromStringAndSize(<char *>view.body, view.body_bytes),
                    PyBytes_FromStringAndSize(<char *>view.meta, view.meta_bytes), view.codec,
                    view.priority, view.deliveries, view.reason, view.dead_at / 1e9)
        except MemoryError:
            self.give_up(view.receipt)
            raise

    def take_dead(self):
        """Take the next dying message, or None; see ``take``."""
        cdef shmq_view view
        cdef int status
        self._lock()
        status = shmq_take_dead(&self.q, &view)
        self._unlock()
        if status == SHMQ_EMPTY:
            return None
        if status != SHMQ_OK:
            raise self._error(status)
        return self._taken(&view)

    def take(self, uint32_t at, uint64_t seq):
        """Take a visible message to move it, or None if it is not there any more.

        (receipt, sequence, body, properties, codec, priority, deliveries, reason, died at)
        """
        cdef shmq_view view
        cdef int status
        self._lock()
        status = shmq_take(&self.q, at, seq, &view)
        self._unlock()
        return self._taken(&view) if status == SHMQ_OK else None

    def stage(self, bytes body, bytes meta, uint8_t codec, uint8_t priority, group,
              uint64_t origin_queue, uint64_t origin_seq):
        """Put a message that only ``publish`` makes visible; its receipt. Raises Full."""
        cdef Parcel parcel = Parcel.__new__(Parcel)
        cdef Loan loan
        cdef int status
        parcel.keep = body
        parcel._set_body(body)
        parcel._set_meta(meta)
        parcel.c.codec = codec
        parcel.c.priority = min(priority, <uint8_t>(self.q.h.options.priorities - 1))
        parcel.c.ttl = -1
        parcel.c.origin_queue = origin_queue
        parcel.c.origin_seq = origin_seq
        if group is not None:
            parcel.c.group = self._hash(group)[0] or 1
        self.void_copies(origin_queue, origin_seq)
        loan = _borrow(self, parcel, False, None)
        _copy(loan.holder.place, parcel.c.body, parcel.c.body_bytes)
        shmq_mark()
        loan._end()
        try:
            self._lock()
            status = shmq_stage(&self.q, loan.receipt, &parcel.c, shmq_now())
            self._unlock()
        except BaseException:
            loan._abandon()
            raise
        if status != SHMQ_OK:
            raise self._error(status)
        return loan.receipt

    def publish(self, uint64_t receipt):
        """Make a staged message visible; whether it was still there."""
        cdef int status
        self._lock()
        status = shmq_publish(&self.q, receipt, shmq_now())
        self._unlock()
        return status == SHMQ_OK

    def moved(self, uint64_t receipt):
        """The taken message has moved: settle it here. Whether it was still ours."""
        cdef int status
        self._lock()
        status = shmq_moved(&self.q, receipt)
        self._unlock()
        return status == SHMQ_OK

    def hand_over(self, Handle target, uint64_t receipt, uint64_t staged):
        """Commit a move: settle the taken message here, then publish its copy there."""
        if self.moved(receipt):
            target.publish(staged)
        else:
            target.abandon(staged)

    def untake(self, uint64_t receipt):
        """Put a taken message back."""
        self._lock()
        shmq_untake(&self.q, receipt)
        self._unlock()

    def give_up(self, uint64_t receipt):
        """Leave a taken message to the next mover. Does nothing if it has moved."""
        self._lock()
        shmq_give_up(&self.q, receipt)
        self._unlock()

    def void_copies(self, uint64_t origin_queue, uint64_t origin_seq):
        """Remove staged copies of that message, which their mover left."""
        self._lock()
        shmq_void_copies(&self.q, origin_queue, origin_seq)
        self._unlock()

    def orphans(self):
        """Staged messages whose mover died: (receipt, origin queue, origin sequence)."""
        cdef uint64_t receipt, queue, seq
        cdef uint32_t at = 0
        cdef list rows = []
        cdef int status = SHMQ_OK
        while self.q.h.staged and status == SHMQ_OK:
            self._lock()
            status = shmq_find_orphan(&self.q, at, &receipt, &queue, &seq)
            self._unlock()
            if status == SHMQ_OK:
                rows.append((receipt, queue, seq))
                at = <uint32_t>(receipt & 0xFFFFFF) + 1
        return rows

    def still_moves(self, uint64_t seq):
        """Whether message ``seq`` is here, dying or being moved."""
        cdef bint there
        self._lock()
        there = shmq_still_moves(&self.q, seq)
        self._unlock()
        return there

    @property
    def has_dying(self):
        """Whether a message waits to be moved to the dead-letter queue."""
        return self.q.h.dying.head != SHMQ_NIL

    # ---- checking ----

    def check(self):
        """Verify every invariant of the segment; raises DamagedSegment."""
        cdef const char *wrong
        self._lock()
        wrong = shmq_check(&self.q)
        self._unlock()
        if wrong != NULL:
            raise _errors.DamagedSegment(
                f"the segment of queue {self.name!r} is damaged: {wrong.decode()}")


cdef bytes _process_name():
    try:
        with open("/proc/self/comm", "rb") as file:
            return file.read().strip()[:31]
    except OSError:
        return b"?"


# The receipt of a message, or the receipt itself. An int that cannot be one was never
# given, as 0 never is.
cdef object _receipt_of(message):
    if type(message) is Message:
        return (<Message>message).receipt
    if isinstance(message, int) and not isinstance(message, bool):
        return message if 0 <= message < 1 << 64 else 0
    raise TypeError(f"{message!r:.60} is neither a message nor a receipt of this queue")


cdef int64_t _span_ns(str what, seconds) except? -1:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise _errors.InvalidOption(
            f"{what}={seconds!r} must be a number of seconds, not {type(seconds).__name__}")
    if not 0 <= seconds <= 1e9:
        raise _errors.InvalidOption(f"{what}={seconds} s is out of range: 0 to 1000000000 s")
    return _ns(seconds)


cdef int64_t _delay_ns(delay) except? -2:
    return -1 if delay is None else _span_ns("delay", delay)


def mark_deleted(Segment segment, str not_empty, str not_full):
    """Refuse every operation on the queue from now on, and wake every sleeper.

    ``not_empty`` and ``not_full`` name its semaphores.
    """
    cdef shmq_queue q
    cdef uint32_t post[2]
    cdef uint32_t asleep[2]
    cdef int status = SHMQ_BUSY
    cdef sem_t *semaphore
    shmq_bind(&q, segment.base, segment.fd, &segment.geo)
    while status == SHMQ_BUSY:
        with nogil:
            status = shmq_lock_even_deleted(&q, LOCK_SLICE)
        PyErr_CheckSignals()
    q.h.state = SHMQ_GONE
    shmq_mark()
    asleep[0], asleep[1] = q.h.asleep[0], q.h.asleep[1]
    if status == SHMQ_OK:
        shmq_unlock(&q, post)
    for bell, name in enumerate((not_empty, not_full)):
        raw = name.encode()
        semaphore = sem_open(raw, 0)
        if semaphore == SEM_FAILED:
            continue
        for _ in range(min(asleep[bell], 65536)):
            sem_post(semaphore)
        sem_close(semaphore)
