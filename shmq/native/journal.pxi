# The journal of a queue: waiting for it, the records of its files, what a writer follows in the
# queue, a scan for a snapshot, and the queue restored from its files.

cdef enum:
    SYNC_SLICE = 50000000       # ns: the most that a writer's death can delay a sleeper


cdef bint _wait_synced(Handle handle, uint64_t seq, int64_t until) except -1:
    cdef int status = SHMQ_TIMED_OUT
    cdef int64_t left = SYNC_SLICE
    while shmq_synced(&handle.q) < seq:
        if until != FOREVER:
            left = min(SYNC_SLICE, until - _real_now())
        if left <= 0 or not handle.open_:
            handle.disk_error = 0
            return False
        with nogil:
            status = shmq_wait_synced(&handle.q, seq, left)
        PyErr_CheckSignals()
        if status == SHMQ_TIMED_OUT:
            handle.await_writer()
        elif status == SHMQ_NO_SPACE:
            handle.disk_error = shmq_journal_error(&handle.q)
            if handle.disk_error:
                return False
        elif status != SHMQ_OK and status != SHMQ_INTERRUPTED:
            return False
    return True


@cython.final
cdef class JournalProgress:
    """How far the journal of a handle's queue is on disk, and waits for it."""

    cdef Handle handle

    def __cinit__(self, Handle handle not None):
        self.handle = handle

    @property
    def synced(self) -> int:
        """Every put up to this sequence number is on disk, or was settled before it got there."""
        return shmq_synced(&self.handle.q)

    @property
    def error(self) -> int:
        """The errno with which a living writer's last attempt to write failed; 0 if none did."""
        return shmq_journal_error(&self.handle.q)

    @property
    def last_error(self) -> int:
        """The errno for which the handle's latest wait ended; 0: it ended for another reason."""
        return self.handle.disk_error

    @property
    def writer(self) -> int:
        """The process number of the queue's persistence writer; 0 if there is none."""
        return self.handle.q.h.journal.writer

    def request_sync(self, uint64_t seq):
        """Ask the writer to write the puts up to ``seq`` without delay. Does not wait."""
        shmq_request_sync(&self.handle.q, seq)

    def wait_synced(self, uint64_t seq, timeout: float | None) -> bool:
        """Wait until all puts up to ``seq`` are on disk; whether that was within ``timeout`` s.

        None waits without limit. The wait also ends if the disk fails, the queue is deleted or
        the handle is closed.
        """
        return _wait_synced(self.handle, seq, _deadline(timeout))


# ---- records one at a time, for file headers and footers, and for tools ----

#: The version of the format, and the size in bytes of a whole BATCH record.
DMSQ_VERSION = <int>SHMQ_DMSQ_VERSION
BATCH_BYTES = <int>SHMQ_BATCH_BYTES

RECORD_TYPES = ("", "batch", "put", "settle", "update", "dedupe", "state", "end", "index", "footer")
TOTALS = ("acked", "nacked", "expired", "dead_lettered", "dropped", "deduped", "redelivered")

_READS = ("ok", "end", "cut", "crc", "type", "malformed")
_WORDS = {"settle": 1, "dedupe": 4, "index": 3}
_FLAGS = (
    ("group", SHMQ_R_GROUPED), ("expires", SHMQ_R_TTL), ("until", SHMQ_R_DELAYED),
    ("dead_at", SHMQ_R_DEAD), ("origin_queue", SHMQ_R_ORIGIN), ("holds", SHMQ_R_HOLDS),
)


def crc32c(data, uint32_t crc=0) -> int:
    """The CRC-32C of the buffer ``data``; ``crc`` is that of the bytes before it."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        crc = shmq_crc32c(crc, view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def seal_records(data, uint32_t salt):
    """Write the checksums of all records in the writable buffer ``data`` with a file's salt."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    with nogil:
        shmq_records_seal(<unsigned char *>view.buf, view.len, salt)
    PyBuffer_Release(&view)


