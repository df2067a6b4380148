# Leasing, also by a filter, and settling leases. Filters: see shmq/core/queue/filter.h.

#: The numbers of a program's operations, fields, relations and kinds of constants, by name.
FILTER_OPERATIONS = {"not": SHMQ_OP_NOT, "and": SHMQ_OP_AND, "or": SHMQ_OP_OR, "test": SHMQ_OP_TEST}
FILTER_FIELDS = {
    "reason": SHMQ_FIELD_REASON, "queue": SHMQ_FIELD_QUEUE, "deliveries": SHMQ_FIELD_DELIVERIES,
    "at": SHMQ_FIELD_AT, "age": SHMQ_FIELD_AGE, "group": SHMQ_FIELD_GROUP,
    "correlation": SHMQ_FIELD_CORRELATION, "codec": SHMQ_FIELD_CODEC,
    "priority": SHMQ_FIELD_PRIORITY, "sequence": SHMQ_FIELD_SEQUENCE, "size": SHMQ_FIELD_SIZE,
    "header": SHMQ_FIELD_HEADER, "error": SHMQ_FIELD_ERROR,
}
FILTER_RELATIONS = {
    "=": SHMQ_IS_EQUAL, "<": SHMQ_IS_LESS, "<=": SHMQ_IS_AT_MOST, ">": SHMQ_IS_MORE,
    ">=": SHMQ_IS_AT_LEAST, "like": SHMQ_IS_LIKE,
}
FILTER_CONSTANTS = {
    "nil": SHMQ_CONST_NIL, "bool": SHMQ_CONST_BOOL, "int": SHMQ_CONST_INT, "real": SHMQ_CONST_REAL,
    "text": SHMQ_CONST_TEXT,
}


@cython.final
cdef class Filter:
    """A compiled filter: a program of shmq/core/queue/filter.h. Raises ValueError."""

    cdef bytes keep
    cdef shmq_filter c

    def __cinit__(self, bytes code not None):
        cdef const char *wrong
        if len(code) > SHMQ_FILTER_BYTES:
            raise ValueError(f"a filter of {len(code)} bytes: {SHMQ_FILTER_BYTES} at most")
        self.keep = code
        self.c.code = <const unsigned char *>PyBytes_AS_STRING(code)
        self.c.bytes = <uint32_t>len(code)
        wrong = shmq_filter_fault(&self.c)
        if wrong != NULL:
            raise ValueError(f"a filter of {len(code)} bytes: {wrong.decode()}")

    @property
    def code(self) -> bytes:
        """The program."""
        return self.keep

    def matches(self, bytes properties not None, *, uint64_t sequence=0, uint8_t priority=0,
                uint32_t size=0, uint8_t codec=0, double now=0.0) -> bool:
        """Whether a message with these packed ``properties`` matches; ``now``: s since 1970."""
        cdef shmq_facts facts
        facts.meta = <const unsigned char *>PyBytes_AS_STRING(properties)
        facts.meta_bytes = <uint32_t>len(properties)
        facts.size = size
        facts.seq = sequence
        facts.priority = priority
        facts.codec = codec
        facts.wall = _ns(now)
        return shmq_filter_matches(&self.c, &facts)


cdef Filter _filter_of(where):
    return where if type(where) is Filter else _policy.compile_filter(where)


cdef object _get_filtered(Handle handle, Filter filter, block, timeout):
    found = handle._wait_filtered(lambda: handle.select(filter, 1), block, timeout)
    if found:
        return found[0]
    if block and timeout is not None:
        raise _errors.Empty(
            f"no message that `where` means came to queue {handle.name!r} within {timeout} s")
    raise _errors.Empty(f"no message that `where` means is visible in queue {handle.name!r}")


# `max`, limited to what the queue can hold.
cdef int _most(Handle handle, max, timeout) except -1:
    max = _whole("max", max)
    if max < 1:
        raise _errors.InvalidOption(f"max={max} must be 1 or more")
    _check_timeout(timeout)
    return min(max, shmq_capacity(&handle.q))


# Leases 1 to `most` messages and counts them as delivered; 0 if none came in time. With
# `packed`: stops once they hold `records` records.
cdef int _lease_some(Handle handle, shmq_view *views, int most, block, timeout,
                     shmq_packed *packed=NULL, uint64_t records=0) except -1:
    cdef int status, got, round_ = 0
    cdef int64_t until = UNKNOWN
    handle._consume()
    while True:
        _lock_until(handle, round_ > 0, SHMQ_NOT_EMPTY, block, timeout, &until)
        status = _lease_run(handle, views, most, &got, packed, records)
        if status == SHMQ_EMPTY and not got and round_ == 1:
            shmq_fall_asleep(&handle.q, SHMQ_NOT_EMPTY)
        _unlock(handle)
        if got:
            handle._after()
            return got
        if status != SHMQ_OK and status != SHMQ_EMPTY:
            raise _error(handle, status)
        if not _may_wait(handle, SHMQ_NOT_EMPTY, block, timeout, &until, &round_):
            _found_nothing(handle)
            return 0


# The caller holds the lock.
cdef int _lease_run(Handle handle, shmq_view *views, int most, int *got, shmq_packed *packed,
                    uint64_t records) noexcept:
    cdef int64_t now = shmq_time(&handle.q)
    cdef int status = SHMQ_OK
    cdef uint64_t bytes_ = 0, taken = 0
    got[0] = 0
    while got[0] < most:
        status = shmq_lease(&handle.q, now, True, &views[got[0]])
        if status != SHMQ_OK:
            break
        if packed != NULL:
            _read_packed(&views[got[0]], &packed[got[0]])
            taken += packed[got[0]].count
            bytes_ += packed[got[0]].bytes
            got[0] += 1
            if taken >= records or bytes_ >= MOST_UNDER_LOCK:
                break
            continue
        got[0] += 1
    return status


# Leases up to `most` matching messages in queue order; how many. The lock is held for one part
# of the search at a time, and at first it is the whole queue's, so that the search never
# concludes from the get side alone that there is nothing.
cdef int _select_run(Handle handle, Filter filter, shmq_view *views, int most, bint handed,
                     _AckBuffer gatherer) except -1:
    cdef shmq_selection choice
    cdef int64_t now
    cdef int status = SHMQ_OK, got = 0
    handle._consume()
    _lock(handle)
    if gatherer is not None:
        gatherer.flush_locked()
    shmq_select_begin(&handle.q, &choice, &filter.c)
    while True:
        now = shmq_time(&handle.q)
        while got < most:
            status = shmq_select(&handle.q, &choice, now, handed, &views[got])
            if status != SHMQ_OK:
                break
            got += 1
        _unlock(handle)
        if got == most or status != SHMQ_EMPTY or not choice.more:
            break
        shmq_select_again(&choice)
        if not got:
            PyErr_CheckSignals()  # messages leased already are not lost to a signal
        try:
            _lock_gets(handle)
        except _errors.LockTimeout:
            if not got:
                raise
            break  # nor to a failure to get the lock
    handle._after()
    if not got and status != SHMQ_EMPTY:
        raise _error(handle, status)
    return got


cdef shmq_view *_new_views(int most) except NULL:
    cdef shmq_view *views = <shmq_view *>malloc(most * sizeof(shmq_view))
    if views == NULL:
        raise MemoryError
    return views
