# What the writer reads in a queue: the changes that it follows, and a scan for a snapshot.

cdef enum:
    RELEASED_AT_ONCE = 256
    LEAST_ROOM = 4096


cdef class _Pages:
    """Private memory for records, behind room for the head of a batch."""

    cdef unsigned char *base
    cdef readonly size_t room      # bytes available behind the head
    cdef size_t used

    def __cinit__(self, size_t room):
        self.base = <unsigned char *>malloc(SHMQ_BATCH_BYTES + room)
        if self.base == NULL:
            raise MemoryError(f"{room} bytes for a batch of the journal")
        self.room = room

    def __dealloc__(self):
        free(self.base)

    cdef shmq_out _start(self) noexcept nogil:
        cdef shmq_out out
        out.at = self.base + SHMQ_BATCH_BYTES
        out.end = out.at + self.room
        return out

    # Writes the head in front of the records; writes nothing if there are none.
    cdef void _frame(self, uint64_t batch, uint64_t last_seq, uint32_t salt) noexcept nogil:
        cdef shmq_record head
        memset(&head, 0, sizeof(head))
        head.type = SHMQ_R_BATCH
        head.batch = batch
        head.wall = shmq_wall()
        head.last_seq = last_seq
        head.bytes = self.used
        head.crc = shmq_crc32c(0, self.base + SHMQ_BATCH_BYTES, self.used)
        shmq_record_write(self.base, salt, &head)

    def __getbuffer__(self, Py_buffer *view, int flags):
        size = SHMQ_BATCH_BYTES + self.used if self.used else 0
        PyBuffer_FillInfo(view, self, self.base, size, True, flags)


class Collected(_typing.NamedTuple):
    """What a `Follower` has collected."""

    #: The batch's number; each is one above the one before.
    batch: int
    #: The whole batch with its head. If empty, there is nothing to write, but the batch must be
    #: published. Valid until the next collection.
    data: memoryview
    #: Every put up to this sequence number is in this batch or an earlier one, or is settled.
    last_seq: int
    #: How many messages and how many settlements are in it.
    puts: int
    settles: int
    #: Whether more was waiting than fitted.
    more: bool


