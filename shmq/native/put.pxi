# Putting: small bodies are copied under the lock, large ones outside it, into space that the
# application may also write in place.

@cython.freelist(64)
@cython.final
cdef class Put:
    """The result of a put: see :class:`shmq.api.Put`."""

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


# Hidden from the collector, which would clear a memoryview in `keep` that `buffer` still uses.
@cython.no_gc
cdef class PreparedPut:
    """A message ready for the core: body, properties and options."""

    cdef shmq_put c
    cdef Py_buffer buffer
    cdef bint held
    cdef object keep         # the owner of the memory that `buffer` and `c` point into
    cdef bytes meta
    cdef bytes tail
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


# A publish may reach queues without a window, which ignore its dedupe id.
cdef inline int _check_given_id(Handle handle, PyObject **given) except -1:
    if given != NULL and _has(given, SHMQ_P_DEDUPE_ID):
        _check_dedupe_id(handle, <object>given[SHMQ_P_DEDUPE_ID])
    return 0


# `given` is NULL, or the properties by number.
cdef PreparedPut _wrap(Handle handle, body, PyObject **given, bint encoded=False,
                       bint published=False):
    cdef PreparedPut prepared = PreparedPut.__new__(PreparedPut)
    cdef Properties p
    codec = None if given == NULL else <object>given[SHMQ_P_CODEC]
    if not published:
        _check_given_id(handle, given)
    prepared.keep = _encode_body(body, codec, encoded, &prepared.c.codec, handle.default)
    prepared._set_body(prepared.keep)
    prepared._set_meta(_pack(&p, _check_properties(&p, given, prepared.c.codec,
                                                   handle.q.h.options.priorities)))
    _take_properties(handle, &p, &prepared.c, prepared.dedupe)
    return prepared


# Everything that the core does with the properties. `c.dedupe` points to `hash`.
cdef inline int _take_properties(Handle handle, const Properties *p, shmq_put *c,
                                 uint64_t *hash) except -1:
    c.priority = p.priority
    if p.delay > 0:
        c.delay = <int64_t>(p.delay * 1e9 + 0.5)
    if p.ttl > 0:
        c.ttl = <int64_t>(p.ttl * 1e9 + 0.5)
    if p.group != NULL:
        c.group = shmq_siphash_first(handle.q.h.options.hash_key, p.group.at, p.group.size) or 1
        shmq_fetch_bucket(&handle.q, c.group)
    if p.dedupe_id != NULL:
        shmq_siphash(handle.q.h.options.hash_key, p.dedupe_id.at, p.dedupe_id.size, hash)
        c.dedupe = hash
    return 0


# A put of one body: of a handle's `put`, see handle_put.pxi. `given` is as for `_wrap`.
cdef Put _put_body(Handle handle, body, block, timeout, PyObject **given, confirm):
    cdef Put put
    cdef int64_t until
    if timeout is not None:
        _check_timeout(timeout)
    if (confirm is not None or shmq_policies_now(handle.q.h).confirm) and _confirms(handle, confirm):
        until = _deadline(timeout)
        put = _put_in_memory(handle, body, block, timeout, given)
        _confirm(handle, put.sequence, 1, until)
        return put
    return _put_in_memory(handle, body, block, timeout, given)


cdef inline Put _put_plain(Handle handle, bytes body, block, timeout):
    cdef shmq_put c
    memset(&c, 0, sizeof(c))
    c.body = PyBytes_AS_STRING(body)
    c.body_bytes = PyBytes_GET_SIZE(body)
    c.priority = handle.q.middle
    return _put(handle, &c, block, timeout)


cdef Put _put_in_memory(Handle handle, body, block, timeout, PyObject **given):
    cdef PreparedPut prepared
    if type(body) is bytes and PyBytes_GET_SIZE(body) <= SMALL:
        if given == NULL:
            return _put_plain(handle, body, block, timeout)
        if not _has(given, SHMQ_P_CODEC):
            return _put_small(handle, body, block, timeout, given)
    prepared = _wrap(handle, body, given)
    if prepared.c.body_bytes > SMALL:
        return _put_large(handle, prepared, block, timeout)
    return _put(handle, &prepared.c, block, timeout)


