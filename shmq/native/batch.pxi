# Messages that are leased and settled together, without a Python object for each, and packed
# batches: see shmq/core/queue/packed_batch.h.

@cython.no_gc_clear
cdef class _LeasedBatch:
    """Messages leased in one step: the common base of `Batch` and `Packed`."""

    cdef Handle handle
    cdef uint64_t *raw           # receipts
    cdef int units               # how many
    cdef bint _settled
    cdef bint by_receipt         # its receipts were read, and may settle it from anywhere

    def __dealloc__(self):
        if not self._settled and not self.by_receipt and self.units:
            self._look_at_dropped()
        free(self.raw)

    # Warns if a batch is dropped while it still holds leases.
    cdef void _look_at_dropped(self) noexcept:
        cdef uint64_t seq, first = 0
        cdef int i, held = 0
        if not self.handle.open_ or self.handle.generation != fork_generation:
            return
        for i in range(self.units):
            seq = shmq_held_by_us(&self.handle.q, self.raw[i], shmq_now())
            if seq:
                held += 1
                first = first or seq
        if held:
            warn_dropped(f"a batch of {held} message{'' if held == 1 else 's'}, from {first} on, "
                         f"of queue {self.handle.name!r}")

    # Takes over the receipts of the views whose leases still hold.
    cdef int _keep(self, Handle handle, const shmq_view *views, int count) except -1:
        cdef int i
        self.handle = handle
        self.units = count
        self.raw = <uint64_t *>malloc((count + 1) * sizeof(uint64_t))
        if self.raw == NULL:
            raise MemoryError
        for i in range(count):
            self.raw[i] = views[i].receipt
        return 0

    @property
    def receipts(self) -> list[int]:
        """See shmq.api.Batch.receipts."""
        cdef int i
        self.by_receipt = True
        return [c_seal(&self.handle.q.seal, self.raw[i]) for i in range(self.units)]

    @property
    def settled(self) -> bool:
        """See shmq.api.Batch.settled."""
        return self._settled

    def ack(self) -> list[int]:
        """See shmq.api.Batch.ack."""
        cdef list refused
        cdef int i
        if self._settled or not self.units:
            self._settled = True
            return []
        _ack_all(self.handle, self.raw, self.units)
        self.handle._after()
        self._settled = True
        refused = [c_seal(&self.handle.q.seal, self.raw[i])
                   for i in range(self.units) if self.raw[i]]
        self.units = 0
        return refused

    def nack(self, delay: float | None = None, *, counted: bool = True,
             error: BaseException | api.Failure | str | None = None) -> list[int]:
        """See shmq.api.Batch.nack."""
        cdef list refused = []
        cdef int64_t ns = _delay_ns(delay)
        cdef bytes why = pack_error(error, counted)
        cdef int i, how = NACK if counted else RETURN
        if self._settled:
            return refused
        for i in range(self.units):
            try:
                _fail(self.handle, how, self.raw[i], ns, why)
            except _errors.LeaseExpired:
                refused.append(c_seal(&self.handle.q.seal, self.raw[i]))
            except _errors.LockTimeout:
                self._forget(i)
                raise
        self._settled = True
        self.units = 0
        return refused

    # Forgets the first `count` messages, which are settled; the others are not.
    cdef void _forget(self, int count) noexcept:
        cdef int i
        self.units -= count
        for i in range(self.units):
            self.raw[i] = self.raw[i + count]

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self._settled:
            return
        if kind is None:
            self.ack()
        else:
            self.nack(error=error)


@cython.no_gc_clear
@cython.final
cdef class Batch(_LeasedBatch):
    """Implements :class:`shmq.api.Batch`."""

    cdef readonly list bodies

    def __len__(self):
        return len(self.bodies)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.bodies)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "queue", self.handle.name
        yield "messages", len(self.bodies)
        yield from _sample(self.bodies)

    def _repr_html_(self) -> str:
        return _as_html("Batch", self.__rich_repr__())

    def __repr__(self):
        return f"<Batch of {len(self.bodies)} messages of {self.handle.name!r}>"


# Returns the leases on all other messages: the first `kept`, and all behind message `at`.
cdef int _return_others(Handle handle, const shmq_view *views, int kept, int at,
                        int count) except -1:
    cdef int i
    for i in range(count):
        if i < kept or i > at:
            try:
                _settle(handle, NACK, views[i].receipt, 0)
            except (_errors.LeaseExpired, _errors.LockTimeout):
                pass
    return 0


