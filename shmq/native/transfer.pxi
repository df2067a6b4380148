# Moving messages between queues, and rows that are staged in chunks and moved from there: see
# shmq/core/queue/transfer.h.

cdef enum:
    COPIES_AT_ONCE = 512        # copies that one critical section lists


@cython.final
cdef class Transfer:
    """The part of a handle that moves messages from its queue to another, and from others here."""

    cdef Handle handle

    def __cinit__(self, Handle handle not None):
        self.handle = handle

    def take_dead(self) -> _Row | None:
        """Take the next dying message, or None; see ``take``."""
        cdef shmq_view view
        cdef int status
        _lock(self.handle)
        status = shmq_take_dead(&self.handle.q, &view)
        _unlock(self.handle)
        if status == SHMQ_EMPTY:
            return None
        if status != SHMQ_OK:
            raise _error(self.handle, status)
        return self._take_view(&view)

    def take(self, uint32_t at, uint64_t seq) -> _Row | None:
        """Take a visible message to move it, or return None if it is gone.

        (receipt, sequence, body, properties, codec, priority, deliveries, reason, died at,
        whether it came from another queue)
        """
        cdef shmq_view view
        cdef int status
        _lock(self.handle)
        status = shmq_take(&self.handle.q, at, seq, &view)
        _unlock(self.handle)
        return self._take_view(&view) if status == SHMQ_OK else None

    cdef tuple _take_view(self, const shmq_view *view):
        try:
            return (view.receipt, view.seq,
                    PyBytes_FromStringAndSize(<char *>view.body, view.body_bytes),
                    PyBytes_FromStringAndSize(<char *>view.meta, view.meta_bytes), view.codec,
                    view.priority, view.deliveries, view.reason, view.dead_at / 1e9,
                    self.handle.q.slots[view.at].origin_queue != 0)
        except MemoryError:
            self.give_up(view.receipt)
            raise

    def stage_copy(self, bytes body, bytes meta, uint8_t codec, uint8_t priority,
                   group: str | None, ttl: float | None, uint64_t origin_queue,
                   uint64_t origin_seq) -> int:
        """Put a message that ``publish_copy`` makes visible; returns its receipt. Raises Full.

        It expires in ``ttl`` seconds; 0: by the queue's own ttl; None: never.
        """
        cdef PreparedPut prepared = PreparedPut.__new__(PreparedPut)
        cdef Loan loan
        cdef int64_t until = AT_ONCE
        cdef int status
        prepared.keep = body
        prepared._set_body(body)
        prepared._set_meta(meta)
        prepared.c.codec = codec
        prepared.c.priority = min(priority, <uint8_t>(self.handle.q.h.options.priorities - 1))
        prepared.c.ttl = -1 if ttl is None else _ns(ttl)
        prepared.c.origin_queue = origin_queue
        prepared.c.origin_seq = origin_seq
        if group is not None:
            prepared.c.group = _hash(self.handle, group)[0] or 1
        self.void_copies(origin_queue, origin_seq)
        loan = _borrow(self.handle, prepared, False, None, &until)
        _copy(loan.holder.place, prepared.c.body, prepared.c.body_bytes)
        shmq_mark()
        loan._end()
        try:
            _lock(self.handle)
            status = shmq_stage(&self.handle.q, loan.receipt, &prepared.c, shmq_now())
            _unlock(self.handle)
        except BaseException:
            loan._abandon()
            raise
        if status != SHMQ_OK:
            raise _error(self.handle, status)
        return loan.receipt

    def publish_copy(self, uint64_t receipt) -> bool:
        """Make a staged message visible; whether it was still there."""
        cdef int status
        _lock(self.handle)
        status = shmq_commit_staged(&self.handle.q, receipt, shmq_now())
        _unlock(self.handle)
        return status == SHMQ_OK

    def moved(self, uint64_t receipt) -> bool:
        """Settle the taken message, which has moved; whether this handle still had it."""
        cdef int status
        _lock(self.handle)
        status = shmq_moved(&self.handle.q, receipt)
        _unlock(self.handle)
        return status == SHMQ_OK

    def hand_over(self, Handle target, uint64_t receipt, uint64_t staged):
        """Commit a move: settle the taken message here, then publish its copy there."""
        if self.moved(receipt):
            target.transfer.publish_copy(staged)
        else:
            target.abandon(staged)

    def untake(self, uint64_t receipt):
        """Return a taken message, of which no copy exists, to the queue.

        If the lock is not to be had, another process returns it.
        """
        if self.handle.generation == fork_generation:  # otherwise it is the parent's
            _return(self.handle, receipt, False)

    def give_up(self, uint64_t receipt):
        """Leave a taken message to the next mover. Does nothing if it has moved."""
        if self.handle.generation == fork_generation:  # otherwise it is the parent's
            _return(self.handle, receipt, True)

    def disown(self, uint64_t receipt):
        """Leave a copy to be decided by its origin, or a taken message to its next mover.

        Takes no lock. Does nothing if the copy is published, or the message has moved.
        """
        if self.handle.generation == fork_generation:
            _disown(self.handle, receipt)

    def void_copies(self, uint64_t origin_queue, uint64_t origin_seq, uint32_t rows=0):
        """Remove the staged copies of that message that its mover left behind.

        If it is a chunk, remove the copies of its rows from number ``rows`` on.
        """
        _lock(self.handle)
        shmq_void_copies(&self.handle.q, origin_queue, origin_seq, rows)
        _unlock(self.handle)

    def orphans(self) -> list[tuple[int, int, int, int | None]]:
        """Staged messages whose mover died: (receipt, origin queue, origin sequence, row).

        ``row`` is the number of the row in the chunk that it was moved from, None for a whole
        message. The rows of one chunk are listed in the chunk's order.
        """
        cdef shmq_origin origin
        cdef uint32_t at = 0
        cdef list rows = []
        cdef int status = SHMQ_OK
        while self.handle.q.h.staged and status == SHMQ_OK:
            _lock(self.handle)
            status = shmq_find_orphan(&self.handle.q, at, &origin)
            _unlock(self.handle)
            if status == SHMQ_OK:
                rows.append((origin.queue, origin.seq, origin.row, origin.receipt))
                at = <uint32_t>(origin.receipt & SHMQ_RECEIPT_SLOT) + 1
        rows.sort()
        return [(receipt, queue, seq, None if row == SHMQ_NO_ROW else row)
                for queue, seq, row, receipt in rows]

    def copies_from(self, origins: Container[int]) -> list[tuple[int, int]]:
        """Messages here that were moved from queues of these ids: (origin queue, sequence)."""
        cdef uint64_t queues[COPIES_AT_ONCE]
        cdef uint64_t seqs[COPIES_AT_ONCE]
        cdef uint32_t at = 0, made = self.handle.q.h.slots_made, end, count
        cdef shmq_slot *s
        cdef list rows = []
        while at < made:
            count = 0
            _lock(self.handle)
            end = min(at + 65536, made)
            while at < end and count < COPIES_AT_ONCE:
                s = &self.handle.q.slots[at]
                at += 1
                if s.origin_queue and shmq_state_of(shmq_word(s)) != SHMQ_FREE:
                    queues[count], seqs[count] = s.origin_queue, s.origin_seq
                    count += 1
            _unlock(self.handle)
            rows += [(queues[i], seqs[i]) for i in range(count)]
        return [row for row in rows if row[0] in origins]

    def staged_from(self, uint64_t origin_queue) -> list[int]:
        """The sequence numbers there of copies from that queue that are not messages yet."""
        cdef uint32_t at
        cdef shmq_slot *s
        cdef list seqs = []
        if not self.handle.q.h.staged:
            return seqs
        for at in range(self.handle.q.h.slots_made):
            s = &self.handle.q.slots[at]
            if shmq_state_of(shmq_word(s)) == SHMQ_STAGED and s.origin_queue == origin_queue:
                seqs.append(s.origin_seq)
        return seqs

    def still_moves(self, uint64_t seq, row: int | None = None) -> bool:
        """Whether message ``seq``, or that row of it, is still here: dying or being moved."""
        cdef bint there
        cdef uint32_t number = SHMQ_NO_ROW if row is None else row
        _lock(self.handle)
        there = shmq_still_moves(&self.handle.q, seq, number)
        _unlock(self.handle)
        return there


