# The complete handle: looking without leasing, and moving messages between queues.

#: The state of a visible message in the rows of `Handle.scan`.
READY = <int>SHMQ_READY


@cython.no_gc_clear
cdef class Handle(_RowMover):
    """One attachment to a queue. shmq.client.local.broker builds its queue on it."""

    def purge(self) -> int:
        """See shmq.api.Queue.purge."""
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

    def qsize(self) -> int:
        """See shmq.api.Queue.qsize."""
        return self._counts()[0]

    def full(self) -> bool:
        """See shmq.api.Queue.full."""
        return self._counts()[1] >= self.q.h.options.capacity

    # The number of visible messages and of used slots, after all due maintenance.
    cdef tuple _counts(self):
        cdef uint32_t visible, live
        self._tick()
        self._lock()
        visible, live = self.q.h.visible, self.q.h.live
        self._unlock()
        return visible, live

    @property
    def last_sequence(self) -> int:
        """The newest sequence number: how many messages were ever put."""
        return self.q.h.last_seq

    def numbers(self) -> dict[str, Any]:
        """The header's counters by name, from which shmq.api.QueueStats is made."""
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
            "waiting_get": h.asleep[0] + int(shmq_armed(&h, SHMQ_NOT_EMPTY)).bit_count(),
            "waiting_put": h.asleep[1] + int(shmq_armed(&h, SHMQ_NOT_FULL)).bit_count(),
            "rate_in": (h.last_seq - h.samples[0].inflow) / span if span > 0 else 0.0,
            "rate_out": (h.acked - h.samples[0].outflow) / span if span > 0 else 0.0,
            **_journal_numbers(&h),
        }

    def journal_numbers(self) -> dict[str, Any]:
        """The counters of the queue's journal alone. Takes no lock and does no maintenance."""
        if self.q.h.state == SHMQ_GONE:
            raise self._error(SHMQ_DELETED)
        return _journal_numbers(self.q.h)

    def attached(self) -> list[tuple[int, int, int, bytes, int, float]]:
        """The attachments: (index, process number, pid, name, leases, since)."""
        cdef shmq_attachment *a
        cdef uint32_t at
        cdef list rows = []
        if self.q.h.state == SHMQ_GONE:
            raise self._error(SHMQ_DELETED)
        for at in range(min(self.q.h.attachments_made, SHMQ_MAX_ATTACHMENTS)):
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

    def scan(self, uint32_t start,
             uint32_t count) -> tuple[list[tuple[int, int, int, int, int, int, int, int]], int | None]:
        """Describe the live slots among up to ``count`` slots from ``start`` on.

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

    def oldest_put(self) -> int | None:
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

    def copy_at(self, uint32_t at, uint64_t seq) -> api.Message | None:
        """A copy of message ``seq`` in slot ``at``, or None if it is gone."""
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
        # Another process has pinned it, so it is copied under the lock, into memory made before.
        raw = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>view.body_bytes + view.meta_bytes)
        status = self._pin_at(at, seq, &view, PyBytes_AS_STRING(raw))
        if status == SHMQ_OK:
            self._unpin(at, fork_generation)
            return self.copy_at(at, seq)
        if status == SHMQ_STALE:
            return None
        place = <unsigned char *>PyBytes_AS_STRING(raw)
        return _copy_message(self, &view, place, place + view.body_bytes)

    # SHMQ_OK: pinned. SHMQ_BUSY: body and properties were copied to `to`, if it is given.
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

    # ---- moving: see shmq/core/queue/transfer.h ----

    cdef tuple _taken(self, const shmq_view *view):
        try:
            return (view.receipt, view.seq,
                    PyBytes_FromStringAndSize(<char *>view.body, view.body_bytes),
                    PyBytes_FromStringAndSize(<char *>view.meta, view.meta_bytes), view.codec,
                    view.priority, view.deliveries, view.reason, view.dead_at / 1e9,
                    self.q.slots[view.at].origin_queue != 0)
        except MemoryError:
            self.give_up(view.receipt)
            raise

    def take_dead(self) -> _Row | None:
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

    def take(self, uint32_t at, uint64_t seq) -> _Row | None:
        """Take a visible message to move it, or return None if it is gone.

        (receipt, sequence, body, properties, codec, priority, deliveries, reason, died at,
        whether it came from another queue)
        """
        cdef shmq_view view
        cdef int status
        self._lock()
        status = shmq_take(&self.q, at, seq, &view)
        self._unlock()
        return self._taken(&view) if status == SHMQ_OK else None

    def stage_copy(self, bytes body, bytes meta, uint8_t codec, uint8_t priority,
                   group: str | None, uint64_t origin_queue, uint64_t origin_seq) -> int:
        """Put a message that ``publish_copy`` makes visible; returns its receipt. Raises Full."""
        cdef PreparedPut prepared = PreparedPut.__new__(PreparedPut)
        cdef Loan loan
        cdef int64_t until = AT_ONCE
        cdef int status
        prepared.keep = body
        prepared._set_body(body)
        prepared._set_meta(meta)
        prepared.c.codec = codec
        prepared.c.priority = min(priority, <uint8_t>(self.q.h.options.priorities - 1))
        prepared.c.ttl = -1
        prepared.c.origin_queue = origin_queue
        prepared.c.origin_seq = origin_seq
        if group is not None:
            prepared.c.group = self._hash(group)[0] or 1
        self.void_copies(origin_queue, origin_seq)
        loan = _borrow(self, prepared, False, None, &until)
        _copy(loan.holder.place, prepared.c.body, prepared.c.body_bytes)
        shmq_mark()
        loan._end()
        try:
            self._lock()
            status = shmq_stage(&self.q, loan.receipt, &prepared.c, shmq_now())
            self._unlock()
        except BaseException:
            loan._abandon()
            raise
        if status != SHMQ_OK:
            raise self._error(status)
        return loan.receipt

    def publish_copy(self, uint64_t receipt) -> bool:
        """Make a staged message visible; whether it was still there."""
        cdef int status
        self._lock()
        status = shmq_commit_staged(&self.q, receipt, shmq_now())
        self._unlock()
        return status == SHMQ_OK

    def moved(self, uint64_t receipt) -> bool:
        """Settle the taken message, which has moved; whether this handle still had it."""
        cdef int status
        self._lock()
        status = shmq_moved(&self.q, receipt)
        self._unlock()
        return status == SHMQ_OK

    def hand_over(self, Handle target, uint64_t receipt, uint64_t staged):
        """Commit a move: settle the taken message here, then publish its copy there."""
        if self.moved(receipt):
            target.publish_copy(staged)
        else:
            target.abandon(staged)

    def untake(self, uint64_t receipt):
        """Return a taken message to the queue."""
        self._lock()
        shmq_untake(&self.q, receipt)
        self._unlock()

    def give_up(self, uint64_t receipt):
        """Leave a taken message to the next mover. Does nothing if it has moved."""
        self._lock()
        shmq_give_up(&self.q, receipt)
        self._unlock()

    def void_copies(self, uint64_t origin_queue, uint64_t origin_seq, uint32_t rows=0):
        """Remove the staged copies of that message that its mover left behind.

        If it is a chunk, remove the copies of its rows from number ``rows`` on.
        """
        self._lock()
        shmq_void_copies(&self.q, origin_queue, origin_seq, rows)
        self._unlock()

    def orphans(self) -> list[tuple[int, int, int, int | None]]:
        """Staged messages whose mover died: (receipt, origin queue, origin sequence, row).

        ``row`` is the number of the row in the chunk that it was moved from, None for a whole
        message. The rows of one chunk are listed in the chunk's order.
        """
        cdef shmq_origin origin
        cdef uint32_t at = 0
        cdef list rows = []
        cdef int status = SHMQ_OK
        while self.q.h.staged and status == SHMQ_OK:
            self._lock()
            status = shmq_find_orphan(&self.q, at, &origin)
            self._unlock()
            if status == SHMQ_OK:
                rows.append((origin.queue, origin.seq, origin.row, origin.receipt))
                at = <uint32_t>(origin.receipt & SHMQ_RECEIPT_SLOT) + 1
        rows.sort()
        return [(receipt, queue, seq, None if row == SHMQ_NO_ROW else row)
                for queue, seq, row, receipt in rows]

    def copies_from(self, origins: Container[int]) -> list[tuple[int, int]]:
        """Messages here that were moved from queues of these ids: (origin queue, sequence)."""
        cdef uint32_t at = 0, made = self.q.h.slots_made, end
        cdef shmq_slot *s
        cdef list rows = []
        while at < made:
            self._lock()
            end = min(at + 65536, made)
            for at in range(at, end):
                s = &self.q.slots[at]
                if s.origin_queue and shmq_state_of(shmq_word(s)) != SHMQ_FREE:
                    rows.append((s.origin_queue, s.origin_seq))
            self._unlock()
            at = end
        return [row for row in rows if row[0] in origins]

    def still_moves(self, uint64_t seq, row: int | None = None) -> bool:
        """Whether message ``seq``, or that row of it, is still here: dying or being moved."""
        cdef bint there
        cdef uint32_t number = SHMQ_NO_ROW if row is None else row
        self._lock()
        there = shmq_still_moves(&self.q, seq, number)
        self._unlock()
        return there

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

    def violations(self) -> list[str]:
        """The invariants of the segment that do not hold, in words; empty if all hold."""
        cdef const char *wrong[32]
        cdef uint32_t at, count
        self._lock()
        count = shmq_check_all(&self.q, wrong, 32)
        self._unlock()
        return [wrong[at].decode() for at in range(count)]


cdef dict _journal_numbers(const shmq_header *h):
    cdef shmq_journal j = h.journal
    cdef bint journaled = _DURABILITY[h.options.durability % 3] == "journal"
    return {
        "durability": _DURABILITY[h.options.durability % 3],
        "journal_lag": max(0, <int64_t>(h.fresh_tail - j.synced)) if journaled else 0,
        "journal_waiting": h.spent,
        "journal_synced": j.synced,
        "journal_error": _os.strerror(j.error) if j.error else None,
        "journal_bytes": j.bytes,
        "snapshot_age": max(0.0, (shmq_wall() - j.snapshot_at) / 1e9) if j.snapshot_at else None,
    }
