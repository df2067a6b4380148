# Space in the queue that the application writes in place.

@cython.no_gc_clear
@cython.final
cdef class Loan:
    """See :class:`shmq.api.Loan`."""

    cdef _Putter handle
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
            self.put = self.handle._fill(self.receipt, self.prepared, self.until)
        except BaseException:
            self._abandon()  # does nothing if the message was put
            raise
        if self.confirms:
            self.handle._confirm(self.put.sequence, 1, _deadline(self.patience))
        return self.put

    def drop(self):
        """See shmq.api.Loan.drop."""
        if not self.ended:
            self._end()
            if self.handle.open_ and self.generation == fork_generation:
                self.handle.abandon(self.receipt)

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
            if self.handle._lock_to_end():
                shmq_abandon(&self.handle.q, self.receipt)
                self.handle._unlock()


# Reserves and pins space for the prepared message. If the dedupe id is known, the loan has ended
# already and has its `put`. Everything that can fail is done before the space is taken.
cdef Loan _borrow(_Putter handle, PreparedPut prepared, block, timeout, int64_t *until):
    cdef Loan loan = Loan.__new__(Loan)
    cdef View holder = View.__new__(View)
    cdef shmq_view view
    cdef uint64_t seq = 0
    loan.ended = True
    loan.handle = handle
    loan.until = AT_ONCE
    loan.prepared = prepared
    if handle._reserve(prepared, block, timeout, until, &view, &seq) == SHMQ_DUPLICATE:
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


def make_loan(_Putter handle: Handle, size: int, block: bool | None = None,
              timeout: float | None = None, *, priority: int | None = None,
              group: str | None = None, headers: Mapping[str, Any] | None = None,
              delay: float | None = None, deliver_at: float | None = None,
              ttl: float | None = None, dedupe_id: str | None = None, codec: str | None = None,
              reply_to: str | None = None, correlation: str | None = None,
              confirm: str | None = None) -> Any:
    """See shmq.api.Queue.loan."""
    cdef PreparedPut prepared
    cdef Loan loan
    cdef int64_t until = UNKNOWN
    cdef bint confirms = handle._confirms(confirm)
    size = _whole("size", size)
    if not 0 <= size < 1 << 63:
        raise _errors.InvalidOption(f"size={size} must be 0 or more bytes")
    _check_timeout(timeout)
    if (priority is None and group is None and headers is None and delay is None
            and deliver_at is None and ttl is None and dedupe_id is None and codec is None
            and reply_to is None and correlation is None):
        prepared = handle._wrap_plainly(b"", 0)
    else:
        prepared = handle._wrap(b"", codec, priority, group, headers, delay, deliver_at, ttl,
                              dedupe_id, reply_to, correlation, True)
    prepared.c.body_bytes = size
    loan = _borrow(handle, prepared, block, timeout, &until)
    if loan.ended:
        if confirms:
            handle._confirm(loan.put.sequence, 1, _deadline(timeout))
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