# Puts a small `bytes` with properties. They are packed on the stack, if they fit there.
cdef Put _put_small(Handle handle, bytes body, block, timeout, PyObject **given):
    cdef char meta[ON_STACK]
    cdef uint64_t hash_[2]
    cdef Properties p
    cdef shmq_put c
    _check_given_id(handle, given)
    cdef bytes packed = _check_properties(&p, given, SHMQ_CODEC_BYTES,
                                          handle.q.h.options.priorities)
    memset(&c, 0, sizeof(c))
    c.codec = SHMQ_CODEC_BYTES
    c.body = PyBytes_AS_STRING(body)
    c.body_bytes = PyBytes_GET_SIZE(body)
    if _most_packed(&p, packed) <= ON_STACK:
        c.meta = meta
        c.meta_bytes = <uint32_t>_write(meta, &p, packed)
    else:
        packed = _pack(&p, packed)
        c.meta = PyBytes_AS_STRING(packed)
        c.meta_bytes = <uint32_t>PyBytes_GET_SIZE(packed)
    _take_properties(handle, &p, &c, hash_)
    return _put(handle, &c, block, timeout)


cdef PreparedPut _wrap_plainly(Handle handle, buffer, uint8_t codec):
    cdef PreparedPut prepared = PreparedPut.__new__(PreparedPut)
    prepared.keep = buffer
    prepared._set_body(buffer)
    prepared.c.codec = codec
    prepared.c.priority = handle.q.middle
    return prepared


cdef tuple _hash(Handle handle, text):
    return siphash(handle.q.h.options.hash_key, text.encode("utf-8", "surrogatepass"))


cdef Put _put(Handle handle, const shmq_put *c, block, timeout):
    cdef uint64_t seq = 0
    cdef int status, round_ = 0
    cdef int64_t until = UNKNOWN
    if shmq_fits(&handle.q, c.body_bytes, c.meta_bytes) != SHMQ_OK:
        raise _too_large(handle, c.body_bytes, c.meta_bytes)
    while True:
        if _quick_put(handle, c, &seq):
            return _new_put(seq, False)
        status = SHMQ_FULL
        if shmq_looks_roomy(&handle.q, 1) and _quick_put(handle, c, &seq):
            return _new_put(seq, False)
        if round_ > 0 or shmq_looks_roomy(&handle.q, 1):
            _lock_until(handle, True, SHMQ_NOT_FULL, block, timeout, &until)
            status = c_put(&handle.q, c, shmq_time_of_put(&handle.q, c), &seq)
            if status == SHMQ_FULL and round_ == 1:
                shmq_fall_asleep(&handle.q, SHMQ_NOT_FULL)
            _unlock(handle)
        if status == SHMQ_OK or status == SHMQ_DUPLICATE:
            handle._after()
            return _new_put(seq, status == SHMQ_DUPLICATE)
        if status != SHMQ_FULL:
            raise _error(handle, status)
        if not _may_wait(handle, SHMQ_NOT_FULL, block, timeout, &until, &round_):
            raise _full(handle)


# Tries to put without the get-side lock; whether the message was put.
cdef inline bint _quick_put(Handle handle, const shmq_put *c, uint64_t *seq) except -1:
    cdef int status
    if not shmq_is_plain(&handle.q, c):
        return False
    if not handle.open_ or handle.generation != fork_generation:
        handle._reopen()
    if shmq_lock_puts(&handle.q) != SHMQ_OK:
        return False
    status = shmq_quick_put(&handle.q, c, shmq_time_of_put(&handle.q, c), seq)
    if shmq_unlock_puts(&handle.q):
        _rouse(handle)
    if handle.q.h.dying.head != SHMQ_NIL:
        handle._after()
    return status == SHMQ_OK


# ---- large bodies ----

