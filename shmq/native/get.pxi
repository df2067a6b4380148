# Leasing, and settling leases.

@cython.no_gc_clear
cdef class _Getter(_Putter):
    """The part of a handle that leases and settles."""

    def get(self, block: bool = True, timeout: float | None = None, *,
            where: str | None = None) -> api.Message:
        """See shmq.api.Queue.get."""
        cdef shmq_view view
        cdef Message message
        cdef int status, round_ = 0
        cdef int64_t until = UNKNOWN
        if timeout is not None:
            _check_timeout(timeout)
        if where is not None:
            return self._get_filtered(_filter_of(where), block, timeout)
        while True:
            # Only the whole lock may conclude that the queue is empty, or let us sleep.
            self._lock_until(round_ > 0, SHMQ_NOT_EMPTY, block, timeout, &until)
            status = shmq_lease(&self.q, shmq_time(&self.q), True, &view)
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

    cdef object _get_filtered(self, Filter filter, block, timeout):
        found = self._wait_filtered(lambda: self.select(filter, 1), block, timeout)
        if found:
            return found[0]
        if block and timeout is not None:
            raise _errors.Empty(
                f"no message that `where` means came to queue {self.name!r} within {timeout} s")
        raise _errors.Empty(f"no message that `where` means is visible in queue {self.name!r}")

    cdef object _empty(self, block, timeout):
        if block and timeout is not None:
            return _errors.Empty(f"no message came to queue {self.name!r} within {timeout} s")
        return _errors.Empty(f"no message is visible in queue {self.name!r}")

    def get_many(self, max: int, timeout: float | None = None, *, block: bool = True,
                 where: str | None = None) -> list[api.Message]:
        """See shmq.api.Queue.get_many."""
        cdef int most = self._most(max, timeout), got, i
        cdef list messages = []
        cdef Filter filter
        cdef shmq_view *views
        if where is not None:
            filter = _filter_of(where)
            return self._wait_filtered(lambda: self.select(filter, most), block, timeout)
        views = _new_views(most)
        try:
            while not messages:
                got = self._lease_some(views, most, block, timeout)
                if not got:
                    break
                for i in range(got):
                    message = _new_message(self, &views[i], None)
                    if message is not None:
                        messages.append(message)
            return messages
        finally:
            free(views)

    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> api.Batch:
        """See shmq.api.Queue.get_batch."""
        cdef int most = self._most(max, timeout), got
        cdef Batch batch
        cdef shmq_view *views = _new_views(most)
        try:
            while True:
                got = self._lease_some(views, most, block, timeout)
                batch = _new_batch(self, views, got)
                if batch.units or not got:
                    return batch
        finally:
            free(views)

    def get_packed(self, max: int = 65536, timeout: float | None = None, *,
                   block: bool = True) -> api.Packed:
        """See shmq.api.Queue.get_packed."""
        cdef int most = min(self._most(max, timeout), MOST_PACKED), got
        cdef Packed packed
        cdef shmq_view *views = _new_views(most)
        cdef shmq_packed *read = <shmq_packed *>malloc(most * sizeof(shmq_packed))
        try:
            if read == NULL:
                raise MemoryError
            while True:
                got = self._lease_some(views, most, block, timeout, read, min(max, 1 << 32))
                packed = _new_packed(self, views, read, got)
                if packed.units or not got:
                    return packed
        finally:
            free(views)
            free(read)

    # `max`, limited to what the queue can hold.
    cdef int _most(self, max, timeout) except -1:
        max = _whole("max", max)
        if max < 1:
            raise _errors.InvalidOption(f"max={max} must be 1 or more")
        _check_timeout(timeout)
        return min(max, self.q.h.options.capacity)

    # Leases 1 to `most` messages and counts them as delivered; 0 if none came in time. With
    # `packed`: stops once they hold `records` records.
    cdef int _lease_some(self, shmq_view *views, int most, block, timeout,
                         shmq_packed *packed=NULL, uint64_t records=0) except -1:
        cdef int status, got, round_ = 0
        cdef int64_t until = UNKNOWN
        while True:
            self._lock_until(round_ > 0, SHMQ_NOT_EMPTY, block, timeout, &until)
            status = self._lease_run(views, most, &got, packed, records)
            if status == SHMQ_EMPTY and not got and round_ == 1:
                shmq_fall_asleep(&self.q, SHMQ_NOT_EMPTY)
            self._unlock()
            if got:
                self._after()
                return got
            if status != SHMQ_OK and status != SHMQ_EMPTY:
                raise self._error(status)
            if not self._may_wait(SHMQ_NOT_EMPTY, block, timeout, &until, &round_):
                return 0

    # The caller holds the lock.
    cdef int _lease_run(self, shmq_view *views, int most, int *got, shmq_packed *packed,
                        uint64_t records) noexcept:
        cdef int64_t now = shmq_time(&self.q)
        cdef int status = SHMQ_OK
        cdef uint64_t bytes_ = 0, taken = 0
        got[0] = 0
        while got[0] < most:
            status = shmq_lease(&self.q, now, True, &views[got[0]])
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

    # ---- by a filter ----

    def select(self, Filter filter not None, int most) -> list[api.Message]:
        """Lease the visible messages that match the filter, up to ``most`` of them."""
        cdef shmq_view *views = _new_views(most)
        cdef int got, i
        cdef list messages = []
        try:
            got = self._select_run(filter, views, most, True, None)
            for i in range(got):
                message = _new_message(self, &views[i], None)
                if message is not None:
                    messages.append(message)
            return messages
        finally:
            free(views)

    # Leases up to `most` matching messages in queue order; how many. The lock is held for one part
    # of the search at a time, and at first it is the whole queue's, so that the search never
    # concludes from the get side alone that there is nothing.
    cdef int _select_run(self, Filter filter, shmq_view *views, int most, bint handed,
                         _AckBuffer gatherer) except -1:
        cdef shmq_selection choice
        cdef int64_t now
        cdef int status = SHMQ_OK, got = 0
        self._lock()
        if gatherer is not None:
            gatherer.flush_locked()
        shmq_select_begin(&self.q, &choice, &filter.c)
        while True:
            now = shmq_time(&self.q)
            while got < most:
                status = shmq_select(&self.q, &choice, now, handed, &views[got])
                if status != SHMQ_OK:
                    break
                got += 1
            self._unlock()
            if got == most or status != SHMQ_EMPTY or not choice.more:
                break
            shmq_select_again(&choice)
            if not got:
                PyErr_CheckSignals()  # messages leased already are not lost to a signal
            try:
                self._lock_gets()
            except _errors.LockTimeout:
                if not got:
                    raise
                break  # nor to a failure to get the lock
        self._after()
        if not got and status != SHMQ_EMPTY:
            raise self._error(status)
        return got

    # ---- settle ----

    cdef int _settle(self, int how, uint64_t receipt, int64_t ns) except -1:
        cdef int64_t now
        cdef int status
        self._lock_gets()
        now = shmq_time(&self.q) if how == ACK else shmq_now()
        if how == ACK:
            status = shmq_ack(&self.q, receipt, now)
        elif how == NACK:
            status = shmq_nack(&self.q, receipt, ns, now)
        elif how == REJECT:
            status = shmq_reject(&self.q, receipt, now)
        elif how == EXTEND:
            status = shmq_extend(&self.q, receipt, ns, now)
        else:
            status = shmq_return(&self.q, receipt, now)
        self._unlock()
        self._after()
        if status == SHMQ_OK:
            return 0
        raise self._stale(receipt) if status == SHMQ_STALE else self._error(status)

    # The core's receipt of a message or of its public receipt. 0, which is no receipt, stands for
    # one that this queue never gave, such as another queue's.
    cdef uint64_t _opened(self, message) except? 0:
        if type(message) is Message:
            if (<Message>message).handle.q.h.options.queue_id != self.q.h.options.queue_id:
                return 0
            return (<Message>message).lease
        message = plain_number(message)
        if isinstance(message, int) and not isinstance(message, bool):
            return c_unseal(&self.q.seal, message) if 0 <= message < 1 << 64 else 0
        raise TypeError(f"{message!r:.60} is neither a message nor a receipt of this queue")

    cdef object _stale(self, uint64_t receipt):
        return _errors.LeaseExpired(
            f"receipt {c_seal(&self.q.seal, receipt)} of queue {self.name!r} is no longer good: its lease ended, "
            f"or the message was settled; nothing was changed"
        )

    def ack(self, receipt: int):
        """Acknowledge the message with this receipt."""
        self._settle(ACK, self._opened(receipt), 0)

    def nack(self, receipt: int, delay: float | None = None):
        """See shmq.api.Queue.nack."""
        self._settle(NACK, self._opened(receipt), _delay_ns(delay))

    def reject(self, receipt: int):
        """See shmq.api.Queue.reject."""
        self._settle(REJECT, self._opened(receipt), 0)

    def extend(self, receipt: int, seconds: float):
        """See shmq.api.Queue.extend."""
        self._settle(EXTEND, self._opened(receipt), _span_ns("seconds", seconds))

    def ack_many(self, messages: Iterable[api.Message | int]) -> list[int]:
        """See shmq.api.Queue.ack_many."""
        cdef list items = list(messages), refused = []
        cdef Py_ssize_t i, count = len(items)
        cdef uint64_t *raw = <uint64_t *>malloc((count + 1) * sizeof(uint64_t))
        if raw == NULL:
            raise MemoryError
        try:
            for i in range(count):
                raw[i] = self._receipt_to_ack(<object>PyList_GET_ITEM(items, i))
            self._ack_all(raw, count)
            for i in range(count):
                item = <object>PyList_GET_ITEM(items, i)
                if raw[i]:
                    refused.append(item.receipt if type(item) is Message else plain_number(item))
                elif type(item) is Message:
                    (<Message>item)._settled = True
        finally:
            free(raw)
        self._after()
        return refused

    # Acknowledges them all in one critical section, and sets the receipts of those that were
    # acknowledged to 0, which is no receipt.
    cdef int _ack_all(self, uint64_t *receipts, Py_ssize_t count) except -1:
        cdef Py_ssize_t i
        cdef int64_t now
        cdef int status = SHMQ_OK
        self._lock_gets()
        now = shmq_time(&self.q)
        for i in range(count):
            status = shmq_ack(&self.q, receipts[i], now)
            if status == SHMQ_OK:
                receipts[i] = 0
            elif status != SHMQ_STALE:
                break
        self._unlock()
        if status != SHMQ_OK and status != SHMQ_STALE:
            raise self._error(status)
        return 0

    # An item that cannot be a receipt becomes one that was never given.
    cdef uint64_t _receipt_to_ack(self, item) except? 0:
        if type(item) is not Message:
            return self._opened(item) or NO_RECEIPT
        (<Message>item)._read_if_unread()
        return self._opened(item) or NO_RECEIPT


cdef shmq_view *_new_views(int most) except NULL:
    cdef shmq_view *views = <shmq_view *>malloc(most * sizeof(shmq_view))
    if views == NULL:
        raise MemoryError
    return views
