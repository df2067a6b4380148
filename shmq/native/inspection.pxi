# Looking into a queue without leasing.

#: The state of a visible message in the rows of `Inspection.scan`.
READY = <int>SHMQ_READY


@cython.final
cdef class Inspection:
    """The part of a handle that shows the queue's counters and messages, without leasing any."""

    cdef Handle handle

    def __cinit__(self, Handle handle not None):
        self.handle = handle

    def numbers(self) -> dict[str, Any]:
        """The header's counters by name, from which shmq.api.QueueStats is made."""
        cdef shmq_header h
        cdef int64_t now
        cdef uint32_t largest
        self.handle._tick()
        _lock(self.handle)
        now = shmq_now()
        largest = shmq_arena_largest(&self.handle.q)
        memcpy(&h, self.handle.q.h, sizeof(h))
        _unlock(self.handle)
        span = (now - h.samples[0].at) / 1e9
        return {
            "depth": h.visible, "delayed": h.delayed, "in_flight": h.leased, "dying": h.dead,
            "capacity": shmq_policies_now(&h).capacity, "put": h.last_seq, "acked": h.acked,
            "nacked": h.nacked, "expired": h.expired, "redelivered": h.redelivered,
            "dead_lettered": h.dead_lettered, "dropped": h.dropped, "deduped": h.deduped,
            "dead_lettered_rejected": h.dead_lettered_by[<int>SHMQ_REJECTED],
            "dead_lettered_max_deliveries": h.dead_lettered_by[<int>SHMQ_EXHAUSTED],
            "dead_lettered_expired": h.dead_lettered_by[<int>SHMQ_EXPIRED_TTL],
            "dropped_overflow": h.dropped_by[<int>SHMQ_ALIVE],
            "dropped_rejected": h.dropped_by[<int>SHMQ_REJECTED],
            "dropped_max_deliveries": h.dropped_by[<int>SHMQ_EXHAUSTED],
            "dropped_expired": h.dropped_by[<int>SHMQ_EXPIRED_TTL],
            "recoveries": h.recoveries, "arena_bytes": shmq_policies_now(&h).arena_bytes,
            "arena_used": (h.units_used - h.units_cached) * SHMQ_UNIT,
            "arena_largest_free": min(largest * SHMQ_UNIT, shmq_policies_now(&h).max_message_bytes),
            "waiting_get": h.asleep[0] + int(shmq_armed(&h, SHMQ_NOT_EMPTY)).bit_count(),
            "waiting_put": h.asleep[1] + int(shmq_armed(&h, SHMQ_NOT_FULL)).bit_count(),
            "rate_in": (h.last_seq - h.samples[0].inflow) / span if span > 0 else 0.0,
            "rate_out": (h.acked - h.samples[0].outflow) / span if span > 0 else 0.0,
            **_journal_numbers(&h, shmq_journal_error(&self.handle.q)),
        }

    def failures(self) -> tuple[int, list[tuple[str, int]]]:
        """The number of deliveries that failed with an error, and that of each type with an entry."""
        cdef shmq_text names[SHMQ_FAILURE_TYPES]
        cdef uint64_t counts[SHMQ_FAILURE_TYPES]
        cdef uint64_t failed
        cdef uint32_t at, found = 0
        if not self.handle.q.h.failed:
            return 0, []
        _lock(self.handle)
        failed = self.handle.q.h.failed
        for at in range(SHMQ_FAILURE_TYPES):
            found += shmq_failures_of(&self.handle.q, at, &names[found], &counts[found])
        _unlock(self.handle)
        return failed, [(names[at].at[:names[at].bytes].decode("utf-8", "replace"), counts[at])
                        for at in range(found)]

    def journal_numbers(self) -> dict[str, Any]:
        """The counters of the queue's journal alone. Takes no lock and does no maintenance."""
        if self.handle.q.h.state == SHMQ_GONE:
            raise _error(self.handle, SHMQ_DELETED)
        return _journal_numbers(self.handle.q.h, shmq_journal_error(&self.handle.q))

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
            _lock(self.handle)
            made = self.handle.q.h.slots_made
            end = min(start + count, made)
            for at in range(start, end):
                if shmq_state_of(shmq_word(&self.handle.q.slots[at])) != SHMQ_FREE:
                    shmq_look(&self.handle.q, &self.handle.q.slots[at], &views[live])
                    live += 1
            _unlock(self.handle)
            for i in range(live):
                view = &views[i]
                rows.append((view.at, shmq_state_of(view.word), view.seq, view.priority,
                             view.deliveries, view.put_at, view.deadline, view.expires))
        finally:
            free(views)
        return rows, (end if end < made else None)

    def held(self, uint32_t start, uint32_t count, uint64_t after) -> tuple[
            list[tuple[int, int, int, int, int, int, int, bytes]], int | None]:
        """The leased messages after sequence ``after`` in up to ``count`` slots from ``start`` on.

        Returns (rows, next start or None); a row is (sequence, deliveries, priority, body bytes,
        deadline in monotonic ns, process number of the holder, its pid, its name).
        """
        cdef shmq_leased_view *held = <shmq_leased_view *>malloc(max(count, 1) * sizeof(shmq_leased_view))
        cdef shmq_leased_view *one
        cdef uint32_t end, made, i, found
        cdef list rows = []
        if held == NULL:
            raise MemoryError
        try:
            _lock(self.handle)
            made = self.handle.q.h.slots_made
            end = min(start + count, made)
            found = shmq_leases_in(&self.handle.q, start, end, after, held)
            _unlock(self.handle)
            for i in range(found):
                one = &held[i]
                rows.append((one.seq, one.deliveries, one.priority, one.body_bytes, one.deadline,
                             one.process, one.pid, one.name[:31].split(b"\0")[0]))
        finally:
            free(held)
        return rows, (end if end < made else None)

    def oldest_put(self) -> int | None:
        """When the oldest visible message was put, monotonic ns; None if there is none."""
        cdef uint32_t at = 0, made = self.handle.q.h.slots_made, end
        cdef int64_t oldest = FOREVER
        while at < made:
            _lock(self.handle)
            made = self.handle.q.h.slots_made
            end = min(at + 65536, made)
            while at < end:
                if (shmq_state_of(shmq_word(&self.handle.q.slots[at])) == SHMQ_READY
                        and self.handle.q.slots[at].put_at < oldest):
                    oldest = self.handle.q.slots[at].put_at
                at += 1
            _unlock(self.handle)
        return None if oldest == FOREVER else oldest

    def copy_at(self, uint32_t at, uint64_t seq) -> api.Message | None:
        """A copy of message ``seq`` in slot ``at``, or None if it is gone."""
        cdef shmq_view view
        cdef Message message
        cdef unsigned char *place
        cdef int status = self._pin_at(at, seq, &view, NULL)
        if status == SHMQ_OK:
            message = _copy_message(self.handle, &view, view.body, view.meta)
            self.handle._unpin(at, fork_generation)
            return message
        if status == SHMQ_STALE:
            return None
        # Another process has pinned it, so it is copied under the lock, into memory made before.
        raw = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>view.body_bytes + view.meta_bytes)
        status = self._pin_at(at, seq, &view, PyBytes_AS_STRING(raw))
        if status == SHMQ_OK:
            self.handle._unpin(at, fork_generation)
            return self.copy_at(at, seq)
        if status == SHMQ_STALE:
            return None
        place = <unsigned char *>PyBytes_AS_STRING(raw)
        return _copy_message(self.handle, &view, place, place + view.body_bytes)

    # SHMQ_OK: pinned. SHMQ_BUSY: body and properties were copied to `to`, if it is given.
    cdef int _pin_at(self, uint32_t at, uint64_t seq, shmq_view *view, char *to) except -1:
        cdef int status
        _lock(self.handle)
        status = shmq_pin_at(&self.handle.q, at, seq, view)
        if status == SHMQ_OK:
            self.handle.views += 1
        elif status == SHMQ_BUSY and to != NULL:
            memcpy(to, view.body, view.body_bytes)
            if view.meta_bytes:
                memcpy(to + view.body_bytes, view.meta, view.meta_bytes)
        _unlock(self.handle)
        if status != SHMQ_OK and status != SHMQ_BUSY and status != SHMQ_STALE:
            raise _error(self.handle, status)
        return status


cdef dict _journal_numbers(const shmq_header *h, uint32_t error):
    cdef shmq_journal j = h.journal
    cdef bint journaled = _DURABILITY[h.options.durability % 3] == "journal"
    return {
        "durability": _DURABILITY[h.options.durability % 3],
        "journal_lag": max(0, <int64_t>(h.fresh_tail - j.synced)) if journaled else 0,
        "journal_waiting": h.spent,
        "journal_synced": j.synced,
        "journal_error": _os.strerror(error) if error else None,
        "journal_bytes": j.bytes,
        "snapshot_age": max(0.0, (shmq_wall() - j.snapshot_at) / 1e9) if j.snapshot_at else None,
    }
