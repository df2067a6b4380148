# One partition of a stream, attached.

cdef class StreamHandle

@cython.final
@cython.no_gc_clear
cdef class Partition(MappedFile):
    """The mapped segment of one partition, and its operations."""

    cdef shmq_log c
    cdef readonly Control control
    cdef readonly uint32_t number
    cdef int64_t hint_offset        # where the last read ended, and its position
    cdef uint64_t hint_position
    cdef shmq_spin_rate spins       # for a record, before a sleep
    cdef readonly int last_error    # the errno for which the latest wait for the disk ended

    @staticmethod
    def create(int fd, Control control, uint32_t number, uint64_t first=0, int64_t last_seen=0,
               uint32_t behind=0, int64_t created_at=0) -> Partition:
        """Make an empty partition in the empty file ``fd`` and take ownership of ``fd``.

        ``first`` is the offset of its first record. A search by time finds no record before
        ``last_seen``, in ns. Its keys were in the partitions before ``behind`` until
        ``created_at``, in ns since 1970; 0: until now. Raises NoSpace; the caller must then remove
        the file.
        """
        cdef Partition self = Partition.__new__(Partition)
        cdef shmq_log_options o
        cdef shmq_log_geometry geo
        cdef int status
        control._read(&o)
        o.partition = number
        o.first = first
        if behind:
            o.partitions = number + 1
            o.created_at = created_at or shmq_wall()
        self.fd = fd
        shmq_log_lay_out(&o, &geo)
        _os.ftruncate(fd, geo.segment_bytes)
        shmq_mark()
        self._map(geo.segment_bytes)
        self._bind(control, number, &geo, &o)
        status = shmq_log_prepare(&self.c, &o, last_seen)
        if status != SHMQ_OK:
            raise _no_space(fd, self.c.refused_bytes)
        self.c.h.behind = behind
        shmq_mark()
        shmq_log_announce(&self.c)
        return self

    @staticmethod
    def attach(int fd, Control control, uint32_t number) -> Partition:
        """Map the partition's segment ``fd`` and take ownership of ``fd``, after checking it.

        Raises IncompatibleSegment, DamagedSegment.
        """
        cdef Partition self = Partition.__new__(Partition)
        cdef uint64_t size = _os.fstat(fd).st_size
        cdef shmq_log_geometry geo
        cdef shmq_log_header *h
        cdef str what = f"partition {number} of stream {control.name!r}"
        self.fd = fd
        if size < SHMQ_PAGE:
            _judge(SHMQ_TRUNCATED, what, 0, SHMQ_LOG_VERSION)
        self._map(size)
        h = <shmq_log_header *>self.base
        if _judge(shmq_log_inspect(self.base, size, &geo), what, h.published, SHMQ_LOG_VERSION) \
                or h.options.stream_id != control.stream_id or h.options.partition != number:
            raise _errors.DamagedSegment(f"the segment of {what} is another's; delete the stream")
        self._bind(control, number, &geo, &h.options)
        return self

    cdef int _bind(self, Control control, uint32_t number, const shmq_log_geometry *geo,
                   const shmq_log_options *options) except -1:
        self.control = control
        self.number = number
        self.hint_offset = -1
        shmq_spin_init(&self.spins, LEAST_SPIN)
        shmq_log_bind(&self.c, self.base, self.fd, geo, options, <shmq_stream *>control.base,
                      control.self_)
        self.c.wakeup_prefix = PyBytes_AS_STRING(control.wakeup_prefix)
        return 0

    # ---- errors ----

    cdef object _error(self, int status):
        cdef str name = self.control.name
        if status == SHMQ_DELETED:
            return _deleted_error(name)
        if status == SHMQ_NO_SPACE:
            return _no_space(self.fd, self.c.refused_bytes)
        if status == SHMQ_CROWDED:
            return _errors.NoSpace(
                f"partition {self.number} of stream {name!r} is held by as many readers as it "
                f"can be, {SHMQ_HOLDS}: release some")
        if status == SHMQ_TOO_LARGE:
            return _errors.MessageTooLarge(
                f"these records can never fit together into the ring of stream {name!r}: "
                f"ring_bytes={shmq_log_ring_bytes(&self.c)}; append fewer at once, or alter it to "
                f"more ring_bytes")
        return _damaged_error(name)

    cdef object _out_of_range(self, int64_t offset):
        cdef shmq_log_bounds b
        if self.c.h.state == SHMQ_GONE:
            return _deleted_error(self.control.name)
        c_log_bounds(&self.c, &b)
        return _errors.OffsetOutOfRange.of(
            self.control.name, self.number, offset, b.earliest, b.latest)

    cdef object _full(self, handle):
        why = handle._why_unwritten(self.number) if self.c.durable else None
        advice = why or ("as it is pinned, not read, or not on disk; wait (block=True), or alter it "
                         f"to more ring_bytes: shmq stream alter {self.control.name} --ring-bytes SIZE")
        return _errors.Full(
            f"partition {self.number} of stream {self.control.name!r} is full: nothing of its "
            f"{shmq_log_ring_bytes(&self.c)} bytes may go yet, {advice}")

    # ---- the lock ----

    # Waits until the operation's deadline, see shmq/core/base/mutex.h. Raises LockTimeout.
    cdef int _lock(self, int64_t until) except -1:
        cdef int status = shmq_log_lock(&self.c, 0)
        cdef int64_t waited = 0, slice_
        cdef uint64_t holder
        if status == SHMQ_UNREGISTERED:
            self.control.process.register()
            status = shmq_log_lock(&self.c, 0)
        while status == SHMQ_BUSY:
            PyErr_CheckSignals()
            holder = shmq_log_holder(&self.c)
            slice_ = shmq_patience(waited, until, self.c.self, holder)
            if not slice_:
                raise _holders.lock_timeout(
                    f"partition {self.number} of stream {self.control.name!r}",
                    shmq_pid_of(self.c.self, holder), waited / 1e9, holder)
            with nogil:
                status = shmq_log_lock(&self.c, slice_)
            waited += slice_
        if status != SHMQ_OK:
            raise self._error(status)
        return 0

    # ---- appending ----

    cdef int _append(self, shmq_log_piece *piece, uint64_t bytes_, int64_t until,
                     shmq_log_appended *out) except -1:
        """Append; returns SHMQ_OK, FULL, SEALED or BUSY, and raises other errors."""
        cdef int status
        self._lock(until)
        if bytes_ >= NOGIL_BYTES:
            with nogil:
                status = shmq_log_append(&self.c, piece, out)
                shmq_log_unlock(&self.c)
        else:
            status = shmq_log_append(&self.c, piece, out)
            shmq_log_unlock(&self.c)
        if status == SHMQ_OK:
            shmq_log_wake(&self.c)
            return SHMQ_OK
        if status == SHMQ_FULL or status == SHMQ_SEALED or status == SHMQ_BUSY:
            return status
        if status == SHMQ_OUT_OF_RANGE:
            raise _errors.ShmqError(
                f"the loan of partition {self.number} of stream {self.control.name!r} has ended: "
                f"its process was taken for dead; borrow again")
        if status == SHMQ_GAP:
            raise self._out_of_sequence(piece, out)
        raise self._error(status)

    cdef inline bint _append_values(self, const shmq_log_value *values, uint32_t count,
                                    uint64_t size, shmq_log_appended *out):
        """Append values alone if that needs no waiting; whether it did."""
        cdef bint done
        if shmq_log_lock(&self.c, 0) != SHMQ_OK:
            return False
        done = shmq_log_append_values(&self.c, values, count, size, out)
        shmq_log_unlock(&self.c)
        if done:
            shmq_log_wake(&self.c)
        return done

    cdef object _out_of_sequence(self, shmq_log_piece *piece, shmq_log_appended *out):
        what = (f"producer {piece.producer} comes with sequence {piece.sequence} to partition "
                f"{self.number} of stream {self.control.name!r}")
        message = f"{what}, where {out.expected} is next: append what is missing first"
        if piece.sequence < out.expected:
            message = (f"{what}, which has its records up to {out.expected - 1}, and not all of "
                    f"these {out.records}: none was appended; go on with {out.expected}")
        return _errors.OutOfSequence(message, out.expected, piece.sequence)

    cdef int _append_waiting(self, shmq_log_piece *piece, uint64_t bytes_, int64_t until,
                             StreamHandle handle, shmq_log_appended *out) except -1:
        """Append to a full ring: wait for room until the deadline. Raises Full."""
        cdef uint32_t room
        cdef int64_t now, slice_
        cdef int tries, status
        for tries in range(ROOM_SPINS):
            with nogil:
                shmq_log_spin(&self.c, NOWHERE, ROOM_SPIN,
                              ROOM_SPIN if tries < ROOM_YIELDS else 0)
            status = self._append(piece, bytes_, until, out)
            if status != SHMQ_FULL:
                return status
        while True:
            now = _monotonic()
            if now >= until or now >= handle.looked_at + WAIT_SLICE:
                handle._look_for_dead(self.number)
                handle.looked_at = now
            room = shmq_log_room(&self.c)
            status = self._append(piece, bytes_, until, out)
            if status != SHMQ_FULL:
                return status
            if now >= until:
                raise self._full(handle)
            # A look ensures that records are written, if that is what makes room.
            slice_ = min(until - now, WAIT_SLICE if self.c.durable else handle._slice())
            with nogil:
                status = shmq_log_wait_room(&self.c, room, slice_)
            PyErr_CheckSignals()
            if status == SHMQ_TIMED_OUT:
                handle._see_to_guard(slice_)

    # ---- reading ----

    cdef Records _read(self, int64_t offset, uint64_t limit, uint64_t most, uint64_t last):
        """Read a copy of the records. Raises OffsetOutOfRange, StreamDeleted, DamagedSegment."""
        cdef shmq_log_extent x
        cdef bytes block
        cdef char *to
        cdef bint good
        for _ in range(OVERTAKEN):
            self._find(offset, limit, most, last, &x)
            block = PyBytes_FromStringAndSize(NULL, x.bytes)
            to = PyBytes_AS_STRING(block)
            if x.bytes >= NOGIL_BYTES:
                with nogil:
                    good = shmq_log_copy(&self.c, &x, to)
            else:
                good = shmq_log_copy(&self.c, &x, to)
            if good:
                self.hint_offset = x.next
                self.hint_position = x.end
                if not x.packed and x.entries == x.next - offset and x.first == <uint64_t>offset:
                    return _records_in(block, self.number, x.entries, x.next)
                return _read_block(block, self.number, offset, limit, last, self.c.salt, False)
        raise self._out_of_range(offset)

    cdef inline uint64_t _hint(self, int64_t offset):
        """The position of that offset, if the last read ended there."""
        return self.hint_position if offset == self.hint_offset else NOWHERE

    cdef int _find(self, int64_t offset, uint64_t limit, uint64_t most, uint64_t last,
                   shmq_log_extent *x) except -1:
        cdef int status
        self._expire_what_is_stale()
        status = shmq_log_find(&self.c, offset, last, limit, most, self._hint(offset), x)
        if status == SHMQ_OUT_OF_RANGE:
            raise self._out_of_range(offset)
        if status != SHMQ_OK:
            raise self._error(status)
        return 0

    cdef Records _read_in_place(self, int64_t offset, uint64_t limit, uint64_t most,
                                uint64_t last, int64_t pin):
        """Read views of the records; a copy if the block has compressed batches."""
        cdef shmq_log_extent x
        cdef Records made = Records.__new__(Records)
        self._find(offset, limit, most, last, &x)
        if x.packed or x.entries and (x.entries != x.next - offset
                                      or x.first != <uint64_t>offset):
            return self._read(offset, limit, most, last)
        self.hint_offset = x.next
        self.hint_position = x.end
        made.partition = self.number
        made.next_offset = x.next
        made.owner = self
        made.log = self
        made.begin = x.begin
        made.count = x.entries
        shmq_log_pieces(&self.c, &x, made.at, made.bytes_of)
        if not x.entries:
            made.bytes_of[0] = 0
        if pin >= 0 and x.entries:  # otherwise the caller keeps it
            made.pin, made.pinner = pin, getpid()
        return made

    # For readers, which never wait for the lock: if it is held, a later reader does this.
    cdef int _expire_what_is_stale(self) except -1:
        cdef int status
        if not shmq_log_retention(&self.c) or not shmq_log_is_stale(&self.c):
            return 0
        status = shmq_log_lock(&self.c, -1)
        if status == SHMQ_OK:
            shmq_log_expire(&self.c)
            shmq_log_unlock(&self.c)
        elif status != SHMQ_BUSY and status != SHMQ_UNREGISTERED:
            raise self._error(status)
        return 0

    def expire(self):
        """Remove records that are older than the stream's retention."""
        self._lock(AT_ONCE)
        shmq_log_expire(&self.c)
        shmq_log_unlock(&self.c)

    def raw(self, int64_t offset, uint64_t limit=1000, uint64_t max_bytes=1 << 20,
            end: int | None = None) -> tuple[bytes, int]:
        """The entries from ``offset`` on, whole, with their checksums, and the offset after them."""
        cdef shmq_log_extent x
        cdef bytes block
        for _ in range(OVERTAKEN):
            self._find(offset, limit, max_bytes, NOWHERE if end is None else end, &x)
            block = PyBytes_FromStringAndSize(NULL, x.bytes)
            if shmq_log_copy(&self.c, &x, PyBytes_AS_STRING(block)):
                if not self.c.durable:
                    shmq_entry_seal_all(<unsigned char *>PyBytes_AS_STRING(block), x.bytes,
                                        self.c.salt)
                self.hint_offset = x.next
                self.hint_position = x.end
                return block, x.next
        raise self._out_of_range(offset)

    # ---- inspection ----

    def bounds(self) -> tuple[int, int, int, int, int]:
        """earliest, latest, when both were appended in ns (0: it is empty), the bytes between."""
        cdef shmq_log_bounds b
        cdef int status
        self._expire_what_is_stale()
        self.control._check()
        status = c_log_bounds(&self.c, &b)
        if status != SHMQ_OK:
            raise self._error(status)
        return b.earliest, b.latest, b.earliest_at, b.latest_at, b.committed - b.oldest

    def at(self, int64_t timestamp_ns) -> int:
        """The offset of the first record appended from then on; the next offset if none was."""
        cdef uint64_t offset
        cdef int status
        self.control._check()
        status = shmq_log_at(&self.c, timestamp_ns, &offset)
        if status != SHMQ_OK:
            raise self._error(status)
        return offset

    def produced(self, uint64_t producer) -> int | None:
        """The last sequence number appended by that producer; None if the producer is unknown."""
        cdef shmq_produced *known
        cdef uint64_t last = 0
        self._lock(AT_ONCE)
        known = shmq_log_producer(&self.c, producer)
        if known != NULL:
            last = known.sequence + known.count - 1
        shmq_log_unlock(&self.c)
        return None if known == NULL else last

    def restore_producers(self, known: Iterable[tuple[int, int, int, int]]):
        """Restore these producers, each with the sequence number and offset of its last records.

        A producer is four numbers, the last one the count of consecutive records. Only for a
        partition that no other process uses yet. Raises NoSpace.
        """
        for producer, sequence, offset, count in known:
            if shmq_log_back_producers(&self.c) != SHMQ_OK:
                raise self._error(SHMQ_NO_SPACE)
            shmq_log_restore(&self.c, producer, sequence, offset, count)

    @property
    def sealed(self) -> bool:
        """Whether the partition refuses further appends."""
        return bool(self.c.h.sealed)

    @property
    def behind(self) -> int:
        """Its keys were in the partitions before this number until it was made."""
        return self.c.h.behind

    @property
    def created_at(self) -> int:
        """When it was made, in ns since 1970."""
        return self.c.h.options.created_at

    def apply(self):
        """Make the stream's options of now those of the partition; what waits for room tries again."""
        self._lock(AT_ONCE)
        shmq_log_unlock(&self.c)
        shmq_log_wake_room(&self.c)

    @property
    def ring_bytes(self) -> int:
        """The size of the ring."""
        return shmq_log_ring_bytes(&self.c)

    def seal(self):
        """Refuse further appends."""
        self._lock(AT_ONCE)
        shmq_log_seal(&self.c)
        shmq_log_unlock(&self.c)

    def reserve(self, uint64_t size):
        """Allocate the memory for the next append of ``size`` bytes. Raises NoSpace."""
        self._lock(AT_ONCE)
        status = shmq_log_reserve(&self.c, size)
        shmq_log_unlock(&self.c)
        if status != SHMQ_OK:
            raise self._error(status)

    @property
    def recoveries(self) -> int:
        """How often the state left by a dead appender was repaired."""
        return self.c.h.recoveries

    # ---- holds ----

    def hold(self, int64_t offset, uint64_t owner=0, uint64_t tag=0, *, bint pin=False) -> int:
        """Keep the records from ``offset`` on as the stream's overflow says, or ``pin`` them.

        The hold ends with `drop`, or with the process ``owner``, if it is not 0. Returns its
        number.
        """
        cdef uint32_t at = 0
        cdef int status
        self._lock(AT_ONCE)
        status = shmq_log_hold(&self.c, SHMQ_HOLD_PIN if pin else SHMQ_HOLD_CURSOR, owner, tag,
                               offset, &at)
        shmq_log_unlock(&self.c)
        if status == SHMQ_OUT_OF_RANGE:
            raise self._out_of_range(offset)
        if status != SHMQ_OK:
            raise self._error(status)
        return at

    def move(self, uint32_t hold, int64_t offset, uint64_t owner=0, uint64_t tag=0) -> bool:
        """Stop holding the records before ``offset``; a hold only moves forward.

        False if that number is no hold of that owner and tag. The caller ensures that one of them
        does not end in the meantime.
        """
        return shmq_log_move(&self.c, hold, owner, tag, offset, self._hint(offset))

    def drop(self, uint32_t hold):
        """End a hold."""
        shmq_log_drop(&self.c, hold)

    def drop_of(self, uint32_t hold, uint64_t owner) -> bool:
        """End a hold if it belongs to that owner; whether it did.

        Holds are taken under the lock, so the place cannot change hands in the meantime.
        """
        self._lock(AT_ONCE)
        cdef shmq_hold *found = &self.c.holds[hold % SHMQ_HOLDS]
        cdef bint its = found.kind != SHMQ_HOLD_FREE and found.owner == owner
        if its:
            shmq_log_drop(&self.c, hold)
        shmq_log_unlock(&self.c)
        return its

    def holders(self) -> list[tuple[int, int, int, bool]]:
        """(number, owner, tag, whether it is a pin or a loan) of each hold."""
        found = []
        for at in range(SHMQ_HOLDS):
            hold = &self.c.holds[at]
            if hold.kind != SHMQ_HOLD_FREE:
                cursor = hold.kind == SHMQ_HOLD_CURSOR
                found.append((at, hold.owner, hold.tag if cursor else 0, not cursor))
        return found

    # ---- waiting ----

    cdef bint _spin(self, int64_t offset, int64_t until):
        """Spin until something is appended, for as long as spinning has paid before.

        If ``offset`` is the next offset, that is the record at ``offset``.
        """
        cdef int64_t left = until - _monotonic(), ns, took = -1
        cdef uint64_t position = self._hint(offset)
        cdef shmq_log_bounds b
        if position == NOWHERE:
            if c_log_bounds(&self.c, &b) != SHMQ_OK or <int64_t>b.latest > offset:
                return True
            position = b.committed
        with nogil:
            ns = shmq_spin_time(&self.spins)
            if 0 < ns <= left:
                took = shmq_log_spin(&self.c, position, ns, self.spins.yield_after)
                shmq_spin_learn(&self.spins, ns, took)
            elif ns and left > 0:
                took = shmq_log_spin(&self.c, position, left, self.spins.yield_after)
        return took >= 0

    def spin(self, int64_t offset) -> bool:
        """Spin for a moment for a record at ``offset``; whether there is one."""
        return self._spin(offset, FOREVER) and self.reaches(offset)

    def arm(self) -> int:
        """Announce that a reader is about to sleep; it must look once more before it `sleep`s."""
        return shmq_log_arm(&self.c)

    def sleep(self, uint32_t wakeup, double seconds) -> bool:
        """Sleep until an append to an armed partition of the stream, or for ``seconds``."""
        cdef int64_t ns = <int64_t>(min(max(seconds, 0.0), 3600.0) * 1e9)
        cdef int status
        with nogil:
            status = shmq_stream_sleep(<shmq_stream *>self.control.base, wakeup, ns)
        if status == SHMQ_INTERRUPTED:
            PyErr_CheckSignals()
        return status != SHMQ_TIMED_OUT

    def wake(self):
        """Wake the readers that sleep on an armed partition."""
        shmq_log_arm(&self.c)
        shmq_log_wake(&self.c)

    def wake_all(self):
        """Wake all who wait for anything in the partition: a process died that may have had to."""
        shmq_log_wake_all(&self.c)

    def await_entries(self, int64_t offset, timeout: float | None = None) -> bool:
        """Wait until there is a record at ``offset``; False if none came in time."""
        cdef int64_t until = _until(timeout)
        cdef shmq_log_bounds b
        cdef uint32_t wakeup
        while True:
            wakeup = shmq_log_arm(&self.c)
            self.control._check()
            if c_log_bounds(&self.c, &b) != SHMQ_OK:
                raise _damaged_error(self.control.name)
            if <int64_t>b.latest > offset:
                return True
            left = until - _monotonic()
            if left <= 0:
                return False
            self.sleep(wakeup, min(left, WAIT_SLICE) / 1e9)

    def reaches(self, int64_t offset) -> bool:
        """Whether there is a record at or behind ``offset``, or the stream was deleted."""
        cdef shmq_log_bounds b
        if self.c.h.state != SHMQ_OPEN or c_log_bounds(&self.c, &b) != SHMQ_OK:
            return True
        return <int64_t>b.latest > offset

    def delete(self):
        """Mark the partition as deleted, and wake all waiters."""
        shmq_log_delete(&self.c)

    # ---- the persistence writer's side ----

    def collect(self, int64_t offset,
                uint64_t most) -> tuple[list[memoryview], int, int, int, int] | None:
        """Whole entries from ``offset`` on, in place: at most ``most`` bytes, or the first entry.

        (pieces, first, next_offset, when the first was appended in ns, entries); None if there are
        none. They stay in place until `publish`, because entries that are not on disk are never
        overwritten.
        """
        cdef shmq_log_extent x
        cdef const unsigned char *at[2]
        cdef uint64_t sizes[2]
        cdef int pieces
        self._find(offset, NOWHERE, most, NOWHERE, &x)
        if not x.entries:
            return None
        self.hint_offset = x.next
        self.hint_position = x.end
        pieces = shmq_log_pieces(&self.c, &x, at, sizes)
        views = [_view_of(self, at[i], sizes[i]) for i in range(pieces)]
        return views, x.first, x.next, x.seen, x.entries

    @property
    def synced(self) -> int:
        """The offset before which all records are on disk."""
        return self.c.h.synced

    @property
    def finished(self) -> bool:
        """Whether the partition is sealed and all its records are on disk."""
        cdef shmq_log_bounds b
        if not self.c.h.sealed or c_log_bounds(&self.c, &b) != SHMQ_OK:
            return False
        return self.c.h.synced >= b.latest

    @property
    def awaited(self) -> int:
        """The offset up to which a caller waits for the disk."""
        return self.c.h.awaited

    @property
    def writer(self) -> int:
        """The process number of the persistence writer; 0: none."""
        return self.c.h.writer

    @writer.setter
    def writer(self, uint64_t number):
        self.c.h.writer = number

    def publish(self, int64_t offset):
        """Say that all records before ``offset`` are on disk."""
        shmq_log_mark_synced(&self.c, offset)

    def fail(self, uint32_t error):
        """Say that the disk fails with that errno."""
        shmq_log_fail(&self.c, error)

    @property
    def disk_error(self) -> int:
        """The errno with which a living writer's disk fails; 0: it works, or no writer lives."""
        return shmq_log_error(&self.c)

    def wait_synced(self, int64_t offset, timeout: float | None = None) -> bool:
        """Wait until the records before ``offset`` are on disk; False at the timeout or a failure."""
        cdef int64_t until = _until(timeout), left
        cdef int status
        while True:
            left = until - _monotonic()
            with nogil:
                status = shmq_log_wait_synced(&self.c, offset, left if left > 0 else 0)
            if status == SHMQ_OK:
                return True
            if status == SHMQ_DELETED:
                raise _deleted_error(self.control.name)
            self.last_error = shmq_log_error(&self.c) if status == SHMQ_BUSY else 0
            if self.last_error or left <= 0:
                return False
            PyErr_CheckSignals()
