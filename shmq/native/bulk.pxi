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


cdef int _begin_read(shmq_snapshot_read *e, uint64_t max_bytes, uint64_t messages) except -1:
    shmq_snapshot_read_begin(e, messages, max_bytes, MOST_COLUMNS)
    if e.picks == NULL:
        raise MemoryError
    return 0


# The block of the selected messages.
cdef object _block_of(shmq_queue *q, const shmq_snapshot_read *e):
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


cdef enum:
    RUN_UNDER_LOCK = 1024       # messages of one critical section

# The columns of a run while it is being built.
@cython.final
cdef class _RunColumns:
    cdef bytes sequences, receipts, slots
    cdef uint64_t *sequence
    cdef uint64_t *receipt
    cdef uint32_t *slot
    cdef uint64_t count, bytes_

    def __cinit__(self, uint64_t room):
        self.sequences = PyBytes_FromStringAndSize(NULL, room * 8)
        self.receipts = PyBytes_FromStringAndSize(NULL, room * 8)
        self.slots = PyBytes_FromStringAndSize(NULL, room * 4)
        self.sequence = <uint64_t *>PyBytes_AS_STRING(self.sequences)
        self.receipt = <uint64_t *>PyBytes_AS_STRING(self.receipts)
        self.slot = <uint32_t *>PyBytes_AS_STRING(self.slots)

    cdef inline void add(self, const shmq_seal *seal, const shmq_view *view) noexcept nogil:
        self.sequence[self.count] = view.seq
        self.receipt[self.count] = c_seal(seal, view.receipt)
        self.slot[self.count] = view.at
        self.count += 1
        self.bytes_ += <uint64_t>view.body_bytes + view.meta_bytes

    cdef object run(self):
        return _policy.run(self.sequences[:self.count * 8], self.receipts[:self.count * 8],
                           self.slots[:self.count * 4])


cdef int64_t _lease_ns(seconds) except -1:
    cdef int64_t ns = _span_ns("seconds", seconds)
    if not ns:
        raise _errors.InvalidOption(f"seconds={seconds} must be more than 0: a lease takes time")
    return ns


cdef uint32_t _epoch(epoch) except? 0xFFFFFFFF:
    epoch = _whole("epoch", epoch)
    if not 0 <= epoch <= 0xFFFFFFFF:
        raise _errors.InvalidOption(f"epoch={epoch} must be 0 to {0xFFFFFFFF}")
    return epoch


cdef uint64_t _budget(max_bytes) except 0:
    max_bytes = _whole("max_bytes", max_bytes)
    if max_bytes < 1:
        raise _errors.InvalidOption(f"max_bytes={max_bytes} must be 1 or more")
    return min(max_bytes, 0x7FFFFFFFFFFFFFFF)


