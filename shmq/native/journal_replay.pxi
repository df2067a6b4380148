# A queue restored from its files: the files read, and the messages put into a new segment.


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

# So many bytes are read or restored before progress is reported.
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
             bint exact, on_progress: Callable[[int], object] | None = None) -> tuple[str, dict[str, Any]]:
        """Read a file: see shmq_replay_feed in replay.h.

        ``on_progress`` is called again and again with how many more bytes are read; if it raises, only
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
            if on_progress is not None and found.end > before:
                on_progress(found.end - before)
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
            raise IndexError(f"message {at} does not exist: there are {self.r.live.count}")
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

    def restore(self, Restoration restoration, on_progress: Callable[[int], object] | None = None):
        """Put everything into a queue that is being made, in order; call `sort` first.

        ``on_progress`` is called again and again with how many more bytes of records are in it. Raises
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
            if on_progress is not None:
                on_progress(size)
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