def pack_batch(data, uint32_t salt, uint64_t batch, int64_t wall, uint64_t last_seq) -> bytes:
    """The BATCH record for ``data``, which is whole records sealed with ``salt``.

    ``wall`` is in ns since 1970, ``last_seq`` the last sequence number that was assigned.
    """
    cdef Py_buffer view
    cdef shmq_record r
    memset(&r, 0, sizeof(r))
    r.type = SHMQ_R_BATCH
    r.batch, r.wall, r.last_seq = batch, wall, last_seq
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    r.bytes = view.len
    with nogil:
        r.crc = shmq_crc32c(0, view.buf, view.len)
    PyBuffer_Release(&view)
    return _packed_record(&r, salt)


cdef bytes _packed_record(const shmq_record *r, uint32_t salt):
    cdef size_t size = shmq_record_size(r)
    cdef bytes made
    if not size:
        raise ValueError("no record holds that much")
    made = PyBytes_FromStringAndSize(NULL, size)
    shmq_record_write(<unsigned char *>PyBytes_AS_STRING(made), salt, r)
    return made


def pack_record(str kind, uint32_t salt, **fields) -> bytes:
    """Pack one record of a type of ``RECORD_TYPES`` from the fields of :func:`read_record`."""
    cdef shmq_record r
    cdef bytes body = bytes(fields.get("body", b"")), meta = bytes(fields.get("meta", b""))
    cdef object entries = _array.array("Q")
    memset(&r, 0, sizeof(r))
    r.type = RECORD_TYPES.index(kind)
    for name, flag in _FLAGS:
        if fields.get(name):
            r.flags |= <uint8_t>flag
    for name, value in fields.items():
        if name == "entries":
            for entry in value:
                entries.extend([part & 0xFFFFFFFFFFFFFFFF for part in
                                (entry if isinstance(entry, tuple) else (entry,))])
        elif name == "totals":
            for at, total in enumerate(TOTALS):
                r.totals[at] = value.get(total, 0)
        elif name not in ("body", "meta", "holds"):
            _set_field(&r, name, value)
    r.body, r.body_bytes = PyBytes_AS_STRING(body), len(body)
    r.meta, r.meta_bytes = PyBytes_AS_STRING(meta), len(meta)
    r.count = len(fields.get("entries", ()))
    data = entries.tobytes()
    if r.count and len(data) != r.count * _WORDS.get(kind, 0) * 8:
        raise ValueError(f"these are no entries of a record of type {kind!r}")
    r.entries = PyBytes_AS_STRING(data)
    return _packed_record(&r, salt)


cdef int _set_field(shmq_record *r, str name, value) except -1:
    if name == "priority": r.priority = value
    elif name == "codec": r.codec = value
    elif name == "reason": r.reason = value
    elif name == "deliveries": r.deliveries = value
    elif name == "seq": r.seq = value
    elif name == "put_at": r.put_at = value
    elif name == "group": r.group = value
    elif name == "expires": r.expires = value
    elif name == "until": r.until = value
    elif name == "dead_at": r.dead_at = value
    elif name == "origin_queue": r.origin_queue = value
    elif name == "origin_seq": r.origin_seq = value
    elif name == "batch": r.batch = value
    elif name == "wall": r.wall = value
    elif name == "last_seq": r.last_seq = value
    elif name == "bytes": r.bytes = value
    elif name == "crc": r.crc = value
    elif name == "batches": r.batches = value
    elif name == "puts": r.puts = value
    elif name == "index": r.index = value
    elif name == "end": r.end = value
    else:
        raise TypeError(f"a record has no field {name!r}")
    return 0


cdef dict _fields_of(const shmq_record *r):
    cdef int i
    if r.type == SHMQ_R_PUT or r.type == SHMQ_R_UPDATE:
        return _message_fields(r)
    if r.type == SHMQ_R_SETTLE:
        return {"entries": [shmq_record_settled(r, i) for i in range(r.count)]}
    if r.type == SHMQ_R_DEDUPE:
        return {"entries": [_taken_tuple(shmq_record_taken(r, i)) for i in range(r.count)]}
    if r.type == SHMQ_R_INDEX:
        return {"entries": [_place_tuple(shmq_record_indexed(r, i)) for i in range(r.count)]}
    if r.type == SHMQ_R_BATCH:
        return {"batch": r.batch, "wall": r.wall, "last_seq": r.last_seq, "bytes": r.bytes,
                "crc": r.crc}
    if r.type == SHMQ_R_STATE:
        return {"last_seq": r.last_seq,
                "totals": {TOTALS[i]: r.totals[i] for i in range(SHMQ_TOTALS)}}
    if r.type == SHMQ_R_END:
        return {"batch": r.batch, "last_seq": r.last_seq, "batches": r.batches, "puts": r.puts}
    return {"end": r.end, "index": r.index}


