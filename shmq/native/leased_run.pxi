# Runs: many messages leased, found again and settled by numbers alone.

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


@cython.no_gc_clear
cdef class _Lessor(_Reader):
    """The part of a handle that leases and settles runs."""

    def lease_run(self, max: int, *, max_bytes: int | None = None,
                  seconds: float = 600.0) -> api.Run:
        """See shmq.api.Queue.lease_run."""
        cdef uint64_t most = self._most(max, None), room
        cdef uint64_t budget = 0x7FFFFFFFFFFFFFFF if max_bytes is None else _budget(max_bytes)
        cdef int64_t ns = _lease_ns(seconds)
        cdef _RunColumns sheet
        self._be_usable()
        for attempt in range(2):
            room = min(most, <uint64_t>self.q.h.visible + shmq_inbox_count(self.q.h))
            sheet = _RunColumns(room)
            if room:
                self._lease_onto(sheet, room, budget, ns)
            if sheet.count or attempt:
                break
            self._tick()  # also returns messages that dead processes had leased
        return sheet.run()

    cdef int _lease_onto(self, _RunColumns sheet, uint64_t room, uint64_t budget,
                         int64_t ns) except -1:
        cdef int status = SHMQ_OK
        cdef int64_t now, until = shmq_now() + ns
        cdef uint64_t end
        cdef shmq_view view
        try:
            while sheet.count < room and sheet.bytes_ < budget and status == SHMQ_OK:
                end = min(room, sheet.count + RUN_UNDER_LOCK)
                if not sheet.count:
                    self._lock()
                elif not self._lock_for_more():
                    break
                now = shmq_now()
                while sheet.count < end and sheet.bytes_ < budget:
                    status = shmq_lease_for(&self.q, now, until - now, True, &view)
                    if status != SHMQ_OK:
                        break
                    sheet.add(&self.q.seal, &view)
                self._unlock()
        except BaseException:
            self._give_back(sheet)
            raise
        if status != SHMQ_OK and status != SHMQ_EMPTY:
            raise self._error(status)
        self._after()
        return 0

    # For an operation that has leased something already: returns false if the lock is not free.
    cdef bint _lock_for_more(self) except -1:
        try:
            self._lock_gets()
        except _errors.LockTimeout:
            return False
        return True

    # Returns leases that are not handed out after all; they do not count as deliveries.
    cdef int _give_back(self, _RunColumns sheet) except -1:
        try:
            self._settle_run(RETURN, sheet.receipts, sheet.count, 0)
        except _errors.ShmqError:
            pass  # the queue is deleted, and its leases with it
        return 0

    def lease_again(self, sequences: bytes, *, seconds: float = 600.0) -> api.Run:
        """See shmq.api.Queue.lease_again."""
        cdef bytes raw = numbers_of("sequences", sequences, 8)
        cdef const uint64_t *which = <const uint64_t *>PyBytes_AS_STRING(raw)
        cdef uint32_t count
        cdef uint32_t *where = NULL
        cdef uint32_t *table = NULL
        cdef uint64_t room
        cdef int64_t ns = _lease_ns(seconds)
        if PyBytes_GET_SIZE(raw) // 8 > 1 << 24:
            raise _errors.InvalidOption(
                f"sequences has {len(raw) // 8} numbers: no queue holds so many messages")
        count = <uint32_t>(PyBytes_GET_SIZE(raw) // 8)
        cdef _RunColumns sheet = _RunColumns(count)
        self._be_usable()
        self._tick()  # returns messages that dead processes had leased
        room = shmq_search_room(count)
        where = <uint32_t *>malloc((count + 1) * sizeof(uint32_t))
        table = <uint32_t *>malloc(room * sizeof(uint32_t))
        try:
            if where == NULL or table == NULL:
                raise MemoryError
            with nogil:
                shmq_search(&self.q, which, count, where, table, room)
            self._lease_found(sheet, which, where, count, ns)
        finally:
            free(where)
            free(table)
        return sheet.run()

    cdef int _lease_found(self, _RunColumns sheet, const uint64_t *which, const uint32_t *where,
                          uint32_t count, int64_t ns) except -1:
        cdef int status = SHMQ_OK
        cdef int64_t now, until = shmq_now() + ns
        cdef uint32_t i = 0, end
        cdef shmq_view view
        try:
            while i < count and status != SHMQ_DAMAGED:
                end = min(count, i + RUN_UNDER_LOCK)
                self._lock()
                now = shmq_now()
                while i < end:
                    if where[i] != SHMQ_NIL:
                        status = shmq_lease_at(&self.q, where[i], which[i], now, until - now,
                                               &view)
                        if status == SHMQ_OK:
                            sheet.add(&self.q.seal, &view)
                        elif status == SHMQ_DAMAGED:
                            break
                    i += 1
                self._unlock()
        except BaseException:
            self._give_back(sheet)
            raise
        if status == SHMQ_DAMAGED:
            raise self._error(status)
        self._after()
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
            self._lock_gets()
            now = shmq_now()
            while i < end:
                receipt = c_unseal(&self.q.seal, sealed[i])
                if how == ACK:
                    status = shmq_ack(&self.q, receipt, now)
                elif how == EXTEND:
                    status = shmq_extend(&self.q, receipt, ns, now)
                else:
                    status = shmq_return_unseen(&self.q, receipt, now)
                if status == SHMQ_DAMAGED:
                    break
                refused += status != SHMQ_OK
                i += 1
            self._unlock()
            self._after()
        if status == SHMQ_DAMAGED:
            raise self._error(status)
        return refused

    def ack_run(self, receipts: bytes) -> int:
        """See shmq.api.Queue.ack_run."""
        cdef bytes raw = numbers_of("receipts", receipts, 8)
        return self._settle_run(ACK, raw, PyBytes_GET_SIZE(raw) // 8, 0)

    def extend_run(self, receipts: bytes, seconds: float) -> int:
        """See shmq.api.Queue.extend_run."""
        cdef bytes raw = numbers_of("receipts", receipts, 8)
        cdef int64_t ns = _span_ns("seconds", seconds)
        return self._settle_run(EXTEND, raw, PyBytes_GET_SIZE(raw) // 8, ns)

    def return_run(self, receipts: bytes) -> int:
        """See shmq.api.Queue.return_run."""
        cdef bytes raw = numbers_of("receipts", receipts, 8)
        return self._settle_run(RETURN, raw, PyBytes_GET_SIZE(raw) // 8, 0)


cdef int64_t _lease_ns(seconds) except -1:
    cdef int64_t ns = _span_ns("seconds", seconds)
    if not ns:
        raise _errors.InvalidOption(f"seconds={seconds} must be more than 0: a lease takes time")
    return ns


cdef uint64_t _budget(max_bytes) except 0:
    max_bytes = _whole("max_bytes", max_bytes)
    if max_bytes < 1:
        raise _errors.InvalidOption(f"max_bytes={max_bytes} must be 1 or more")
    return min(max_bytes, 0x7FFFFFFFFFFFFFFF)