# ---- rows in chunks ----

cdef enum:
    MOST_ROWS = 4096            # of a chunk
    MOST_CHUNK = 1 << 20        # bytes of a chunk, unless a single row is larger
    LISTED_AT_ONCE = 512        # slots that one critical section describes
    LISTED_META = 1024          # bytes of properties; a message with more is not a chunk


# The rows of a chunk that are being moved, one run at a time.
cdef struct _RowRun:
    shmq_row_chunk chunk
    uint64_t origin_queue, origin_seq
    uint64_t *receipts          # of the run's rows, staged but not published yet
    uint32_t staged, ids
    uint64_t published
    bint left                   # void copies may be there still


@cython.final
cdef class Staging:
    """The part of a handle that packs rows into chunks, lists them, and moves rows out of them."""

    cdef Handle handle

    def __cinit__(self, Handle handle not None):
        self.handle = handle

    # ---- chunks ----

    def chunks(self, rows: Iterable[_StagedRow] | api.Rows) -> Iterable[tuple[bytes, int]]:
        """Pack rows into chunks to stage for this queue: (chunk, number of rows), one or more.

        A row is a body, or (body, properties) with the properties by name; ``rows`` may also be
        a shmq.api.Rows, which is packed as the chunks are asked for. Raises what a put of each
        row would raise, except for a full queue.
        """
        cdef list prepared_puts = []
        cdef list chunks = []
        cdef uint64_t size, bytes_ = SHMQ_ROW_CHUNK_HEAD
        cdef shmq_put c
        if hasattr(rows, "offsets"):
            return iter(_RowTable(self.handle, rows).next_chunk, None)
        memset(&c, 0, sizeof(c))
        c.priority = self.handle.q.middle
        for row in rows:
            prepared = row if type(row) is bytes else self._row(row)
            size = _put_size(self.handle, _put_of(prepared, &c))
            if prepared_puts and (bytes_ + size > MOST_CHUNK or len(prepared_puts) == MOST_ROWS):
                chunks.append((self._chunk(prepared_puts, bytes_), len(prepared_puts)))
                prepared_puts, bytes_ = [], SHMQ_ROW_CHUNK_HEAD
            prepared_puts.append(prepared)
            bytes_ += size
        if prepared_puts or not chunks:
            chunks.append((self._chunk(prepared_puts, bytes_), len(prepared_puts)))
        return chunks

    cdef PreparedPut _row(self, row):
        if isinstance(row, tuple):
            if len(row) != 2 or not isinstance(row[1], dict):
                raise TypeError(
                    f"a row is bytes, or (bytes, properties), not a tuple of {len(row)}")
            return self._row_of(row[0], row[1])
        return self._row_of(row, {})

    cdef PreparedPut _row_of(self, body, dict properties):
        cdef PyObject *given[SHMQ_PROPERTIES]
        if isinstance(body, str):
            raise TypeError("a row's body must be bytes or another buffer, not str: encode it")
        body = body if isinstance(body, bytes) else memoryview(body)
        if "deliver_at" in properties:
            raise TypeError("a row takes no deliver_at: its delay counts from the publishing")
        _take_given(properties, given, SHMQ_CALL_PUT, "put")
        return _wrap(self.handle, body, given, True)

    cdef bytes _chunk(self, list prepared_puts, uint64_t size):
        cdef bytes chunk = PyBytes_FromStringAndSize(NULL, size)
        cdef unsigned char *to = <unsigned char *>PyBytes_AS_STRING(chunk)
        cdef shmq_put c
        memset(&c, 0, sizeof(c))
        c.priority = self.handle.q.middle
        to = shmq_row_chunk_begin(to, <uint32_t>len(prepared_puts),
                                  self.handle.q.h.options.hash_key)
        for prepared in prepared_puts:
            to = shmq_row_write(to, _put_of(prepared, &c))
        return chunk

    # ---- contents of a staging queue ----

    def listing(self, uint8_t codec) -> list[tuple[int, int, bool, bytes]]:
        """The messages whose bodies have that codec: (slot, sequence, whether visible, meta).

        ``meta``: the packed properties; messages with large properties are left out.
        """
        cdef shmq_view *views = <shmq_view *>malloc(LISTED_AT_ONCE * sizeof(shmq_view))
        cdef char *metas = <char *>malloc(LISTED_AT_ONCE * LISTED_META)
        cdef uint32_t at = 0, count, i
        cdef list rows = []
        try:
            if views == NULL or metas == NULL:
                raise MemoryError
            while at < self.handle.q.h.slots_made:
                _lock(self.handle)
                count = self._list_some(&at, codec, views, metas)
                _unlock(self.handle)
                for i in range(count):
                    rows.append((views[i].at, views[i].seq,
                                 shmq_state_of(views[i].word) == SHMQ_READY,
                                 PyBytes_FromStringAndSize(metas + i * LISTED_META,
                                                           views[i].meta_bytes)))
        finally:
            free(views)
            free(metas)
        return rows

    cdef uint32_t _list_some(self, uint32_t *at, uint8_t codec, shmq_view *views,
                             char *metas) noexcept nogil:
        cdef uint32_t made = self.handle.q.h.slots_made, count = 0, state
        cdef shmq_slot *s
        while at[0] < made and count < LISTED_AT_ONCE:
            s = &self.handle.q.slots[at[0]]
            at[0] += 1
            state = shmq_state_of(shmq_word(s))
            if (s.codec != codec or s.meta_bytes > LISTED_META
                    or state not in (SHMQ_READY, SHMQ_LEASED, SHMQ_DEAD, SHMQ_MOVING)):
                continue
            shmq_look(&self.handle.q, s, &views[count])
            if views[count].meta == NULL:
                views[count].meta_bytes = 0
            else:
                memcpy(metas + count * LISTED_META, views[count].meta, views[count].meta_bytes)
            count += 1
        return count

    def remove(self, uint32_t at, uint64_t seq) -> bool:
        """Remove a visible message; whether it was there."""
        cdef shmq_view view
        cdef int status
        _lock(self.handle)
        status = shmq_take(&self.handle.q, at, seq, &view)
        if status == SHMQ_OK:
            status = shmq_moved(&self.handle.q, view.receipt)
        _unlock(self.handle)
        return status == SHMQ_OK

    def find_mover(self, uint32_t at, uint64_t seq) -> int:
        """The pid of the process that has taken the message to move it; 0 if there is none."""
        cdef shmq_queue *q = &self.handle.q
        cdef shmq_slot *s = shmq_slot_named(q, at)
        cdef uint16_t owner = 0
        _lock(self.handle)
        if s != NULL and s.seq == seq and shmq_state_of(shmq_word(s)) == SHMQ_MOVING:
            owner = s.owner
        _unlock(self.handle)
        if not owner or owner > min(q.h.attachments_made, SHMQ_MAX_ATTACHMENTS):
            return 0
        return q.attachments[owner - 1].pid

    @property
    def used(self) -> int:
        """The bytes of the arena that messages take."""
        return (self.handle.q.h.units_used - self.handle.q.h.units_cached) * SHMQ_UNIT

    # ---- moving a chunk's rows here ----

    def move_rows(self, Handle source, uint32_t at, uint64_t seq,
                  timeout: float | None) -> tuple[int, bool] | None:
        """Move the rows of a chunk here: (how many became messages, whether all have moved).

        None if the chunk is not visible in the source any more. Rows whose dedupe id is known
        here are left out. While the queue is full it waits, at most ``timeout`` seconds. Rows
        that were moved stay moved, whatever is raised.
        """
        cdef shmq_view view
        cdef _RowRun run
        cdef int status
        memset(&run, 0, sizeof(run))
        _lock(source)
        status = shmq_take(&source.q, at, seq, &view)
        _unlock(source)
        if status != SHMQ_OK:
            return None
        try:
            done = self._move_taken(source, &view, &run, timeout)
        finally:
            free(run.receipts)
            _return(source, view.receipt, run.left)
        return run.published, done

    cdef object _move_taken(self, Handle source, const shmq_view *view, _RowRun *run,
                            timeout):
        cdef int status, round_ = 0
        cdef int64_t until = UNKNOWN
        self._begin(source, view, run)
        while True:
            status = self._stage_run(run, round_ == 1)
            if run.staged or (status == SHMQ_OK and run.chunk.row == run.chunk.rows):
                self._commit_run(source, view.receipt, run)
                if run.chunk.row == run.chunk.rows:
                    return True
                round_, until = 0, UNKNOWN if timeout is None else until
            elif status == SHMQ_FULL:
                if not _may_wait(self.handle, SHMQ_NOT_FULL, timeout is None or timeout > 0, timeout,
                                             &until, &round_):
                    return False
            elif status == SHMQ_STALE:
                raise _no_chunk(source, view.seq)
            else:
                raise _error(self.handle, status)

    cdef int _begin(self, Handle source, const shmq_view *view, _RowRun *run) except -1:
        cdef shmq_put put
        cdef uint32_t moved = view.deliveries
        if not shmq_row_chunk_read(&run.chunk, view.body, view.body_bytes):
            raise _no_chunk(source, view.seq)
        if run.chunk.target != self.handle.q.h.options.hash_key:
            raise _errors.QueueDeleted(
                f"the rows in {source.name!r} were staged for a queue {self.handle.name!r} that "
                f"was deleted: discard them, and stage them again")
        while run.chunk.row < moved:
            if not shmq_row_read(&run.chunk, &put):
                raise _no_chunk(source, view.seq)
        run.receipts = <uint64_t *>malloc(max(run.chunk.rows - moved, 1) * sizeof(uint64_t))
        if run.receipts == NULL:
            raise MemoryError
        run.origin_queue = source.q.h.options.hash_key
        run.origin_seq = view.seq
        _lock(self.handle)
        shmq_void_copies(&self.handle.q, run.origin_queue, run.origin_seq, moved)
        _unlock(self.handle)
        return 0

    # Stages as many of the next rows as fit.
    cdef int _stage_run(self, _RowRun *run, bint asleep_if_full) except -1:
        cdef uint64_t copied = 0
        cdef shmq_row_chunk before
        cdef shmq_put put
        cdef int64_t now
        cdef int status = SHMQ_OK
        cdef bint large = False
        run.staged = run.ids = 0
        _lock(self.handle)
        now = shmq_now()
        while copied < MOST_UNDER_LOCK and run.chunk.row < run.chunk.rows:
            before = run.chunk
            if not shmq_row_read(&run.chunk, &put):
                status = SHMQ_STALE
                break
            put.origin_queue = run.origin_queue
            put.origin_seq = run.origin_seq
            large = put.body_bytes > NOGIL_COPY
            if large:
                break
            status = shmq_stage_row(&self.handle.q, &put, run.ids, now, &run.receipts[run.staged])
            if status != SHMQ_OK:
                run.chunk = before
                break
            run.staged += 1
            run.ids += put.dedupe != NULL
            copied += put.body_bytes + 64
        if status == SHMQ_FULL and not run.staged and asleep_if_full:
            shmq_fall_asleep(&self.handle.q, SHMQ_NOT_FULL)
        _unlock(self.handle)
        if large and run.staged:
            run.chunk = before
        elif large:
            status = self._stage_large(run, &put, asleep_if_full)
            if status != SHMQ_OK:
                run.chunk = before
        return status

    # A large row is written without the lock, into reserved and pinned space.
    cdef int _stage_large(self, _RowRun *run, shmq_put *put, bint asleep_if_full) except -1:
        cdef uint32_t more = shmq_deferred_put_bytes(&self.handle.q, put)
        cdef uint64_t seq = 0
        cdef int64_t now
        cdef shmq_view view
        cdef int status
        _lock(self.handle)
        now = shmq_now()
        status = shmq_reserve(&self.handle.q, put.body_bytes + more, put.meta_bytes, now, NULL,
                              &view, &seq)
        if status == SHMQ_OK:
            status = shmq_pin(&self.handle.q, view.receipt, now, &view)
            if status == SHMQ_OK:
                self.handle.views += 1
        if status == SHMQ_FULL and asleep_if_full:
            shmq_fall_asleep(&self.handle.q, SHMQ_NOT_FULL)
        _unlock(self.handle)
        if status != SHMQ_OK:
            return status
        _copy(<void *>view.body, put.body, put.body_bytes)
        if put.meta_bytes:
            memcpy(<void *>view.meta, put.meta, put.meta_bytes)
        shmq_mark()
        self.handle._unpin(view.at, self.handle.generation)
        try:
            _lock(self.handle)
        except:
            _disown(self.handle, view.receipt)
            raise
        status = shmq_stage(&self.handle.q, view.receipt, put, shmq_now())
        _unlock(self.handle)
        if status == SHMQ_OK:
            run.receipts[0] = view.receipt
            run.staged = 1
            run.ids = put.dedupe != NULL
        return status

    # Commits the run and publishes it; after the commit point nothing prevents the publishing.
    cdef int _commit_run(self, Handle source, uint64_t receipt, _RowRun *run) except -1:
        cdef bint ended
        cdef int status
        try:
            _lock(source)
        except:
            self._end_run(run, False)
            raise
        if run.chunk.row == run.chunk.rows:
            status = shmq_moved(&source.q, receipt)
        else:
            status = shmq_moved_rows(&source.q, receipt, run.chunk.row)
        _unlock(source)
        ended = self._end_run(run, status == SHMQ_OK)
        if status != SHMQ_OK:
            raise _errors.ShmqError(
                f"the rows in {source.name!r} were taken from their publisher: its handle was "
                f"closed, or the queue is damaged")
        if not ended:  # the next rows must not overtake these
            raise _locked_out(self.handle, 0)
        self.handle._after()
        return 0

    # Publishes the run, or removes it; returns whether it could. If the lock is not to be had, or
    # there is not enough room for dedupe ids, the rows are left to the next search for dead
    # processes, to which the chunk tells whether they have moved.
    cdef bint _end_run(self, _RowRun *run, bint publish) noexcept:
        cdef uint32_t i
        cdef int status
        cdef int64_t now
        cdef bint locked
        with nogil:
            locked = _lock_to_end(self.handle)
            now = shmq_now()
            for i in range(run.staged):
                if not locked:
                    _disown(self.handle, run.receipts[i])
                    continue
                if not publish:
                    shmq_abandon(&self.handle.q, run.receipts[i])
                    continue
                status = shmq_commit_staged(&self.handle.q, run.receipts[i], now)
                if status == SHMQ_OK:
                    run.published += 1
                elif status != SHMQ_DUPLICATE and status != SHMQ_STALE:
                    shmq_disown(&self.handle.q, run.receipts[i])
            if locked:
                _unlock(self.handle)
        run.left = not locked and not publish
        run.staged = 0
        return locked