cdef tuple _taken_tuple(shmq_taken taken):
    return (taken.hash[0], taken.hash[1], taken.seq, taken.until)


cdef tuple _place_tuple(shmq_indexed_batch place):
    return (place.offset, place.batch, place.last_seq)


cdef dict _message_fields(const shmq_record *r):
    cdef dict fields = {"seq": r.seq, "deliveries": r.deliveries}
    if r.type == SHMQ_R_PUT:
        fields["priority"], fields["codec"], fields["put_at"] = r.priority, r.codec, r.put_at
    if r.flags & SHMQ_R_GROUPED:
        fields["group"] = r.group
    if r.flags & SHMQ_R_TTL:
        fields["expires"] = r.expires
    if r.flags & SHMQ_R_DELAYED:
        fields["until"], fields["holds"] = r.until, bool(r.flags & SHMQ_R_HOLDS)
    if r.flags & SHMQ_R_DEAD:
        fields["reason"], fields["dead_at"] = r.reason, r.dead_at
    if r.flags & SHMQ_R_ORIGIN:
        fields["origin_queue"], fields["origin_seq"] = r.origin_queue, r.origin_seq
    if r.type == SHMQ_R_PUT:
        fields["body"] = PyBytes_FromStringAndSize(<const char *>r.body, r.body_bytes)
        fields["meta"] = PyBytes_FromStringAndSize(<const char *>r.meta, r.meta_bytes)
    return fields


def read_record(data, size_t offset, uint32_t salt) -> tuple[str, str, int, dict[str, Any]]:
    """The record at ``offset`` of the buffer ``data``: result, type, bytes, fields.

    The result is "ok", or, then without fields, "end" (nothing was written there), "cut" (longer
    than the data left), "crc", "type" (unknown) or "malformed".
    """
    cdef Py_buffer view
    cdef shmq_record r
    cdef size_t size = 0
    cdef int how
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if offset > <size_t>view.len:
            return "end", "", 0, {}
        how = shmq_record_read(<const unsigned char *>view.buf + offset, view.len - offset, salt,
                               True, &r, &size)
        if how == SHMQ_READ_OK:
            return "ok", RECORD_TYPES[r.type], size, _fields_of(&r)
        kind = str((<const unsigned char *>view.buf)[offset + SHMQ_RECORD_HEAD]) if size else ""
        return _READS[how], kind, size, {}
    finally:
        PyBuffer_Release(&view)


# ---- following a queue, scanning it, and restoring it ----

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
                self.handle._lock()
            except _errors.QueueDeleted:
                return
            more = shmq_release(&self.f, RELEASED_AT_ONCE)
            self.handle._unlock()

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
    cdef const char *at = <const char *>shmq_meta_of(q, s)
    if at == NULL:
        return b""
    return PyBytes_FromStringAndSize(at, s.meta_bytes)


cdef class Scan:
    """Reads a queue's messages for a snapshot, as batches, without a lock.

    With ``limit`` it reads those up to that sequence number, else those put before it began.
    A message put meanwhile is not included; one settled meanwhile may or may not be.
    """

    cdef Handle handle
    cdef _Pages pages
    cdef uint32_t cursor
    cdef uint64_t ids
    cdef readonly uint64_t limit   # the last sequence number that is included
    cdef readonly uint64_t count   # messages so far
    cdef int part                  # the next part: the totals, messages, dedupe ids, nothing

    def __init__(self, Handle handle, limit: int | None = None):
        self.handle = handle
        self.pages = _Pages(0)
        self.limit = handle.q.h.last_seq if limit is None else limit

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
            pages._frame(batch, self.limit, salt)
        return memoryview(pages)

    cdef void _fill(self, shmq_queue *q, shmq_out *out, uint32_t salt,
                    uint64_t *needed) noexcept nogil:
        if self.part == 0:
            _write_totals(q, self.limit, out, salt)
            self.part = 1
        if self.part == 1 and shmq_scan(q, &self.cursor, self.limit, out, salt, &self.count,
                                        needed) == SHMQ_OK:
            self.part = 2
        if self.part == 2 and shmq_scan_dedupe(q, &self.ids, self.limit, out, salt) == SHMQ_OK:
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