# A large body is written without the lock, into reserved and pinned space: even if the handle
# is closed in the meantime, no other message gets that space.
cdef Put _put_large(Handle handle, PreparedPut prepared, block, timeout):
    cdef int64_t until = UNKNOWN
    cdef Loan loan = _borrow(handle, prepared, block, timeout, &until)
    if loan.ended:
        return loan.put
    loan.until = _end_of(handle, SHMQ_NOT_FULL, block, timeout, &until)
    _copy(loan.holder.place, prepared.c.body, prepared.c.body_bytes - prepared.c.tail_bytes)
    memcpy(<char *>loan.holder.place + prepared.c.body_bytes - prepared.c.tail_bytes,
           prepared.c.tail, prepared.c.tail_bytes)
    shmq_mark()
    return loan.commit()


# Reserves and pins space: SHMQ_OK or SHMQ_DUPLICATE. Raises Full.
cdef int _reserve(Handle handle, PreparedPut prepared, block, timeout, int64_t *until,
                  shmq_view *view, uint64_t *seq) except -1:
    cdef int status, round_ = 0
    if shmq_fits(&handle.q, prepared.c.body_bytes, prepared.c.meta_bytes) != SHMQ_OK:
        raise _too_large(handle, prepared.c.body_bytes, prepared.c.meta_bytes)
    while True:
        _lock_until(handle, True, SHMQ_NOT_FULL, block, timeout, until)
        status = _reserve_locked(handle, prepared, view, seq)
        if status == SHMQ_FULL and round_ == 1:
            shmq_fall_asleep(&handle.q, SHMQ_NOT_FULL)
        _unlock(handle)
        if status == SHMQ_OK or status == SHMQ_DUPLICATE:
            return status
        if status != SHMQ_FULL:
            raise _error(handle, status)
        if not _may_wait(handle, SHMQ_NOT_FULL, block, timeout, until, &round_):
            raise _full(handle)


cdef int _reserve_locked(Handle handle, PreparedPut prepared, shmq_view *view, uint64_t *seq):
    cdef int64_t now = shmq_now()
    cdef int status = shmq_reserve(&handle.q, prepared.c.body_bytes, prepared.c.meta_bytes, now,
                                   prepared.c.dedupe, view, seq)
    if status == SHMQ_OK:
        status = shmq_pin(&handle.q, view.receipt, now, view)
        if status == SHMQ_OK:
            handle.views += 1
    return status


cdef Put _fill(Handle handle, uint64_t receipt, PreparedPut prepared, int64_t until):
    cdef uint64_t seq = 0
    cdef int status
    _lock_by(handle, until)
    status = shmq_fill(&handle.q, receipt, &prepared.c, shmq_now(), &seq)
    _unlock(handle)
    handle._after()
    if status == SHMQ_OK or status == SHMQ_DUPLICATE:
        return _new_put(seq, status == SHMQ_DUPLICATE)
    if status == SHMQ_FULL:
        raise _full(handle)
    if status == SHMQ_STALE:
        raise _errors.LeaseExpired(
            f"the space in queue {handle.name!r} was given back before the message was put")
    raise _error(handle, status)


# ---- many bodies ----

# Puts as many as fit and returns how many. `last` gets the sequence number of the last one. An
# error after the first put is not raised: the next call meets it again.
cdef Py_ssize_t _put_all(Handle handle, list prepared_puts, block, timeout,
                         uint64_t *last) except -1:
    cdef Py_ssize_t done = 0
    try:
        _put_each(handle, prepared_puts, block, timeout, &done, last)
    except _errors.Full:
        pass
    except _errors.QueueDeleted:
        raise
    except _errors.ShmqError:
        if not done:
            raise
    return done