# Ends what this handle has taken, staged or reserved without the lock: any other process does so
# with the lock. See shmq_disown.
cdef void _disown(Handle handle, uint64_t receipt) noexcept nogil:
    if handle.q.attachment != SHMQ_NIL:
        shmq_disown(&handle.q, receipt)


# Returns a taken message to the queue; or, as there may be copies, leaves it to its next mover, which
# first removes them. If the lock is not to be had, any other process does so.
cdef void _return(Handle handle, uint64_t receipt, bint copies) noexcept:
    with nogil:
        if not _lock_to_end(handle):
            _disown(handle, receipt)
            return
        if copies:
            shmq_give_up(&handle.q, receipt)
        else:
            shmq_untake(&handle.q, receipt)
        _unlock(handle)


cdef object _no_chunk(Handle handle, uint64_t seq):
    return _errors.DamagedSegment(
        f"message {seq} of queue {handle.name!r} is not a chunk of rows, or a damaged one: "
        f"discard the staging queue, and stage the rows again")


# The bytes of the row in a chunk for that queue. Raises MessageTooLarge.
cdef uint64_t _put_size(Handle queue, const shmq_put *put) except 0:
    cdef uint32_t more = 0
    if put.delay > 0 or put.dedupe != NULL:
        more = SHMQ_DEFERRED_PUT_BYTES
    if shmq_fits(&queue.q, put.body_bytes, put.meta_bytes + more) != SHMQ_OK:
        raise _too_large(queue, put.body_bytes, put.meta_bytes)
    return shmq_row_bytes(put)