cdef class Restoration:
    """A queue that is being restored from its files: see shmq/core/file/restore.h.

    Its segment is not published yet. The caller puts the messages into it in the order of
    their sequence numbers, then calls `finish`. Without ``logged`` its journal does not
    have the messages yet and must record them.
    """

    cdef Segment segment
    cdef shmq_queue q
    cdef shmq_restorer r

    def __init__(self, Segment segment, bint logged=True):
        self.segment = segment
        self.r.logged = logged
        segment._bind(&self.q)
        self.r.q = &self.q
        self.r.now = shmq_now()
        self.r.wall = shmq_wall()

    def finish(self, uint64_t last_seq, totals: Sequence[int], uint64_t batch, uint64_t segment,
               uint64_t offset):
        """Let the queue continue where its files end, and publish its segment.

        ``totals``: seven numbers as in a STATE record; ``batch``, ``segment``, ``offset``: the
        position of its journal.
        """
        cdef uint64_t counts[7]
        for i in range(7):
            counts[i] = totals[i]
        shmq_restore_end(&self.r, last_seq, counts, batch, segment, offset)
        self.segment.publish()


# ---- the messages in the files of a queue, put together: replay.h ----

_FED = ("ok", "torn", "damaged")
_MOST_SEQUENCE = (1 << 64) - 1

# So many bytes are read or restored before the caller is told.
cdef enum: _TOLD = 4 << 20


# An int, limited to `least` to `most`; `otherwise` for None.
cdef object _clamped(str name, value, otherwise, least, most):
    return otherwise if value is None else min(max(_whole(name, value), least), most)