cdef Batch _new_batch(Handle handle, shmq_view *views, int count):
    cdef Batch batch = Batch.__new__(Batch)
    cdef list bodies = []
    cdef int i, kept = 0
    for i in range(count):
        if views[i].codec == 0 and views[i].body_bytes <= SMALL:
            body = PyBytes_FromStringAndSize(<char *>views[i].body, views[i].body_bytes)
            if not shmq_holds(&handle.q, views[i].receipt, LONG_AGO):
                continue
        else:
            message = _new_message(handle, &views[i], None)
            if message is None:
                continue
            message.by_receipt = True  # its batch's receipts were read
            try:
                body = message.body
            except _errors.LeaseExpired:
                continue
            except _errors.ShmqError as error:
                _return_others(handle, views, kept, i, count)
                raise _errors.ShmqError(
                    f"message {message.sequence} of queue {handle.name!r} cannot be in a batch: "
                    f"{error}; reject its receipt {message.receipt}, or take it by get; the rest of "
                    f"the batch is in the queue again") from error
        bodies.append(body)
        if kept != i:
            views[kept] = views[i]
        kept += 1
    batch.bodies = bodies
    batch._keep(handle, views, kept)
    return batch


@cython.no_gc_clear
@cython.final
cdef class Packed(_LeasedBatch):
    """Implements :class:`shmq.api.Packed`."""

    cdef readonly bytes data
    cdef uint32_t count
    #| size: int | None
    cdef readonly object size          # of every record, or None if sizes vary
    cdef bytes each                    # lengths, if sizes vary

    def __len__(self):
        return self.count

    @property
    def lengths(self) -> memoryview:
        """See shmq.api.Packed.lengths."""
        cdef uint32_t i, size
        cdef uint32_t *at
        if self.each is None:
            self.each = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>self.count * 4)
            at = <uint32_t *>PyBytes_AS_STRING(self.each)
            size = self.size
            for i in range(self.count):
                at[i] = size
        return memoryview(self.each).cast("I")

    @property
    def offsets(self) -> memoryview:
        """See shmq.api.Packed.offsets."""
        cdef bytes raw = PyBytes_FromStringAndSize(NULL, (<Py_ssize_t>self.count + 1) * 8)
        cdef uint64_t *at = <uint64_t *>PyBytes_AS_STRING(raw)
        cdef const uint32_t *each = NULL
        cdef uint64_t sum_ = 0, size = 0
        cdef uint32_t i
        if self.size is None:
            each = <const uint32_t *>PyBytes_AS_STRING(self.each)
        else:
            size = self.size
        for i in range(self.count):
            at[i] = sum_
            sum_ += size if each == NULL else each[i]
        at[self.count] = sum_
        return memoryview(raw).cast("Q")

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for length in self.lengths:
            yield self.data[start:start + length]
            start += length

    def __repr__(self):
        return (f"<Packed of {self.count} records, {len(self.data)} bytes, "
                f"of {self.handle.name!r}>")


# The records in the body of a leased message: a packed batch, or the body as one record.
cdef void _read_packed(const shmq_view *view, shmq_packed *packed) noexcept nogil:
    if view.codec == SHMQ_CODEC_PACKED and shmq_packed_read(view.body, view.body_bytes, packed):
        return
    packed.bytes = view.body_bytes
    packed.size = view.body_bytes
    packed.count = 1
    packed.lengths = NULL


# Copies the records of the messages whose leases still hold into one buffer.
cdef Packed _new_packed(Handle handle, shmq_view *views, shmq_packed *packed, int count):
    cdef Packed made = Packed.__new__(Packed)
    cdef uint64_t total = 0, records = 0, at = 0
    cdef const unsigned char *lengths
    cdef unsigned char *own
    cdef int i, kept = 0
    cdef bint alike = True
    for i in range(count):
        total += packed[i].bytes
    cdef bytes data = PyBytes_FromStringAndSize(NULL, total)
    cdef char *to = PyBytes_AS_STRING(data)
    for i in range(count):
        _copy(to + at, views[i].body, packed[i].bytes)
        lengths = packed[i].lengths
        if lengths != NULL:  # copied now, because they go with the lease
            own = <unsigned char *>malloc(4 * <size_t>packed[i].count + 1)
            if own == NULL:
                raise MemoryError
            memcpy(own, lengths, 4 * <size_t>packed[i].count)
            lengths = own
        if not shmq_holds(&handle.q, views[i].receipt, LONG_AGO):
            free(<void *>lengths)
            continue
        packed[kept] = packed[i]
        packed[kept].lengths = lengths
        views[kept] = views[i]
        at += packed[kept].bytes
        records += packed[kept].count
        alike = (alike and packed[kept].lengths == NULL
                 and packed[kept].size == packed[0].size)
        kept += 1
    made.data = data if at == total else data[:at]
    made.count = <uint32_t>records
    if alike:
        made.size = packed[0].size if kept else 0
    else:
        made.each = _all_lengths(packed, kept, records)
    made._keep(handle, views, kept)
    return made