# Counts the puts in `done`, even if it raises; also raises Full.
cdef int _put_each(Handle handle, list prepared_puts, block, timeout, Py_ssize_t *done,
                   uint64_t *last) except -1:
    cdef Py_ssize_t count = len(prepared_puts)
    cdef int status, round_ = 0
    cdef int64_t until = UNKNOWN
    while done[0] < count:
        _quick_run(handle, prepared_puts, done, last)
        if done[0] == count:
            break
        if _is_large(prepared_puts[done[0]]):
            last[0] = _put_large(handle, prepared_puts[done[0]], block, timeout).sequence
            done[0] += 1
            continue
        _lock_until(handle, True, SHMQ_NOT_FULL, block, timeout, &until)
        status = _put_run(handle, prepared_puts, done, round_ == 1, last)
        if status == SHMQ_OK:
            handle._after()
        elif status != SHMQ_FULL:
            raise _error(handle, status)
        elif not _may_wait(handle, SHMQ_NOT_FULL, block, timeout, &until, &round_):
            raise _full(handle)
    return 0


cdef bint _is_large(prepared):
    return type(prepared) is not bytes and (<PreparedPut>prepared).c.body_bytes > SMALL


# Puts what it can without the get-side lock, from prepared_puts[done[0]] on.
cdef int _quick_run(Handle handle, list prepared_puts, Py_ssize_t *done, uint64_t *last) except -1:
    cdef Py_ssize_t count = len(prepared_puts)
    cdef uint64_t copied = 0
    cdef int64_t now
    cdef shmq_put c
    cdef const shmq_put *p
    if not handle.open_ or handle.generation != fork_generation:
        handle._reopen()
    memset(&c, 0, sizeof(c))
    c.priority = handle.q.middle
    if shmq_lock_puts(&handle.q) != SHMQ_OK:
        return 0
    now = 0
    while done[0] < count and copied < MOST_UNDER_LOCK:
        prepared = <object>PyList_GET_ITEM(prepared_puts, done[0])
        p = _small(prepared, &c)
        if p == NULL:
            break
        if now == 0:
            now = shmq_time_of_put(&handle.q, p)
        if shmq_quick_put(&handle.q, p, now, last) != SHMQ_OK:
            break
        copied += p.body_bytes + 64
        done[0] += 1
    if shmq_unlock_puts(&handle.q):
        _rouse(handle)
    return 0


# Called with the lock, which it releases: puts what fits, from prepared_puts[done[0]] on.
cdef int _put_run(Handle handle, list prepared_puts, Py_ssize_t *done, bint asleep_if_full,
                  uint64_t *last) noexcept:
    cdef Py_ssize_t count = len(prepared_puts)
    cdef uint64_t copied = 0
    cdef int64_t now
    cdef int status = SHMQ_OK
    cdef shmq_put c
    cdef const shmq_put *p
    memset(&c, 0, sizeof(c))
    c.priority = handle.q.middle
    now = shmq_now()
    while done[0] < count and copied < MOST_UNDER_LOCK:
        prepared = <object>PyList_GET_ITEM(prepared_puts, done[0])
        p = _small(prepared, &c)
        if p == NULL:
            break
        status = c_put(&handle.q, p, now, last)
        if status != SHMQ_OK:
            break
        copied += p.body_bytes + 64
        done[0] += 1
    if status == SHMQ_FULL and asleep_if_full:
        shmq_fall_asleep(&handle.q, SHMQ_NOT_FULL)
    _unlock(handle)
    return status


# Whether the bodies can be put without encoding.
cdef bint _are_small(Handle handle, list bodies):
    for body in bodies:
        if type(body) is not bytes or PyBytes_GET_SIZE(body) > SMALL:
            return False
        if shmq_fits(&handle.q, PyBytes_GET_SIZE(body), 0) != SHMQ_OK:
            return False
    return True


cdef list _wrap_many(Handle handle, bodies, PyObject **given):
    cdef list prepared_puts
    cdef PreparedPut prepared
    if given == NULL and type(bodies) is list:
        prepared_puts = (<list>bodies)[:]  # a copy: the caller's list may change while we wait
        if _are_small(handle, prepared_puts):
            return prepared_puts
        bodies = prepared_puts
    prepared_puts = []
    for body in bodies:
        if given == NULL and type(body) is bytes and PyBytes_GET_SIZE(body) <= SMALL:
            if shmq_fits(&handle.q, PyBytes_GET_SIZE(body), 0) != SHMQ_OK:
                raise _too_large(handle, PyBytes_GET_SIZE(body), 0)
            prepared_puts.append(body)
            continue
        prepared_puts.append(_wrap_fitting(handle, body, given, False))
    return prepared_puts