@cython.no_gc_clear
cdef class Replay:
    """The live messages of files that are fed from the oldest to the newest.

    Only messages with sequence numbers from ``first`` to ``last`` are kept. The replay holds the
    files' buffers until `close`. Raises MemoryError.
    """

    cdef shmq_replay r
    cdef list buffers

    def __cinit__(self, bint salvage=False, uint64_t first=0, uint64_t last=0xFFFFFFFFFFFFFFFF):
        self.buffers = []
        shmq_replay_begin(&self.r, salvage, first, last)
        self.r.most = _TOLD

    def __dealloc__(self):
        shmq_replay_end(&self.r)

    # Raises ValueError if the reading of a file was ended before the file's end.
    cdef int _check_read(self) except -1:
        if self.r.more:
            raise ValueError("a file was not read to its end: close the replay")
        return 0

    def close(self):
        """Release the buffers. No other method may be called afterwards."""
        shmq_replay_end(&self.r)
        for view in self.buffers:
            (<object>view).release()
        self.buffers = []

    def feed(self, data, uint64_t start, uint32_t salt, uint64_t first_batch, uint64_t whole,
             bint exact, told: Callable[[int], object] | None = None) -> tuple[str, dict[str, Any]]:
        """Read a file: see shmq_replay_feed in replay.h.

        ``told`` is called again and again with how many more bytes are read; if it raises, only
        `close` is allowed afterwards. Returns "ok", "torn" or "damaged", and a dict: end, damage,
        how, batches, puts, complete. Not allowed after `sort`.
        """
        cdef shmq_found found
        cdef const unsigned char *base = NULL
        cdef uint64_t size
        cdef uint64_t before = start
        cdef int fed = SHMQ_FED_MORE
        cdef Py_buffer raw
        if self.r.sorted:
            raise ValueError("files are fed before their messages are sorted")
        self._check_read()
        view = memoryview(data).cast("B")
        self.buffers.append(view)
        PyObject_GetBuffer(view, &raw, PyBUF_SIMPLE)
        base, size = <const unsigned char *>raw.buf, raw.len
        PyBuffer_Release(&raw)
        while fed == SHMQ_FED_MORE:
            with nogil:
                fed = shmq_replay_feed(&self.r, base, size, start, salt, first_batch, whole, exact,
                                       &found)
            if told is not None and found.end > before:
                told(found.end - before)
                before = found.end
        if fed == SHMQ_FED_NO_MEMORY:
            raise MemoryError(f"the index of {self.r.live.count} messages does not fit into memory")
        return _FED[fed], {
            "end": found.end, "damage": found.damage, "how": _READS[found.how],
            "batches": found.batches, "puts": found.puts, "complete": bool(found.complete),
        }

    @property
    def messages(self) -> int:
        """The number of live messages."""
        return self.r.live.count

    @property
    def bytes(self) -> int:
        """The total size in bytes of their PUT records."""
        return self.r.live_bytes

    @property
    def last_seq(self) -> int:
        """The last sequence number that was assigned."""
        return self.r.last_seq

    @property
    def last_batch(self) -> int:
        """The number of the newest batch in the last file."""
        return self.r.last_batch

    @property
    def records(self) -> int:
        """The number of records read."""
        return self.r.records

    @property
    def totals(self) -> dict[str, int]:
        """The queue's counters, by `TOTALS`."""
        return {TOTALS[i]: self.r.totals[i] for i in range(SHMQ_TOTALS)}

    def origins(self) -> list[tuple[int, int, int]]:
        """For each copy, settled or not: its origin queue, its number there and its number here."""
        cdef shmq_copy *copies = <shmq_copy *>self.r.copies.items
        cdef uint64_t i
        return [(copies[i].queue, copies[i].seq, copies[i].here)
                for i in range(self.r.copies.count)]

    def skipped(self) -> list[tuple[int, int, int, str]]:
        """The damaged places passed over: (index of the file as fed, offset, bytes, result)."""
        cdef shmq_skipped *skipped = <shmq_skipped *>self.r.skipped.items
        cdef uint64_t i
        return [(skipped[i].file, skipped[i].offset, skipped[i].bytes, _READS[skipped[i].how])
                for i in range(self.r.skipped.count)]

    def discard(self, seqs: Iterable[int]) -> int:
        """Forget these messages; returns how many of them there were. Not allowed after `sort`."""
        if self.r.sorted:
            raise ValueError("messages are discarded before they are sorted")
        return sum([shmq_replay_discard(&self.r, seq) for seq in seqs])

    def spread(self, Py_ssize_t count) -> tuple[int, int, list[int]]:
        """A histogram of the bytes of PUT records by sequence number, in ``count`` parts.

        Returns the least number of a live message, how many numbers a part has, and the bytes of
        each part; no parts if there are no messages. Not allowed after `sort`.
        """
        cdef uint64_t least, greatest, width
        cdef uint64_t[::1] sums
        if self.r.sorted:
            raise ValueError("what is sorted is not spread any more")
        if count < 1 or not shmq_replay_span(&self.r, &least, &greatest):
            return 0, 1, []
        width = (greatest - least) // <uint64_t>count + 1
        found = _array.array("Q", bytes(8 * count))
        sums = found
        shmq_replay_spread(&self.r, least, width, &sums[0], count)
        return least, width, found.tolist()

    def sort(self, int64_t wall):
        """Sort by sequence number; drop dedupe ids that expire by ``wall``, in ns."""
        cdef bint sorted_
        self._check_read()
        with nogil:
            sorted_ = shmq_replay_sort(&self.r, wall)
        if not sorted_:
            raise MemoryError("the messages cannot be sorted")

    def message(self, uint64_t at) -> dict[str, Any]:
        """The sorted message at index ``at``, with the fields of a "put" record."""
        cdef shmq_record record
        if not self.r.sorted or at >= self.r.live.count:
            raise IndexError(f"there is no message {at} of {self.r.live.count}")
        shmq_replay_message(&self.r, at, &record)
        return _fields_of(&record)

    def columns(self, start: int = 0, *, max_bytes: int = 4 << 20, end: int | None = None,
                min_sequence: int | None = None, max_sequence: int | None = None,
                min_put_at: int | None = None,
                max_put_at: int | None = None) -> tuple[api.Columns, int | None]:
        """The sorted messages from ``start`` to ``end``: (`shmq.api.Columns`, next start).

        ``min_...`` and ``max_...`` limit the sequence numbers and the times, in microseconds since
        1970; both limits are inclusive. A block has at most ``max_bytes``, unless a single message
        is larger. The next start is None after the last message.
        """
        cdef shmq_file_columns e
        cdef shmq_columns_layout layout
        cdef shmq_columns columns
        cdef uint64_t first, at, last
        cdef char *base
        cdef bint fits
        if not self.r.sorted:
            raise ValueError("messages are sorted before they are read")
        memset(&e, 0, sizeof(e))
        e.least_seq = _clamped("min_sequence", min_sequence, 0, 0, _MOST_SEQUENCE)
        e.most_seq = _clamped("max_sequence", max_sequence, _MOST_SEQUENCE, 0, _MOST_SEQUENCE)
        e.least_put_at = _clamped("min_put_at", min_put_at, -FOREVER, -FOREVER, FOREVER)
        e.most_put_at = _clamped("max_put_at", max_put_at, FOREVER, -FOREVER, FOREVER)
        e.max_bytes = _most_bytes(max_bytes)
        first = at = _clamped("start", start, 0, 0, self.r.live.count)
        last = _clamped("end", end, self.r.live.count, 0, self.r.live.count)
        with nogil:
            fits = shmq_file_columns_count(&self.r, &e, &at, last)
        if not fits:
            raise _errors.MessageTooLarge(
                f"message {self.message(at)['seq']} is too large for a column: a block holds up "
                f"to {MOST_COLUMNS} bytes")
        shmq_columns_lay_out(&layout, e.count, e.body_bytes, e.meta_bytes)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, layout.size)
        base = PyBytes_AS_STRING(data)
        with nogil:
            shmq_columns_begin(&columns, base, &layout)
            shmq_file_columns_copy(&self.r, &e, first, at, &columns)
            shmq_columns_end(&columns)
        return _policy.columns(data), at if at < last else None

    def dedupe(self) -> list[tuple[int, int, int, int]]:
        """The dedupe ids: (half of the hash, other half, sequence number, expiry in wall ns)."""
        cdef shmq_taken *taken = <shmq_taken *>self.r.taken.items
        cdef uint64_t i
        return [_taken_tuple(taken[i]) for i in range(self.r.taken.count)]

    def restore(self, Restoration restoration, told: Callable[[int], object] | None = None):
        """Put everything into a queue that is being made, in order; call `sort` first.

        ``told`` is called again and again with how many more bytes of records are in it. Raises
        :class:`shmq.NoSpace`, and :class:`shmq.FileError` for a message that does not fit into a
        queue of these options.
        """
        cdef shmq_record record
        cdef shmq_restorer *into = &restoration.r
        cdef shmq_taken *taken = <shmq_taken *>self.r.taken.items
        cdef uint64_t i = 0, count = self.r.live.count, size = 0
        cdef int status = SHMQ_OK
        if not self.r.sorted:
            raise ValueError("messages are sorted before they are restored")
        while i < count and status == SHMQ_OK:
            size = 0
            with nogil:
                while i < count and size < _TOLD and status == SHMQ_OK:
                    shmq_replay_message(&self.r, i, &record)
                    status = shmq_restore(into, &record)
                    size += shmq_record_size(&record)
                    i += 1
            if told is not None:
                told(size)
        _check_restored(restoration, status, record.seq if status else 0)
        with nogil:
            for i in range(self.r.taken.count):
                status = shmq_restore_id(into, &taken[i])
                if status != SHMQ_OK:
                    break
        _check_restored(restoration, SHMQ_OK if status == SHMQ_FULL else status, 0)


cdef int _check_restored(Restoration restoration, int status, uint64_t seq) except -1:
    if status == SHMQ_OK:
        return 0
    if status == SHMQ_NO_SPACE:
        raise _no_space(restoration.segment.fd, restoration.q.refused_bytes)
    why = {SHMQ_FULL: "the queue is full", SHMQ_TOO_LARGE: "it is too large"}.get(
        status, f"the core said {status}")
    raise _errors.FileError(
        f"message {seq} does not fit into a queue with these options: {why}; "
        f"restore it with a larger capacity, arena_bytes or max_message_bytes")


def closed_at(data, uint64_t start, uint32_t salt) -> int:
    """The end of the batches of the file ``data`` according to its footer; 0 if it has none.

    ``start`` is where its records begin.
    """
    cdef Py_buffer view
    cdef uint64_t end
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    end = shmq_replay_closed(<const unsigned char *>view.buf, view.len, start, salt)
    PyBuffer_Release(&view)
    return end