cdef class Follower:
    """The persistence writer's access to one queue: see shmq/core/file/change_scan.h.

    It needs a handle of a queue that has a journal. A queue has one follower at a time, and
    only `wake` may be called from another thread. `collect` returns a whole batch as bytes; the
    writer writes it to disk, then calls `publish`.
    """

    cdef shmq_change_scan f
    cdef Handle handle
    cdef _Pages pages
    cdef bint collected

    def __init__(self, Handle handle):
        if not handle.q.journaled:
            raise _errors.InvalidOption(f"queue {handle.name!r} keeps no journal")
        self.handle = handle
        self.pages = _Pages(0)
        shmq_scan_begin(&self.f, &handle.q)
        shmq_fail(&handle.q, 0)  # it was the writer's before this one
        handle.q.h.journal.writer = handle.number

    def __dealloc__(self):
        shmq_scan_end(&self.f)

    @property
    def deleted(self) -> bool:
        """Whether the queue has been deleted."""
        return self.handle.q.h.state == SHMQ_GONE

    @property
    def position(self) -> tuple[int, int]:
        """The position published last: the number of the journal's segment and how many bytes of
        it are synced; 0 bytes if that is not known."""
        return self.handle.q.h.journal.segment, self.handle.q.h.journal.offset

    @property
    def synced(self) -> int:
        """Every put up to this sequence number is on disk, or was settled before."""
        return shmq_synced(&self.handle.q)

    @property
    def batch(self) -> int:
        """The number of the batch published last."""
        return self.f.batch - 1

    @property
    def held(self) -> int:
        """How many messages `moved` would return; some of them may be settled already."""
        return self.f.moved.len

    @property
    def live_bytes(self) -> int:
        """Approximately the bytes that the queue's messages would take in a file."""
        h = self.handle.q.h
        return (h.units_used - h.units_cached) * SHMQ_UNIT + h.live * 64

    def withdraw(self):
        """Undo what a dead writer had claimed but not published, and clear its failure.

        The caller must first void whatever that writer may have written behind the published
        position.
        """
        with nogil:
            shmq_disclaim(&self.f)
            shmq_fail(&self.handle.q, 0)

    def collect(self, size_t most, uint32_t salt) -> Collected | None:
        """Collect the changes as a batch sealed with ``salt``; None if there are none.

        ``most``, in bytes, grows to the size of one record if needed. Collects nothing new before
        `publish`. Raises MemoryError.
        """
        cdef shmq_out out
        cdef int status = SHMQ_FULL
        cdef shmq_change_scan *f = &self.f
        cdef _Pages pages
        if self.collected:
            raise ValueError("the last batch was not published")
        f.needed = 0
        while True:
            if self.pages.room < max(most, f.needed):
                self.pages = _Pages(max(most, f.needed))  # the old one may still be in use
            pages = self.pages
            with nogil:
                out = pages._start()
                status = shmq_collect(f, &out, salt)
                pages.used = out.at - pages.base - SHMQ_BATCH_BYTES
            if status == SHMQ_NO_SPACE:
                raise MemoryError("private memory of the journal")
            if status == SHMQ_OK or pages.used or f.done.len or not f.needed:
                break
        if not pages.used and not f.done.len and f.covered <= shmq_synced(f.q):
            return None
        if pages.used:
            with nogil:
                pages._frame(f.batch, f.covered, salt)
        self.collected = True
        return Collected(f.batch, memoryview(pages), f.covered, f.puts_logged, f.settles_logged,
                         status == SHMQ_FULL)

    def seal(self, uint32_t salt):
        """Seal the collected batch again, for a file with another salt."""
        cdef _Pages pages = self.pages
        if not self.collected or not pages.used:
            return
        with nogil:
            shmq_records_seal(pages.base + SHMQ_BATCH_BYTES, pages.used, salt)
            pages._frame(self.f.batch, self.f.covered, salt)

    def publish(self, uint64_t segment, uint64_t offset):
        """Say that the batch is on disk, and that segment ``segment`` has ``offset`` synced bytes.

        This wakes the waiters for it and frees the slots of settled messages. If the lock is not
        to be had, it raises LockTimeout, and the rest of the slots are freed with the next batch.
        """
        cdef bint more
        if not self.collected:
            raise ValueError("no batch was collected")
        cdef uint64_t size = SHMQ_BATCH_BYTES + self.pages.used if self.pages.used else 0
        with nogil:
            shmq_mark_synced(&self.f, segment, offset, size)
        self.collected = False
        more = self.f.done.len != 0
        while more:
            try:
                _lock(self.handle)
            except _errors.QueueDeleted:
                return
            more = shmq_release(&self.f, RELEASED_AT_ONCE)
            _unlock(self.handle)

    def moved(self) -> list[tuple[int, int, int, bytes]]:
        """Messages moved to another queue whose settlement is held back until that queue has
        them on disk: a list of (slot, sequence number, reason, properties as msgpack).

        Reason 0: redriven to the queue that the property ``dead`` names.
        """
        cdef list found = []
        cdef shmq_slot *s
        cdef uint32_t i
        for i in range(shmq_held_back(&self.f)):
            s = &self.f.q.slots[self.f.moved.at[i].at]
            found.append((self.f.moved.at[i].at, s.seq, s.reason, _meta_of(self.f.q, s)))
        return found

    def arrived(self, slots: Iterable[int]):
        """Let the next batch contain the settlements of these moved messages."""
        for slot in slots:
            shmq_arrived(&self.f, slot)

    def copies_waiting(self, uint64_t origin_queue, seqs: Iterable[int]) -> set[int]:
        """Which of the messages moved here from that queue are not on this queue's disk yet.

        ``seqs``: an iterable of sequence numbers in that queue; returns a set.
        """
        cdef list wanted = sorted(seqs)
        cdef uint32_t count = len(wanted), i
        cdef uint64_t *numbers = <uint64_t *>malloc(count * 8 + 1)
        cdef cbool *waits = <cbool *>malloc(count + 1)
        if numbers == NULL or waits == NULL:
            free(numbers)
            free(waits)
            raise MemoryError(f"{count} numbers of messages")
        for i in range(count):
            numbers[i] = wanted[i]
            waits[i] = False
        with nogil:
            shmq_copies_waiting(&self.handle.q, origin_queue, numbers, waits, count)
        found = {wanted[i] for i in range(count) if waits[i]}
        free(numbers)
        free(waits)
        return found

    def fail(self, uint32_t error):
        """Report that the disk failed with that errno to all waiters; 0 means it works again."""
        shmq_fail(&self.handle.q, error)

    def wait(self, double timeout, double linger, uint32_t crowd=0, double patience=0.0) -> bool:
        """Sleep until there is something to collect, at most ``timeout`` s; whether there is.

        It returns at once if a put waits for the disk, but after up to ``patience`` s if ``crowd``
        puts are expected; otherwise ``linger`` s after the first change. `wake` ends it, too.
        """
        cdef int status
        cdef int64_t ns = _ns(timeout), some = _ns(linger), more = _ns(patience)
        with nogil:
            status = shmq_await_changes(&self.f, ns, some, crowd, more)
        PyErr_CheckSignals()
        return status == SHMQ_OK

    def wake(self):
        """Let `wait` return. May be called from any thread."""
        shmq_wake_scan(&self.f)

    def snapshot_taken(self, uint64_t size):
        """Record in the queue's statistics that a snapshot of ``size`` bytes is on disk."""
        _count_snapshot(&self.handle.q, size)