# What is wrong with a property, and its value.
cdef str _with_value(str wrong, const shmq_put *put):
    if not wrong.startswith("property "):
        return wrong
    meta = PyBytes_FromStringAndSize(<const char *>put.meta, put.meta_bytes)
    value = repr(_policy.unpack_properties(meta).get(wrong.split()[1]))
    return f"{wrong}, and not {value if len(value) <= 80 else value[:80] + '…'}"


# The put of a row. `plain` is filled for a bare body.
cdef inline const shmq_put *_put_of(prepared, shmq_put *plain) noexcept:
    if type(prepared) is bytes:
        plain.body = PyBytes_AS_STRING(prepared)
        plain.body_bytes = PyBytes_GET_SIZE(prepared)
        return plain
    return &(<PreparedPut>prepared).c


@cython.final
cdef class _RowTable:
    """The rows of a shmq.api.Rows, read as puts."""

    cdef Handle queue
    cdef const unsigned char[::1] data
    cdef const unsigned char[::1] metas
    cdef const int[::1] offsets
    cdef const int[::1] meta_offsets
    cdef shmq_put plain          # the put of a row without properties, but for its body
    cdef bint worded             # the rows have properties
    cdef Py_ssize_t count, at    # the rows, and those before `at` are packed
    cdef bint packed             # there was a chunk
    cdef shmq_put *puts          # of one chunk's rows
    cdef uint64_t *hashes

    def __dealloc__(self):
        free(self.puts)

    def __init__(self, Handle queue, rows):
        cdef shmq_text name
        self.queue = queue
        self.plain.priority = queue.q.middle
        self.data = memoryview(rows.data).cast("B")
        self.offsets = memoryview(rows.offsets).cast("B").cast("i")
        self.count = max(0, self.offsets.shape[0] - 1)
        _check_offsets("offsets", self.offsets, self.data.shape[0])
        if rows.codec is not None:
            raw = rows.codec.encode()
            name.at, name.bytes = <const unsigned char *>PyBytes_AS_STRING(raw), len(raw)
            self.plain.codec = shmq_codec_number(name)
            if self.plain.codec == SHMQ_CODEC_OTHER:
                raise _errors.InvalidOption(
                    f"codec={rows.codec!r} has no number: name it in the properties of each row")
        self.worded = rows.metas is not None
        if self.worded:
            self.metas = memoryview(rows.metas).cast("B")
            self.meta_offsets = memoryview(rows.meta_offsets).cast("B").cast("i")
            _check_offsets("meta_offsets", self.meta_offsets, self.metas.shape[0])
            if self.meta_offsets.shape[0] != self.offsets.shape[0]:
                raise _errors.InvalidOption(
                    f"{self.meta_offsets.shape[0]} meta_offsets are not as many as there are "
                    f"offsets: {self.offsets.shape[0]}")
        self.puts = <shmq_put *>malloc(MOST_ROWS * (sizeof(shmq_put) + 2 * sizeof(uint64_t)))
        if self.puts == NULL:
            raise MemoryError
        self.hashes = <uint64_t *>(self.puts + MOST_ROWS)

    def next_chunk(self) -> tuple[bytes, int] | None:
        """The next chunk and its number of rows; None after the last one."""
        cdef uint64_t size, bytes_ = SHMQ_ROW_CHUNK_HEAD
        cdef Py_ssize_t i, rows = min(self.count - self.at, MOST_ROWS)
        if self.packed and not rows:
            return None
        for i in range(rows):
            self.read(self.at + i, &self.puts[i], &self.hashes[2 * i])
            size = _put_size(self.queue, &self.puts[i])
            if i and bytes_ + size > MOST_CHUNK:
                rows = i
                break
            bytes_ += size
        self.at += rows
        self.packed = True
        return self._chunk(rows, bytes_), rows

    cdef bytes _chunk(self, Py_ssize_t rows, uint64_t size):
        cdef bytes chunk = PyBytes_FromStringAndSize(NULL, size)
        cdef unsigned char *to = <unsigned char *>PyBytes_AS_STRING(chunk)
        cdef Py_ssize_t i
        to = shmq_row_chunk_begin(to, <uint32_t>rows, self.queue.q.h.options.hash_key)
        for i in range(rows):
            to = shmq_row_write(to, &self.puts[i])
        return chunk

    # Reads row `i` into `put`; the hash of its dedupe id goes to `hash_`. Raises InvalidOption.
    cdef int read(self, Py_ssize_t i, shmq_put *put, uint64_t *hash_) except -1:
        cdef shmq_text text
        cdef shmq_properties properties
        cdef const char *why
        put[0] = self.plain
        put.body_bytes = self.offsets[i + 1] - self.offsets[i]
        if put.body_bytes:
            put.body = &self.data[self.offsets[i]]
        if not self.worded or self.meta_offsets[i + 1] == self.meta_offsets[i]:
            return 0
        put.meta = &self.metas[self.meta_offsets[i]]
        put.meta_bytes = self.meta_offsets[i + 1] - self.meta_offsets[i]
        why = shmq_properties_read(<const unsigned char *>put.meta, put.meta_bytes, &properties)
        if why == NULL:
            why = shmq_properties_apply(&self.queue.q, &properties, put, hash_)
        if why != NULL:
            raise _errors.InvalidOption(f"row {i}: {_with_value(why.decode(), put)}")
        if put.dedupe != NULL:
            text = shmq_text_property(&properties, SHMQ_P_DEDUPE_ID)
            _check_dedupe_id(self.queue, text.at[:text.bytes].decode())
        if not shmq_has_property(&properties, SHMQ_P_CODEC):
            put.codec = self.plain.codec
        return 0


cdef int _check_offsets(str name, const int[::1] offsets, Py_ssize_t size) except -1:
    cdef Py_ssize_t i
    if offsets.shape[0] and offsets[0] < 0:
        raise _errors.InvalidOption(f"{name}[0]={offsets[0]} is negative")
    for i in range(offsets.shape[0] - 1):
        if offsets[i + 1] < offsets[i]:
            raise _errors.InvalidOption(
                f"{name}[{i + 1}]={offsets[i + 1]} is less than the one before: {offsets[i]}")
    if offsets.shape[0] and offsets[offsets.shape[0] - 1] > size:
        raise _errors.InvalidOption(
            f"{name} end at {offsets[offsets.shape[0] - 1]}, and there are {size} bytes")
    return 0