cdef class Bulk:
    """The part of a handle for very many messages at once: see :class:`shmq.api.BulkQueue`."""

    cdef readonly Handle handle

    def __cinit__(self, Handle handle not None):
        self.handle = handle

    def slots(self) -> int:
        """See shmq.api.BulkQueue.slots."""
        self._be_usable()
        return min(self.handle.q.h.slots_made, self.handle.q.geo.slots_max)

    # Reading takes no lock, so it checks by itself that the handle and the queue are usable.
    cdef int _be_usable(self) except -1:
        if not self.handle.open_ or self.handle.generation != fork_generation:
            self.handle._reopen()
        if self.handle.q.h.state != SHMQ_OPEN:
            gone = self.handle.q.h.state == SHMQ_GONE
            raise _error(self.handle, SHMQ_DELETED if gone else SHMQ_DAMAGED)
        return 0

    cdef int _do_what_is_due(self) except -1:
        if self.handle.q.h.next_tick <= shmq_now():
            _lock(self.handle)
            shmq_tick(&self.handle.q, shmq_now())
            _unlock(self.handle)
            self.handle._after()
        return 0

    def read_columns(self, start: int = 0, *, max_bytes: int = 4 << 20,
                     end: int | None = None) -> tuple[api.Columns, int | None]:
        """See shmq.api.BulkQueue.read_columns."""
        cdef uint32_t at, last, made
        cdef int status
        cdef shmq_snapshot_read e
        self._be_usable()
        self._do_what_is_due()
        at = self._slot_bound("start", start)
        made = min(self.handle.q.h.slots_made, self.handle.q.geo.slots_max)
        last = min(made, made if end is None else self._slot_bound("end", end))
        _begin_read(&e, _most_bytes(max_bytes), last - at if last > at else 0)
        try:
            with nogil:
                status = shmq_snapshot_read_slots(&self.handle.q, &e, &at, last)
            if status == SHMQ_TOO_LARGE:
                raise self._too_wide(self.handle.q.slots[at].seq)
            if status != SHMQ_OK:
                raise _error(self.handle, status)
            return _block_of(&self.handle.q, &e), at if at < last else None
        finally:
            free(e.picks)

    cdef uint32_t _slot_bound(self, str name, value) except? 0xFFFFFFFF:
        value = _whole(name, value)
        if value < 0:
            raise _errors.InvalidOption(f"{name}={value} must be 0 or more")
        return min(value, 1 << 24)

    cdef object _too_wide(self, uint64_t seq):
        return _errors.MessageTooLarge(
            f"message {seq} of queue {self.handle.name!r} is too large for a column: a block holds up "
            f"to {MOST_COLUMNS} bytes; take it by get")

    def read_run(self, slots: bytes, sequences: bytes, *, start: int = 0,
                 max_bytes: int = 4 << 20) -> tuple[api.Columns, int | None]:
        """See shmq.api.BulkQueue.read_run."""
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
        _begin_read(&e, _most_bytes(max_bytes), count - at)
        try:
            with nogil:
                status = shmq_snapshot_read_run(&self.handle.q, &e, where, which, &at, count)
            if status == SHMQ_TOO_LARGE:
                raise self._too_wide(which[at])
            if status == SHMQ_DAMAGED:
                raise _error(self.handle, status)
            columns = _block_of(&self.handle.q, &e) if status == SHMQ_OK else None
            if columns is None or columns.count < e.count:
                raise self._make_gone_error(where, which, begin, count)
            return columns, at if at < count else None
        finally:
            free(e.picks)

    cdef object _make_gone_error(self, const uint32_t *where, const uint64_t *which, uint64_t begin,
                      uint64_t end):
        cdef uint64_t i
        lost = [which[i] for i in range(begin, end)
                if not shmq_is_there(&self.handle.q, where[i], which[i])]
        return gone(self.handle.name, lost, end - begin)

    # ---- runs ----

    def lease_run(self, max: int, *, max_bytes: int | None = None, seconds: float = 600.0,
                  claim: api.Claim | None = None, epoch: int = 0) -> api.Run:
        """See shmq.api.BulkQueue.lease_run."""
        cdef uint64_t most = _most(self.handle, max, None), room
        cdef uint64_t budget = 0x7FFFFFFFFFFFFFFF if max_bytes is None else _budget(max_bytes)
        cdef int64_t ns = _lease_ns(seconds)
        cdef _RunColumns columns
        cdef shmq_claim shown
        cdef shmq_run run
        self._be_usable()
        self.handle._consume()
        shmq_run_begin(&run, self._read_claim(claim, &shown), _epoch(epoch))
        try:
            for attempt in range(2):
                room = min(most,
                           <uint64_t>self.handle.q.h.visible + shmq_inbox_count(self.handle.q.h))
                columns = _RunColumns(room)
                if room:
                    self._lease_onto(columns, &run, room, budget, ns, claim)
                if columns.count or attempt:
                    break
                self.handle._tick()  # also returns messages that dead processes had leased
        finally:
            shmq_run_end(&run)
        if not columns.count:
            _found_nothing(self.handle)
        return columns.run()

    cdef int _lease_onto(self, _RunColumns columns, shmq_run *run, uint64_t room, uint64_t budget,
                         int64_t ns, claim) except -1:
        cdef int status = SHMQ_OK
        cdef int64_t now, until = shmq_now() + ns
        cdef uint64_t end
        cdef shmq_view view
        try:
            while columns.count < room and columns.bytes_ < budget and status == SHMQ_OK:
                end = min(room, columns.count + RUN_UNDER_LOCK)
                if not columns.count:
                    _lock(self.handle)
                elif not self._lock_for_more():
                    break
                now = shmq_now()
                while columns.count < end and columns.bytes_ < budget:
                    status = shmq_run_lease(&self.handle.q, run, now, until - now, &view)
                    if status != SHMQ_OK:
                        break
                    columns.add(&self.handle.q.seal, &view)
                _unlock(self.handle)
        except BaseException:
            self._give_back(columns)
            raise
        if status != SHMQ_OK and status != SHMQ_EMPTY:
            raise self._run_error(status, claim)
        self.handle._after()
        return 0

    # ---- runs in a name ----

    # What the core is shown of a claim; NULL of none.
    cdef shmq_claim *_read_claim(self, claim, shmq_claim *shown) except? NULL:
        if claim is None:
            return NULL
        shown.hash = self._hash_of(claim.name)
        shown.token = claim.token
        return shown

    cdef uint64_t _hash_of(self, str name) except 0:
        cdef Py_ssize_t size
        cdef const char *text = PyUnicode_AsUTF8AndSize(name, &size)
        return shmq_hash_name(&self.handle.q, text, size)

    cdef object _run_error(self, int status, claim):
        if status == SHMQ_FENCED:
            return _errors.LeaseExpired(
                f"another process has taken over the leases of {claim.name!r} in queue "
                f"{self.handle.name!r}: this one can lease, settle and extend nothing there any "
                f"more; stop it")
        if status == SHMQ_UNCLAIMED:
            return _errors.LeaseExpired(
                f"queue {self.handle.name!r} does not know the name {claim.name!r}: it was "
                f"released, or the queue was recovered since; take its leases over first")
        return _error(self.handle, status)

    def make_claim(self, name: str) -> int:
        """Claim the name, and void its older claims; returns the claim's token."""
        cdef Py_ssize_t size
        cdef const char *text = PyUnicode_AsUTF8AndSize(name, &size)
        cdef uint64_t hash_ = self._hash_of(name)
        cdef shmq_claim claim
        cdef int status
        _lock(self.handle)
        status = shmq_claim_name(&self.handle.q, hash_, text, size, &claim)
        _unlock(self.handle)
        if status == SHMQ_CROWDED:
            raise _errors.Full(
                f"{SHMQ_HOLDERS} names hold leases in queue {self.handle.name!r}, which are as "
                f"many as it can know: end one, or release its name")
        if status != SHMQ_OK:
            raise _error(self.handle, status)
        return claim.token

    def is_claimed(self, claim: api.Claim) -> bool:
        """See shmq.api.BulkQueue.is_claimed."""
        cdef shmq_claim shown
        cdef cbool known
        cdef uint32_t holder
        self._read_claim(claim, &shown)
        _lock(self.handle)
        holder = shmq_holder_of(&self.handle.q, &shown, &known)
        _unlock(self.handle)
        if holder == SHMQ_NIL and known:
            raise self._run_error(SHMQ_FENCED, claim)
        return known

    def forget_claim(self, claim: api.Claim) -> None:
        """Forget the claim's name; if it has leases, they end in time."""
        cdef shmq_claim shown
        self._read_claim(claim, &shown)
        _lock(self.handle)
        shmq_forget_name(&self.handle.q, &shown)
        _unlock(self.handle)

    def sort_tagged(self, claim: api.Claim, settled: int, epoch: int, seconds: float,
                    returns: bool = True) -> tuple[api.Run, int, int]:
        """Decide about each message that was leased in the claim's name and is not settled.

        Those of epochs up to ``settled`` are acknowledged, and those of ``epoch`` leased again. If
        ``returns``, all others are returned. Returns the run, and how many messages were
        acknowledged and returned.
        """
        cdef int64_t ns = _lease_ns(seconds)
        cdef uint32_t done = _epoch(settled), wanted = _epoch(epoch), count
        cdef uint64_t acked = 0, returned = 0
        cdef bint others = returns
        cdef shmq_claim shown
        cdef shmq_tagged *found = NULL
        cdef int status
        cdef _RunColumns columns
        self._be_usable()
        self.handle._consume()
        self.handle._tick()
        self._read_claim(claim, &shown)
        try:
            with nogil:
                status = shmq_find_tagged(&self.handle.q, &shown, &found, &count)
            if status == SHMQ_NO_SPACE:
                raise MemoryError
            if status != SHMQ_OK:
                raise self._run_error(status, claim)
            columns = _RunColumns(count)
            self._sort_found(claim, &shown, found, count, done, wanted, others, ns, columns,
                             &acked, &returned)
        finally:
            free(found)
        return columns.run(), acked, returned

    cdef int _sort_found(self, claim, const shmq_claim *shown, const shmq_tagged *found,
                         uint32_t count, uint32_t done, uint32_t wanted, bint others,
                         int64_t ns, _RunColumns columns, uint64_t *acked, uint64_t *returned) except -1:
        cdef int64_t now, until = shmq_now() + ns
        cdef int status = SHMQ_OK
        cdef uint32_t i = 0, end
        cdef shmq_view view
        while i < count:
            end = min(count, i + RUN_UNDER_LOCK)
            _lock(self.handle)
            now = shmq_now()
            while i < end:
                if found[i].epoch <= done:
                    status = shmq_ack_tagged(&self.handle.q, shown, &found[i])
                    acked[0] += status == SHMQ_OK
                elif found[i].epoch == wanted:
                    status = shmq_lease_tagged(&self.handle.q, shown, &found[i], now, until - now,
                                               &view)
                    if status == SHMQ_OK:
                        columns.add(&self.handle.q.seal, &view)
                elif others:
                    status = shmq_return_tagged(&self.handle.q, shown, &found[i], now)
                    returned[0] += status == SHMQ_OK
                if status != SHMQ_OK and status != SHMQ_STALE:
                    break
                i += 1
            _unlock(self.handle)
            if status != SHMQ_OK and status != SHMQ_STALE:
                raise self._run_error(status, claim)
            self.handle._after()
        return 0

    # For an operation that has leased something already: returns false if the lock is not free.
    cdef bint _lock_for_more(self) except -1:
        try:
            _lock_gets(self.handle)
        except _errors.LockTimeout:
            return False
        return True

    # Returns leases that are not delivered after all; they do not count as deliveries.
    cdef int _give_back(self, _RunColumns columns) except -1:
        try:
            self._settle_run(RETURN, columns.receipts, columns.count, 0)
        except _errors.ShmqError:
            pass  # the queue is deleted, and its leases with it
        return 0

    def lease_again(self, sequences: bytes, *, seconds: float = 600.0,
                    claim: api.Claim | None = None, epoch: int = 0) -> api.Run:
        """See shmq.api.BulkQueue.lease_again; with a claim, those of a group come together."""
        cdef bytes raw = numbers_of("sequences", sequences, 8)
        cdef const uint64_t *which = <const uint64_t *>PyBytes_AS_STRING(raw)
        cdef uint32_t count
        cdef uint32_t *where = NULL
        cdef uint32_t *table = NULL
        cdef uint64_t room
        cdef int64_t ns = _lease_ns(seconds)
        cdef shmq_claim shown
        cdef shmq_run run
        if PyBytes_GET_SIZE(raw) // 8 > 1 << 24:
            raise _errors.InvalidOption(
                f"sequences has {len(raw) // 8} numbers: no queue holds so many messages")
        count = <uint32_t>(PyBytes_GET_SIZE(raw) // 8)
        cdef _RunColumns columns = _RunColumns(count)
        self._be_usable()
        self.handle._consume()
        self.handle._tick()  # returns messages that dead processes had leased
        shmq_run_begin(&run, self._read_claim(claim, &shown), _epoch(epoch))
        room = shmq_search_room(count)
        where = <uint32_t *>malloc((count + 1) * sizeof(uint32_t))
        table = <uint32_t *>malloc(room * sizeof(uint32_t))
        try:
            if where == NULL or table == NULL:
                raise MemoryError
            with nogil:
                shmq_search(&self.handle.q, which, count, where, table, room)
            self._lease_found(columns, &run, which, where, count, ns, claim)
        finally:
            free(where)
            free(table)
        return columns.run()

    cdef int _lease_found(self, _RunColumns columns, shmq_run *run, const uint64_t *which,
                          const uint32_t *where, uint32_t count, int64_t ns, claim) except -1:
        cdef int status = SHMQ_OK
        cdef int64_t now, until = shmq_now() + ns
        cdef uint32_t i = 0, end
        cdef shmq_view view
        try:
            while i < count and (status == SHMQ_OK or status == SHMQ_STALE):
                end = min(count, i + RUN_UNDER_LOCK)
                _lock(self.handle)
                now = shmq_now()
                while i < end:
                    if where[i] != SHMQ_NIL:
                        status = shmq_run_lease_at(&self.handle.q, run, where[i], which[i], now,
                                                   until - now, &view)
                        if status == SHMQ_OK:
                            columns.add(&self.handle.q.seal, &view)
                        elif status != SHMQ_STALE:
                            break
                    i += 1
                _unlock(self.handle)
        except BaseException:
            self._give_back(columns)
            raise
        if status != SHMQ_OK and status != SHMQ_STALE:
            raise self._run_error(status, claim)
        self.handle._after()
        return 0

    # Settles them in few critical sections; returns how many were refused.
    cdef int64_t _settle_run(self, int how, bytes receipts, uint64_t count,
                             int64_t ns) except -1:
        cdef const uint64_t *sealed = <const uint64_t *>PyBytes_AS_STRING(receipts)
        cdef uint64_t i = 0, end, receipt
        cdef int64_t now, refused = 0
        cdef int status = SHMQ_OK
        self._be_usable()
        while i < count and status != SHMQ_DAMAGED:
            end = min(count, i + RUN_UNDER_LOCK)
            _lock_gets(self.handle)
            now = shmq_now()
            while i < end:
                receipt = shmq_unseal(&self.handle.q.seal, sealed[i])
                if how == ACK:
                    status = shmq_ack(&self.handle.q, receipt, now)
                elif how == EXTEND:
                    status = shmq_extend(&self.handle.q, receipt, ns, now)
                else:
                    status = shmq_return_unseen(&self.handle.q, receipt, 0, now)
                if status == SHMQ_DAMAGED:
                    break
                refused += status != SHMQ_OK
                i += 1
            _unlock(self.handle)
            self.handle._after()
        if status == SHMQ_DAMAGED:
            raise _error(self.handle, status)
        return refused

    def ack_run(self, receipts: bytes) -> int:
        """See shmq.api.BulkQueue.ack_run."""
        cdef bytes raw = numbers_of("receipts", receipts, 8)
        return self._settle_run(ACK, raw, PyBytes_GET_SIZE(raw) // 8, 0)

    def extend_run(self, receipts: bytes, seconds: float) -> int:
        """See shmq.api.BulkQueue.extend_run."""
        cdef bytes raw = numbers_of("receipts", receipts, 8)
        cdef int64_t ns = _span_ns("seconds", seconds)
        return self._settle_run(EXTEND, raw, PyBytes_GET_SIZE(raw) // 8, ns)

    def return_run(self, receipts: bytes) -> int:
        """See shmq.api.BulkQueue.return_run."""
        cdef bytes raw = numbers_of("receipts", receipts, 8)
        return self._settle_run(RETURN, raw, PyBytes_GET_SIZE(raw) // 8, 0)