cdef bytes _all_lengths(shmq_packed *packed, int count, uint64_t records):
    cdef bytes each = PyBytes_FromStringAndSize(NULL, records * 4)
    cdef uint32_t *to = <uint32_t *>PyBytes_AS_STRING(each)
    cdef uint32_t record
    cdef int i
    for i in range(count):
        for record in range(packed[i].count):
            to[0] = shmq_packed_length(&packed[i], record)
            to += 1
        if packed[i].lengths != NULL:
            free(<void *>packed[i].lengths)
    return each


def packed_trailer(uint64_t data_bytes, lengths: int | Iterable[int]) -> bytes:
    """The trailer behind ``data_bytes`` bytes of records of these lengths.

    ``lengths`` is one int for all, a buffer of unsigned 32-bit numbers, or an iterable of
    ints. Raises InvalidOption unless they add up to the data.
    """
    cdef const uint32_t[::1] view
    cdef uint64_t sum_ = 0
    cdef Py_ssize_t i, count
    cdef uint32_t first, differing = 0
    lengths = plain_number(lengths)
    if isinstance(lengths, (int, str)):
        return _trailer_of_alike(data_bytes, lengths)
    view = _as_lengths(lengths)
    count = view.shape[0]
    if count >= SHMQ_PACKED_VARIES:
        raise _errors.InvalidOption(f"{count} records are too many for one batch")
    first = view[0] if count else 0
    for i in range(count):
        sum_ += view[i]
        differing |= view[i] ^ first
    if sum_ != data_bytes:
        raise _errors.InvalidOption(
            f"the {count} lengths add up to {sum_} bytes, and the data has {data_bytes}")
    if first and not differing and first != SHMQ_PACKED_VARIES:
        return _little(count) + _little(first)
    raw = PyBytes_FromStringAndSize(<char *>&view[0], count * 4) if count else b""
    return raw + _little(count) + _little(SHMQ_PACKED_VARIES)


# The trailer for records of one size, which has no lengths.
cdef bytes _trailer_of_alike(uint64_t data_bytes, size):
    if isinstance(size, (bool, str)):
        raise TypeError(
            f"lengths={size!r:.60} must be the bytes of every record, or of each, not "
            f"{type(size).__name__}")
    if (not 0 < size < SHMQ_PACKED_VARIES or data_bytes % size
            or data_bytes // size >= SHMQ_PACKED_VARIES):
        raise _errors.InvalidOption(
            f"lengths={size}: {data_bytes} bytes are not a number of records of that many bytes")
    return _little(data_bytes // size) + _little(size)


cdef bytes _little(uint64_t number):
    cdef uint32_t value = <uint32_t>number
    return PyBytes_FromStringAndSize(<char *>&value, 4)


cdef object _as_lengths(lengths):
    try:
        view = memoryview(lengths)
    except TypeError:
        return _each_length(lengths)
    if view.format not in _LENGTH_FORMATS or view.itemsize != 4 or view.ndim != 1:
        raise TypeError(
            f"lengths are unsigned 32-bit numbers in one dimension, not {view.format!r} of "
            f"{view.itemsize} bytes in {view.ndim}")
    if view.format not in ("I", "L") or not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B").cast("I")


_LENGTH_FORMATS = ("I", "=I", "<I", "L", "=L", "<L")


cdef object _each_length(lengths):
    if not hasattr(lengths, "__iter__"):
        raise TypeError(
            f"lengths={lengths!r:.60} must be an int or many, not {type(lengths).__name__}")
    cdef list each = list(lengths)
    try:
        return _array.array("I", each)
    except OverflowError:
        wrong = next(one for one in each if not 0 <= one < 1 << 32)
        raise _errors.InvalidOption(
            f"lengths: {wrong} is not the bytes of a record: 0 to 4294967295") from None
    except TypeError:
        raise TypeError(f"lengths={each!r:.60}: each must be an int") from None


def unpack_records(const unsigned char[::1] body: bytes) -> list[bytes]:
    """The records of a packed body, as a list of bytes. Raises ValueError."""
    cdef shmq_packed packed
    cdef const unsigned char *raw = &body[0] if body.shape[0] else NULL
    cdef uint32_t i, length
    cdef uint64_t at = 0
    cdef list records = []
    if raw == NULL or not shmq_packed_read(raw, body.shape[0], &packed):
        raise ValueError("its end does not describe records")
    for i in range(packed.count):
        length = shmq_packed_length(&packed, i)
        records.append(PyBytes_FromStringAndSize(<char *>raw + at, length))
        at += length
    return records
