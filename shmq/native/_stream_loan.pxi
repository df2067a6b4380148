# Records whose values are written in place, before they are appended.

cdef class LentPlace:
    """A place in a partition's ring, exported as a writable buffer.

    The loan ends when the record is appended or dropped; if a view of the place is left then, when
    that is gone.
    """

    cdef Partition log
    cdef shmq_log_loan c
    cdef Py_ssize_t size
    cdef pid_t borrower          # a forked child does not end its parent's loans
    cdef uint64_t views
    cdef bint over               # the loan ends with the last view

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.c.value, self.size, 0, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.views -= 1
        if self.over and not self.views:
            self._end()

    def __dealloc__(self):
        self._end()

    cdef void _end(self) noexcept:
        cdef int status
        if self.c.value == NULL or self.borrower != getpid():
            return
        with nogil:
            status = shmq_log_lock(&self.log.c, LOAN_PATIENCE)
            if status == SHMQ_OK:
                shmq_log_end_loan(&self.log.c, &self.c)
                shmq_log_unlock(&self.log.c)
                shmq_log_wake_room(&self.log.c)
        self.c.value = NULL


#| class RecordLoan(api.RecordLoan):
@cython.final
cdef class RecordLoan:
    """Implements :class:`shmq.api.RecordLoan`."""

    cdef StreamHandle handle
    cdef LentPlace place
    cdef object memory
    cdef bytes key, headers
    cdef int64_t timestamp
    cdef object partition, block, timeout
    cdef bint confirms, ended
    #| appended: api.Appended | None
    cdef readonly Appended appended

    @property
    def view(self) -> memoryview:
        """See shmq.api.RecordLoan."""
        self._check()
        return self.memory

    cdef int _check(self) except -1:
        if self.ended:
            raise ValueError("the loan has ended: it was committed or dropped")
        return 0

    def commit(self, size: int | None = None) -> api.Appended:
        """See shmq.api.RecordLoan."""
        cdef shmq_log_item item
        cdef shmq_log_piece piece
        cdef shmq_log_appended out
        cdef Partition log = self.place.log
        cdef uint64_t length = self.place.size
        self._check()
        if self.place.borrower != getpid():
            raise _errors.ShmqError("the loan is the parent's: borrow in the child")
        self.handle._check()
        if size is not None:
            length = _natural("size", size)
            if length > <uint64_t>self.place.size:
                raise _errors.InvalidOption(
                    f"size={size} is not within the loan: 0 to {self.place.size}")
        _fill_item(&item, length, self.key, self.headers)
        memset(&piece, 0, sizeof(piece))
        piece.items, piece.count, piece.timestamp = &item, 1, self.timestamp
        piece.loan = &self.place.c
        piece.loan.keep = not self._release()
        try:
            if not self.handle._place(log, &piece, length, self.block, self.timeout, &out):
                return self._append_elsewhere(length)
            self.appended = _appended_of(log.number, &out)
        finally:
            self.place.over = True
            if not self.place.views:
                self.place._end()
        if self.confirms:
            self.handle._confirm(log, <int64_t>out.first + 1, self.timeout)
        return self.appended

    cdef object _append_elsewhere(self, uint64_t length):
        """Append a copy after the partition was sealed."""
        value = PyBytes_FromStringAndSize(<const char *>self.place.c.value, length)
        self.appended = self.handle.append(
            value, key=self.key, headers=_unpack(self.headers) if self.headers else None,
            timestamp=_seconds(self.timestamp) if self.timestamp else None,
            partition=self.partition, block=self.block, timeout=self.timeout,
            confirm="disk" if self.confirms else None)
        return self.appended

    def drop(self):
        """See shmq.api.RecordLoan."""
        if not self.ended:
            self.place.over = True
            if self._release():
                self.place._end()

    # Ends the use of the view; False if the application still has a view of its own.
    cdef bint _release(self) except -1:
        self.ended = True
        try:
            self.memory.release()
        except BufferError:
            pass
        self.memory = None
        return self.place.views == 0

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(self, kind, error, trace):
        if self.ended:
            return
        if kind is None:
            self.commit()
        else:
            self.drop()


cdef int _fill_item(shmq_log_item *item, uint64_t size, bytes key, bytes headers) except -1:
    memset(item, 0, sizeof(shmq_log_item))
    item.count = 1
    item.value_bytes = _small("value", size)
    if key is not None:
        item.flags = SHMQ_E_KEYED
        item.key = PyBytes_AS_STRING(key)
        item.key_bytes = _small("key", PyBytes_GET_SIZE(key))
    if headers is not None:
        item.headers = PyBytes_AS_STRING(headers)
        item.headers_bytes = _small("headers", PyBytes_GET_SIZE(headers))
    return 0


def make_loan(StreamHandle handle, size: int, key: _Key, headers: Mapping[str, Any] | None,
              timestamp: float | None, partition: int | None, block: bool | None,
              timeout: float | None, confirm: str | None) -> RecordLoan | None:
    """Borrow a place for a record in the ring; None if the partition cannot lend one now."""
    cdef shmq_log_item item
    cdef shmq_log_piece piece
    cdef shmq_log_appended out
    cdef LentPlace place = LentPlace.__new__(LentPlace)
    cdef RecordLoan loan = RecordLoan.__new__(RecordLoan)
    cdef uint64_t length = _natural("size", size)
    loan.handle, loan.partition, loan.block, loan.timeout = handle, partition, block, timeout
    loan.ended = True
    loan.key, loan.headers = _key_bytes(key), _headers_bytes(headers)
    loan.timestamp = _wall_ns(timestamp)
    if handle._is_altered():
        handle._learn()
    loan.confirms = handle.confirms_on_disk(confirm)
    handle._check()
    handle._check_size(length + (len(loan.key) if loan.key is not None else 0)
                       + (len(loan.headers) if loan.headers is not None else 0))
    _fill_item(&item, length, loan.key, loan.headers)
    memset(&piece, 0, sizeof(piece))
    piece.items, piece.count, piece.loan = &item, 1, &place.c
    place.log = handle._log_for(partition, loan.key, length)
    place.c.owner = handle._own_number()
    place.borrower = getpid()
    if not handle._place(place.log, &piece, 0, block, timeout, &out):
        handle._look_for_dead(place.log.number)
        if not handle._place(place.log, &piece, 0, block, timeout, &out):
            return None
    place.size = length
    loan.place, loan.memory = place, memoryview(place)
    loan.ended = False
    return loan
