# Leasing, and the ends of a lease.

@cython.no_gc_clear
cdef class _Getter(_Putter):
    """The part of a handle that leases and settles."""

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