# As `_wrap`; raises MessageTooLarge for what can never fit. `published`: it is encoded, too.
cdef PreparedPut _wrap_fitting(Handle handle, body, PyObject **given, bint published):
    cdef PreparedPut prepared = _wrap(handle, body, given, published, published)
    if shmq_fits(&handle.q, prepared.c.body_bytes, prepared.c.meta_bytes) != SHMQ_OK:
        raise _too_large(handle, prepared.c.body_bytes, prepared.c.meta_bytes)
    return prepared


# The put of a small prepared message, else NULL. `plain` is filled for a bare body.
cdef inline const shmq_put *_small(prepared, shmq_put *plain) noexcept:
    if type(prepared) is bytes:
        plain.body = PyBytes_AS_STRING(prepared)
        plain.body_bytes = PyBytes_GET_SIZE(prepared)
        return plain
    return &(<PreparedPut>prepared).c if (<PreparedPut>prepared).c.body_bytes <= SMALL else NULL


# ---- waiting until puts are on disk ----

# Whether a put must be on disk when it returns.
cdef bint _confirms(Handle handle, confirm) except -1:
    if confirm is None:
        return shmq_policies_now(handle.q.h).confirm
    if not isinstance(confirm, str):
        raise TypeError(f"confirm={confirm!r} must be one of 'memory', 'disk', not "
                        f"{type(confirm).__name__}")
    if confirm == "memory":
        return False
    if confirm != "disk":
        raise _errors.InvalidOption(f"confirm={confirm!r} must be one of 'memory', 'disk'")
    if not handle.q.journaled:
        durability = _DURABILITY[handle.q.h.options.durability % 3]
        raise _errors.InvalidOption(
            f"confirm='disk': queue {handle.name!r} keeps no journal "
            f"(durability={durability!r}): make it with durability='journal', or put with "
            f"confirm='memory'")
    return True


# Waits after `taken` messages were put, the last one with number `seq`. Raises NotConfirmed.
cdef int _confirm(Handle handle, uint64_t seq, Py_ssize_t taken, int64_t until) except -1:
    if not _wait_synced(handle, seq, until):
        raise handle._not_confirmed(seq, taken)
    return 0


# ---- space in the queue that the application writes in place ----

@cython.no_gc_clear
@cython.final
cdef class Loan:
    """Implements :class:`shmq.api.Loan`."""

    cdef Handle handle
    cdef PreparedPut prepared
    cdef uint64_t receipt
    cdef uint64_t generation     # the space belongs to the process that borrowed it
    cdef View holder
    cdef object memory
    cdef bint ended
    cdef bint confirms           # the commit returns once it is on disk,
    cdef object patience         #   or so many seconds after it
    cdef int64_t until           # the end of the put that it is part of
    #| put: Put | None
    cdef readonly Put put

    @property
    def view(self) -> memoryview:
        """See shmq.api.Loan.view."""
        if self.ended:
            raise ValueError("the loan has ended: it was committed or dropped")
        return self.memory

    def commit(self, size: int | None = None) -> Put:
        """See shmq.api.Loan.commit."""
        if self.ended:
            raise ValueError("the loan has ended: it was committed or dropped")
        if self.generation != fork_generation:
            raise _errors.ShmqError("the loan is the parent's: borrow in the child")
        if size is not None:
            size = _whole("size", size)
            if not 0 <= size <= self.prepared.c.body_bytes:
                raise _errors.InvalidOption(
                    f"size={size} is not within the loan: 0 to {self.prepared.c.body_bytes}")
            self.prepared.c.body_bytes = size
        self._end()  # first: the consumer must not find our pin on the message
        try:
            self.put = _fill(self.handle, self.receipt, self.prepared, self.until)
        except BaseException:
            self._abandon()  # does nothing if the message was put
            raise
        if self.confirms:
            _confirm(self.handle, self.put.sequence, 1, _deadline(self.patience))
        return self.put

    def drop(self):
        """See shmq.api.Loan.drop."""
        if not self.ended:
            self._end()
            if self.handle.open_ and self.generation == fork_generation:
                self._abandon()

    # Releases the memory. If the application still holds a view of it, the pin keeps the bytes from
    # being reused until that view is gone.
    cdef int _end(self) except -1:
        self.ended = True
        if self.memory is not None:
            try:
                self.memory.release()
            except BufferError:
                pass
        self.memory = None
        self.holder = None
        return 0

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(self, kind, error, trace):
        if self.ended:
            return
        if kind is None:
            self.commit()
        else:
            self.drop()

    def __dealloc__(self):
        if not self.ended and self.handle is not None:
            if self.handle.open_ and self.generation == fork_generation:
                self._abandon()

    cdef void _abandon(self) noexcept:
        with nogil:
            if _lock_to_end(self.handle):
                shmq_abandon(&self.handle.q, self.receipt)
                _unlock(self.handle)
            else:
                _disown(self.handle, self.receipt)