cdef void _count_snapshot(shmq_queue *q, uint64_t size) noexcept:
    q.h.journal.snapshot_at = shmq_wall()
    q.h.journal.snapshot_bytes = size


cdef bytes _meta_of(shmq_queue *q, shmq_slot *s):
    cdef const char *at = <const char *>shmq_put_meta_of(q, s)
    if at == NULL:
        return b""
    return PyBytes_FromStringAndSize(at, s.meta_bytes)


cdef class Scan:
    """Reads a queue's messages for a snapshot, as batches, without a lock.

    With ``limit`` it reads those up to that sequence number, else those put before it began.
    A message put in the meantime is not included; one settled in the meantime may or may not be.
    """

    cdef Handle handle
    cdef _Pages pages
    cdef uint32_t cursor
    cdef uint64_t ids
    cdef shmq_scanned which
    cdef readonly uint64_t count   # messages so far
    cdef readonly uint64_t covered # copies up to this number were read, or had been settled
    cdef int part                  # the next part: the totals, messages, dedupe ids, nothing

    def __init__(self, Handle handle, limit: int | None = None):
        self.handle = handle
        self.pages = _Pages(0)
        self.which.limit = handle.q.h.last_seq if limit is None else limit

    @staticmethod
    def of_copies(Handle handle, uint64_t after) -> Scan:
        """Reads the messages that came from other queues, or by transactions, and nothing else.

        Only those with sequence numbers above ``after``. Raises QueueDeleted.
        """
        cdef Scan scan = Scan(handle)
        cdef int status = shmq_lock(&handle.q)
        scan.which.limit = scan.covered = handle.q.h.last_seq
        if status == SHMQ_OK:
            _unlock(handle)
        elif status == SHMQ_DELETED:
            raise _error(handle, status)
        elif scan.covered:
            scan.covered -= 1  # the holder of the lock may be committing the last one
        scan.which.after, scan.which.copies = after, True
        scan.part = 1
        return scan

    @property
    def limit(self) -> int:
        """The last sequence number that is included."""
        return self.which.limit

    def read(self, size_t most, uint32_t salt, uint64_t batch) -> memoryview | None:
        """The next batch, bytes-like, sealed with ``salt`` and numbered; None at the end.

        ``most`` grows to the size of one record if needed. Valid until the next call.
        """
        cdef shmq_queue *q = &self.handle.q
        cdef _Pages pages
        cdef shmq_out out
        cdef uint64_t needed = 0
        if self.part == 3:
            return None
        while True:
            if self.pages.room < max(max(most, needed), LEAST_ROOM):
                self.pages = _Pages(max(max(most, needed), LEAST_ROOM))
            pages = self.pages
            with nogil:
                out = pages._start()
                self._fill(q, &out, salt, &needed)
                pages.used = out.at - pages.base - SHMQ_BATCH_BYTES
            if pages.used or self.part == 3:
                break
        if not pages.used:
            return None
        with nogil:
            pages._frame(batch, self.which.limit, salt)
        return memoryview(pages)

    cdef void _fill(self, shmq_queue *q, shmq_out *out, uint32_t salt,
                    uint64_t *needed) noexcept nogil:
        if self.part == 0:
            _write_totals(q, self.which.limit, out, salt)
            self.part = 1
        if self.part == 1 and shmq_scan(q, &self.cursor, &self.which, out, salt, &self.count,
                                        needed) == SHMQ_OK:
            self.part = 3 if self.which.copies else 2
        if self.part == 2 and shmq_scan_dedupe(q, &self.ids, self.which.limit, out,
                                               salt) == SHMQ_OK:
            self.part = 3

    def snapshot_taken(self, uint64_t size):
        """Record in the queue's statistics that this snapshot, of ``size`` bytes, is on disk."""
        _count_snapshot(&self.handle.q, size)


cdef void _write_totals(shmq_queue *q, uint64_t last_seq, shmq_out *out,
                        uint32_t salt) noexcept nogil:
    cdef shmq_record r
    memset(&r, 0, sizeof(r))
    r.type = SHMQ_R_STATE
    r.last_seq = last_seq
    r.totals[<int>SHMQ_TOTAL_ACKED] = q.h.acked
    r.totals[<int>SHMQ_TOTAL_NACKED] = q.h.nacked
    r.totals[<int>SHMQ_TOTAL_EXPIRED] = q.h.expired
    r.totals[<int>SHMQ_TOTAL_DEAD_LETTERED] = q.h.dead_lettered
    r.totals[<int>SHMQ_TOTAL_DROPPED] = q.h.dropped
    r.totals[<int>SHMQ_TOTAL_DEDUPED] = q.h.deduped
    r.totals[<int>SHMQ_TOTAL_REDELIVERED] = q.h.redelivered
    out.at = shmq_record_write(out.at, salt, &r)
