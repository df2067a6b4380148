# Messages as columns: blocks of queue/columns.h, read from a queue without leases.

cdef enum:
    MOST_COLUMNS = 0x7FFFFFFF   # bytes of a block: Arrow's offsets have 31 bits

# The name and format of each array of a block, in the order of `enum shmq_column`.
COLUMN_FORMATS = (
    ("sequence", "Q"), ("put_at", "q"), ("visible_at", "q"), ("lease_until", "q"),
    ("expires", "q"), ("dead_at", "q"), ("deliveries", "i"), ("priority", "i"), ("state", "B"),
    ("reason", "B"), ("codec", "B"), ("body_offsets", "i"), ("bodies", "B"),
    ("meta_offsets", "i"), ("metas", "B"),
)


def columns_of(bytes data) -> tuple[int, list[tuple[int, int]]]:
    """The number of rows of a block, and the place of each array: (offset, bytes) by column.

    Raises ValueError for bytes that are not a block.
    """
    cdef shmq_columns_layout layout
    cdef int i
    if not shmq_columns_read(<const unsigned char *>PyBytes_AS_STRING(data),
                             PyBytes_GET_SIZE(data), &layout):
        raise ValueError(f"these {len(data)} bytes are no block of columns: its lengths "
                         f"contradict each other, or what follows them does")
    return layout.count, [(layout.offset[i], layout.bytes[i]) for i in range(SHMQ_COLUMNS)]


cdef uint64_t _most_bytes(max_bytes) except 0:
    max_bytes = _whole("max_bytes", max_bytes)
    if max_bytes < 1:
        raise _errors.InvalidOption(f"max_bytes={max_bytes} must be 1 or more")
    return min(max_bytes, MOST_COLUMNS)


cpdef bytes numbers_of(str name, value, int width):
    """A buffer of numbers of ``width`` bytes each, as bytes. Raises InvalidOption, TypeError."""
    cdef bytes raw = value if type(value) is bytes else bytes(memoryview(value))
    if PyBytes_GET_SIZE(raw) % width:
        raise _errors.InvalidOption(
            f"{name} has {len(raw)} bytes, which are no whole numbers of {width} bytes")
    return raw


#| def places_of(slots: Any, sequences: Any) -> tuple[bytes, bytes, int]: ...
cpdef tuple places_of(slots, sequences):
    """Slots and sequence numbers of a run as bytes, and how many there are."""
    cdef bytes places = numbers_of("slots", slots, 4)
    cdef bytes numbers = numbers_of("sequences", sequences, 8)
    if len(places) // 4 != len(numbers) // 8:
        raise _errors.InvalidOption(
            f"slots has {len(places) // 4} numbers, and sequences {len(numbers) // 8}: they belong "
            f"together")
    return places, numbers, len(numbers) // 8


def gone(str name, list sequences: list[int], total: int) -> Exception:
    """The error that names the messages of a run that are gone."""
    named = ", ".join(map(str, sequences[:10])) + (", ..." if len(sequences) > 10 else "")
    return _errors.LeaseExpired(
        f"{len(sequences)} of {total} messages are not in queue {name!r} any more: {named}; their "
        f"leases ended, or they were settled")


cdef int _begin_excerpt(shmq_snapshot_read *e, uint64_t max_bytes, uint64_t messages) except -1:
    shmq_snapshot_read_begin(e, messages, max_bytes, MOST_COLUMNS)
    if e.picks == NULL:
        raise MemoryError
    return 0


# The block of the selected messages.
cdef object _excerpt(shmq_queue *q, const shmq_snapshot_read *e):
    cdef shmq_columns_layout layout
    cdef shmq_columns columns
    cdef uint64_t size
    shmq_columns_lay_out(&layout, e.count, e.body_bytes, e.meta_bytes)
    cdef bytes data = PyBytes_FromStringAndSize(NULL, layout.size)
    cdef char *base = PyBytes_AS_STRING(data)
    with nogil:
        shmq_columns_begin(&columns, base, &layout)
        shmq_snapshot_read_copy(q, e, shmq_wall_offset(), &columns)
        size = shmq_columns_end(&columns)
    return _policy.columns(data if size == layout.size else data[:size])