# Reserves and pins space for the prepared message. If the dedupe id is known, the loan has ended
# already and has its `put`. Everything that can fail is done before the space is taken.
cdef Loan _borrow(Handle handle, PreparedPut prepared, block, timeout, int64_t *until):
    cdef Loan loan = Loan.__new__(Loan)
    cdef View holder = View.__new__(View)
    cdef shmq_view view
    cdef uint64_t seq = 0
    loan.ended = True
    loan.handle = handle
    loan.until = AT_ONCE
    loan.prepared = prepared
    if _reserve(handle, prepared, block, timeout, until, &view, &seq) == SHMQ_DUPLICATE:
        loan.put = _new_put(seq, True)
        return loan
    _hold(holder, handle, &view)
    holder.writable = True
    loan.holder = holder
    loan.receipt = view.receipt
    loan.generation = fork_generation
    loan.ended = False
    if prepared.c.meta_bytes:
        memcpy(<void *>view.meta, prepared.c.meta, prepared.c.meta_bytes)
    shmq_mark()
    return loan


def make_loan(Handle handle, size: int, block: bool | None = None,
              timeout: float | None = None, *, confirm: str | None = None,
              **properties: Any) -> Any:
    """See shmq.api.Queue.loan."""
    cdef PyObject *given[SHMQ_PROPERTIES]
    cdef PreparedPut prepared
    cdef Loan loan
    cdef int64_t until = UNKNOWN
    cdef bint confirms = _confirms(handle, confirm)
    size = _whole("size", size)
    if not 0 <= size < 1 << 63:
        raise _errors.InvalidOption(f"size={size} must be 0 or more bytes")
    _check_timeout(timeout)
    _take_given(properties, given, SHMQ_CALL_PUT, "loan")
    prepared = _wrap(handle, b"", given, True)
    prepared.c.body_bytes = size
    loan = _borrow(handle, prepared, block, timeout, &until)
    if loan.ended:
        if confirms:
            _confirm(handle, loan.put.sequence, 1, _deadline(timeout))
        return DuplicateLoan(memoryview(bytearray(size)), loan.put)
    loan.memory = memoryview(loan.holder)
    loan.confirms = confirms
    loan.patience = timeout
    return loan


@cython.final
cdef class DuplicateLoan:
    """The loan of a message that was put before: data written to it is discarded."""

    #| view: memoryview
    cdef readonly object view
    cdef readonly Put put

    def __init__(self, view: memoryview, Put put):
        self.view = view
        self.put = put

    def commit(self, size: int | None = None) -> Put:
        """Return the result of the first put."""
        return self.put

    def drop(self):
        """Do nothing: no space was taken."""

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(self, kind, error, trace):
        return None