@cython.no_gc_clear
cdef class _Reader(_Watcher):
    """The part of a handle that reads messages in place."""

    def slots(self) -> int:
        """See shmq.api.Queue.slots."""
        self._be_usable()
        return min(self.q.h.slots_made, self.q.h.options.capacity)

    # Reading takes no lock, so it checks by itself that the handle and the queue are usable.
    cdef int _be_usable(self) except -1:
        if not self.open_ or self.generation != fork_generation:
            self._reopen()
        if self.q.h.state != SHMQ_OPEN:
            raise self._error(SHMQ_DELETED if self.q.h.state == SHMQ_GONE else SHMQ_DAMAGED)
        return 0

    cdef int _do_what_is_due(self) except -1:
        if self.q.h.next_tick <= shmq_now():
            self._lock()
            shmq_tick(&self.q, shmq_now())
            self._unlock()
            self._after()
        return 0

    def read_columns(self, start: int = 0, *, max_bytes: int = 4 << 20,
                     end: int | None = None) -> tuple[api.Columns, int | None]:
        """See shmq.api.Queue.read_columns."""
        cdef uint32_t at, last, made
        cdef int status
        cdef shmq_snapshot_read e
        self._be_usable()
        self._do_what_is_due()
        at = self._slot_bound("start", start)
        made = min(self.q.h.slots_made, self.q.h.options.capacity)
        last = min(made, made if end is None else self._slot_bound("end", end))
        _begin_excerpt(&e, _most_bytes(max_bytes), last - at if last > at else 0)
        try:
            with nogil:
                status = shmq_snapshot_read_slots(&self.q, &e, &at, last)
            if status == SHMQ_TOO_LARGE:
                raise self._too_wide(self.q.slots[at].seq)
            if status != SHMQ_OK:
                raise self._error(status)
            return _excerpt(&self.q, &e), at if at < last else None
        finally:
            free(e.picks)

    cdef uint32_t _slot_bound(self, str name, value) except? 0xFFFFFFFF:
        value = _whole(name, value)
        if value < 0:
            raise _errors.InvalidOption(f"{name}={value} must be 0 or more")
        return min(value, 1 << 24)

    cdef object _too_wide(self, uint64_t seq):
        return _errors.MessageTooLarge(
            f"message {seq} of queue {self.name!r} is too large for a column: a block holds up to "
            f"{MOST_COLUMNS} bytes; take it by get")

    def read_run(self, slots: bytes, sequences: bytes, *, start: int = 0,
                 max_bytes: int = 4 << 20) -> tuple[api.Columns, int | None]:
        """See shmq.api.Queue.read_run."""
        cdef bytes places, numbers
        cdef uint64_t count, at, begin
        cdef int status
        cdef shmq_snapshot_read e
        places, numbers, count = places_of(slots, sequences)
        cdef const uint32_t *where = <const uint32_t *>PyBytes_AS_STRING(places)
        cdef const uint64_t *which = <const uint64_t *>PyBytes_AS_STRING(numbers)
        start = _whole("start", start)
        if not 0 <= start <= count:
            raise _errors.InvalidOption(f"start={start} is out of range: 0 to {count}")
        begin = at = start
        self._be_usable()
        _begin_excerpt(&e, _most_bytes(max_bytes), count - at)
        try:
            with nogil:
                status = shmq_snapshot_read_run(&self.q, &e, where, which, &at, count)
            if status == SHMQ_TOO_LARGE:
                raise self._too_wide(which[at])
            if status == SHMQ_DAMAGED:
                raise self._error(status)
            columns = _excerpt(&self.q, &e) if status == SHMQ_OK else None
            if columns is None or columns.count < e.count:
                raise self._gone(where, which, begin, count)
            return columns, at if at < count else None
        finally:
            free(e.picks)

    cdef object _gone(self, const uint32_t *where, const uint64_t *which, uint64_t begin,
                      uint64_t end):
        cdef uint64_t i
        return gone(self.name, [which[i] for i in range(begin, end)
                                if not shmq_is_there(&self.q, where[i], which[i])], end - begin)
