# Blocks: consecutive entries in their stored form, and reading the records in them.

cdef object _malformed(str what):
    return _errors.ShmqError(f"the block of records is damaged: {what}")


#| class Records(api.Records):
@cython.final
@cython.no_gc_clear
cdef class Records:
    """Records of one partition that were read together: see :class:`shmq.api.Records`."""

    cdef readonly uint32_t partition
    cdef readonly int64_t next_offset
    cdef object owner             # bytes, a view of a file, or the partition that owns the ring
    cdef Partition log            # for a view of the ring; None: the memory does not change
    cdef uint64_t begin           # position in its ring
    cdef int64_t pin              # the hold that pins the ring; -1: none
    cdef pid_t pinner             # the process that pinned: a forked child keeps its parent's pins
    cdef const unsigned char *at[2]
    cdef uint64_t bytes_of[2]
    cdef uint64_t others          # the share of records of other types between the entries
    cdef uint64_t count
    cdef const unsigned char **index  # where each entry is; NULL until it is needed

    def __cinit__(self):
        self.pin = -1
        self.index = NULL
        self.count = 0
        self.bytes_of[0] = self.bytes_of[1] = self.others = 0

    def __dealloc__(self):
        self._unpin()
        free(self.index)

    cdef bint _pins(self):
        return self.pin >= 0 and self.pinner == getpid()

    cdef void _unpin(self):
        if self._pins():
            shmq_log_drop(&self.log.c, <uint32_t>self.pin)
        self.pin = -1

    @property
    def data(self) -> bytes:
        """The stored form of the entries, as bytes: see entry.h."""
        if self.others:
            return self._entries_alone()
        if isinstance(self.owner, bytes) and not self.bytes_of[1]:
            begin = self.at[0] - <const unsigned char *>PyBytes_AS_STRING(self.owner)
            return self.owner[begin:begin + self.bytes_of[0]]
        cdef bytes made = PyBytes_FromStringAndSize(NULL, self.bytes_of[0] + self.bytes_of[1])
        memcpy(PyBytes_AS_STRING(made), self.at[0], self.bytes_of[0])
        memcpy(PyBytes_AS_STRING(made) + self.bytes_of[0], self.at[1], self.bytes_of[1])
        self.check()
        return made

    cdef bytes _entries_alone(self):
        """The entries of a single piece without the records of other types between them."""
        cdef uint64_t left = self.bytes_of[0] - self.others, size
        cdef bytes made = PyBytes_FromStringAndSize(NULL, left)
        cdef char *to = PyBytes_AS_STRING(made)
        cdef const unsigned char *at = self.at[0]
        cdef const unsigned char *end = at + self.bytes_of[0]
        cdef shmq_entry e
        while at < end:
            at = self._entry(at, end, &e)
            size = _size_of(&e)
            if size > left:  # another process has changed the file
                raise self._overtaken()
            memcpy(to, at - size, size)
            to += size
            left -= size
        if left:
            raise self._overtaken()
        return made

    def sealed(self, uint32_t salt) -> bytes:
        """`data` with the stream's checksums, which expanded entries lack."""
        cdef bytes found = self.data
        cdef bytes made = PyBytes_FromStringAndSize(PyBytes_AS_STRING(found), len(found))
        cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(made)
        cdef const unsigned char *end = at + PyBytes_GET_SIZE(made)
        cdef shmq_entry e
        while at < end:
            size = self._entry(at, end, &e) - at
            shmq_entry_seal(at, salt)
            at += size
        return made

    def values(self) -> list[Any]:
        """See shmq.api.Records."""
        cdef list made = PyList_New(self.count)
        cdef uint64_t i = 0
        cdef uint64_t size, count = self.count
        cdef uint32_t bytes_ = 0
        cdef shmq_entry e
        cdef object value
        cdef int piece
        cdef bint copies = self.log is None
        cdef const unsigned char *at
        cdef const unsigned char *end
        cdef const unsigned char *begin = NULL
        for piece in range(2):
            at = self.at[piece]
            end = at + self.bytes_of[piece]
            while at < end and i < count:
                size = shmq_entry_value_at(at, end - at, &begin, &bytes_)
                if size:
                    at += size
                else:
                    at = self._entry(at, end, &e)
                    begin, bytes_ = e.value, e.value_bytes
                if copies:
                    value = PyBytes_FromStringAndSize(<const char *>begin, bytes_)
                else:
                    value = _view_of(self, begin, bytes_)
                Py_INCREF(value)
                PyList_SET_ITEM(made, i, value)
                i += 1
        if i != self.count:
            raise self._overtaken()
        return made

    # Parses the first entry from `at` on; returns the place behind it.
    cdef const unsigned char *_entry(self, const unsigned char *at, const unsigned char *end,
                                     shmq_entry *e) except NULL:
        cdef uint64_t size = 0
        cdef int what = shmq_entry_read(at, end - at, 0, False, e, &size)
        while what == SHMQ_E_OTHER:
            at += size
            what = shmq_entry_read(at, end - at, 0, False, e, &size)
        if what != SHMQ_E_OK:
            raise self._overtaken()
        return at + size

    cdef object _overtaken(self):
        if self.log is None or shmq_log_holds(&self.log.c, self.begin):
            return _malformed("its entries contradict each other")
        return self.log._out_of_range(self.next_offset - <int64_t>self.count)

    cdef int _make_index(self) except -1:
        cdef uint64_t i = 0
        cdef shmq_entry e
        cdef int piece
        cdef const unsigned char *at
        cdef const unsigned char *end
        cdef const unsigned char **made = \
            <const unsigned char **>malloc(max(self.count, 1) * sizeof(void *))
        if made == NULL:
            raise MemoryError
        try:
            for piece in range(2):
                at = self.at[piece]
                end = at + self.bytes_of[piece]
                while at < end and i < self.count:
                    at = self._entry(at, end, &e)
                    made[i] = at - _size_of(&e)
                    i += 1
            if i != self.count:
                raise self._overtaken()
            self.index, made = made, NULL
        finally:
            free(made)
        return 0

    def __len__(self):
        return self.count

    #| @overload
    #| def __getitem__(self, index: int) -> api.Record: ...
    #| @overload
    #| def __getitem__(self, index: slice) -> list[api.Record]: ...
    def __getitem__(self, item):
        if isinstance(item, slice):
            return [self[i] for i in range(*item.indices(self.count))]
        cdef int64_t i = item
        cdef shmq_entry e
        if i < 0:
            i += <int64_t>self.count
        if not 0 <= i < <int64_t>self.count:
            raise IndexError(f"record {item} of {self.count}")
        if self.index == NULL:
            self._make_index()
        at = self.index[i]
        self._entry(at, self._end_of(at), &e)
        return _new_record(self.partition, &e, None if self.log is None else self)

    cdef const unsigned char *_end_of(self, const unsigned char *at):
        if self.at[0] <= at < self.at[0] + self.bytes_of[0]:
            return self.at[0] + self.bytes_of[0]
        return self.at[1] + self.bytes_of[1]

    def __iter__(self) -> Iterator[api.Record]:
        cdef RecordIterator made = RecordIterator.__new__(RecordIterator)
        made.records = self
        made.at = self.at[0]
        made.end = self.at[0] + self.bytes_of[0]
        made.left = self.count
        return made

    def check(self):
        """See shmq.api.Records."""
        if self.log is not None and not self._pins() \
                and not shmq_log_holds(&self.log.c, self.begin):
            raise self._overtaken()

    def release(self):
        """See shmq.api.Records."""
        self._unpin()

    def __enter__(self):
        return self

    def __exit__(self, *_: object):
        self.release()

    def select(self, keep: Sequence[bool]) -> Records:
        """A copy of the records whose element in ``keep``, a sequence of bools, is true."""
        cdef list parts = []
        cdef uint64_t i
        cdef shmq_entry e
        cdef const unsigned char *at
        if self.index == NULL:
            self._make_index()
        for i in range(self.count):
            if keep[i]:
                at = self.index[i]
                size = self._entry(at, self._end_of(at), &e) - at
                parts.append(PyBytes_FromStringAndSize(<const char *>at, size))
        self.check()
        return _records_in(b"".join(parts), self.partition, len(parts), self.next_offset)

    def __repr__(self):
        return (f"<Records of partition {self.partition}: {self.count}, "
                f"next_offset={self.next_offset}>")


@cython.final
cdef class RecordIterator:
    """Iterates over Records once."""

    # Iterates over Records once.

    cdef Records records
    cdef const unsigned char *at
    cdef const unsigned char *end
    cdef uint64_t left

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        cdef shmq_entry e
        if not self.left:
            raise StopIteration
        if self.at == self.end:
            self.at = self.records.at[1]
            self.end = self.at + self.records.bytes_of[1]
        self.at = self.records._entry(self.at, self.end, &e)
        self.left -= 1
        return _new_record(self.records.partition, &e,
                           None if self.records.log is None else self.records)


cdef inline uint64_t _size_of(const shmq_entry *e):
    return shmq_entry_size(e.flags, e.value_bytes, e.key_bytes, e.headers_bytes)


cdef Records _records_in(bytes block, uint32_t partition, uint64_t count, int64_t next_offset):
    cdef Records made = Records.__new__(Records)
    made.partition = partition
    made.next_offset = next_offset
    made.owner = block
    made.at[0] = <const unsigned char *>PyBytes_AS_STRING(block)
    made.bytes_of[0] = PyBytes_GET_SIZE(block)
    made.count = count
    return made


# ---- functions for other modules ----

def records_of(raw, uint32_t partition, int64_t offset, uint64_t limit=0xFFFFFFFF, *,
               end: int | None = None, salt: int | None = None, bint verify=True,
               next_offset: int | None = None, bint in_place=False) -> Records:
    """The records of a block from ``offset`` on and before ``end``, at most ``limit`` of them.

    The block is entries in their stored form. Records of other types are skipped, and compressed
    batches are expanded. With ``salt`` None the checksums are not compared. ``next_offset`` is the
    offset after the block, if the caller knows it; it counts unless ``limit`` is reached. With
    ``in_place`` the block never changes any more: it is read in place and held as long as the
    records are. Raises ShmqError if the bytes are not such a block.
    """
    cdef Records made
    cdef object block = raw
    cdef uint32_t salted = salt or 0
    cdef uint64_t last = NOWHERE if end is None else end
    if not isinstance(raw, bytes):
        block = PyMemoryView_GetContiguous(raw, PyBUF_READ, b"C") if in_place else bytes(raw)
    made = _read_block(block, partition, offset, limit, last, salted,
                       verify and salt is not None)
    if next_offset is not None and made.count < limit:
        made.next_offset = next_offset
    return made


cdef Records _read_block(object block, uint32_t partition, int64_t offset, uint64_t limit,
                         uint64_t last, uint32_t salt, bint verify):
    """Read ``block``, bytes or a contiguous memoryview, which the records then refer to.

    If it has compressed batches, the records refer to new bytes.
    """
    cdef uint64_t length = 0, size = 0, count = 0, taken = 0
    cdef const unsigned char *at = _begin_of(block, &length)
    cdef const unsigned char *end = at + length
    cdef const unsigned char *begin = at  # the first wanted entry
    cdef const unsigned char *stop = at   # behind the last wanted entry
    cdef int64_t next_offset = offset
    cdef shmq_entry e
    cdef int what
    cdef Records made
    while at < end:
        what = shmq_entry_read(at, end - at, salt, verify, &e, &size)
        if what == SHMQ_E_END:
            break
        if what == SHMQ_E_WRONG:
            raise _malformed("an entry is cut off, or its bytes are not those that were written")
        if what == SHMQ_E_OK:
            if e.compression != SHMQ_PLAIN:
                return _read_packed(block, partition, offset, limit, last, salt, verify)
            if e.offset >= last or count == limit:
                break
            if <int64_t>e.offset >= offset:
                if not count:
                    begin = at
                count += 1
                taken += size
                next_offset = e.offset + 1
                stop = at + size
        at += size
    made = Records.__new__(Records)
    made.partition = partition
    made.next_offset = next_offset
    made.owner = block
    made.count = count
    made.at[0] = begin
    made.bytes_of[0] = stop - begin
    made.others = made.bytes_of[0] - taken
    return made


cdef const unsigned char *_begin_of(object block, uint64_t *length):
    cdef Py_buffer *view
    if isinstance(block, bytes):
        length[0] = PyBytes_GET_SIZE(block)
        return <const unsigned char *>PyBytes_AS_STRING(block)
    view = PyMemoryView_GET_BUFFER(block)
    length[0] = view.len
    return <const unsigned char *>view.buf


cdef Records _read_packed(object block, uint32_t partition, int64_t offset, uint64_t limit,
                          uint64_t last, uint32_t salt, bint verify):
    """Do what _read_block does, for a block with compressed batches, which are expanded."""
    cdef uint64_t length = 0, size = 0, count = 0
    cdef const unsigned char *at = _begin_of(block, &length)
    cdef const unsigned char *end = at + length
    cdef int64_t next_offset = offset
    cdef shmq_entry e
    cdef list parts = []
    cdef int what
    cdef bytes plain
    while at < end and count < limit:
        what = shmq_entry_read(at, end - at, salt, verify, &e, &size)
        if what == SHMQ_E_END or (what == SHMQ_E_OK and e.offset >= last):
            break
        if what == SHMQ_E_WRONG:
            raise _malformed("an entry is cut off, or its bytes are not those that were written")
        if what == SHMQ_E_OK and <int64_t>(e.offset + e.count) > offset:
            if e.compression == SHMQ_PLAIN:
                parts.append(PyBytes_FromStringAndSize(<const char *>at, size))
                count += 1
                next_offset = e.offset + 1
            else:
                plain = _expand(&e)
                found = _take(plain, &e, offset, limit - count, last)
                parts.append(found[0])
                count += found[1]
                next_offset = found[2]
        at += size
    return _records_in(b"".join(parts), partition, count, next_offset)


cdef bytes _expand(const shmq_entry *e):
    """The entries of a compressed batch; their offsets count from 0."""
    packed = PyBytes_FromStringAndSize(<const char *>e.value, e.value_bytes)
    try:
        plain = _expand_batch(COMPRESSIONS[e.compression], packed, e.raw)
    except _errors.Unsupported as error:
        raise _errors.Unsupported(f"the records from offset {e.offset} on: {error}") from error
    except Exception as error:
        raise _malformed(f"what is compressed at offset {e.offset}: {error}") from error
    if not isinstance(plain, bytes) or len(plain) != e.raw:
        raise _malformed(f"what is compressed at offset {e.offset} has not {e.raw} bytes")
    return plain


cdef tuple _take(bytes plain, const shmq_entry *outer, int64_t offset, uint64_t limit,
                 uint64_t last):
    """The wanted expanded entries with their true offsets: bytes, count, next."""
    cdef bytes made = PyBytes_FromStringAndSize(PyBytes_AS_STRING(plain), len(plain))
    cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(made)
    cdef unsigned char *end = at + PyBytes_GET_SIZE(made)
    cdef unsigned char *begin = NULL
    cdef unsigned char *stop = NULL
    cdef uint64_t size = 0, count = 0, i = 0
    cdef int64_t next_offset = offset
    cdef shmq_entry e
    while at < end:
        if shmq_entry_read(at, end - at, 0, False, &e, &size) != SHMQ_E_OK or e.count != 1 \
                or i == outer.count:
            raise _malformed(f"what is compressed at offset {outer.offset} is not a batch of records")
        e.offset = outer.offset + i
        if e.timestamp <= 0:
            e.timestamp = outer.timestamp
        memcpy(at + 16, &e.offset, 8)
        memcpy(at + 24, &e.timestamp, 8)
        if <int64_t>e.offset >= offset and e.offset < last and count < limit:
            if begin == NULL:
                begin = at
            stop = at + size
            count += 1
            next_offset = e.offset + 1
        i += 1
        at += size
    if i != outer.count:
        raise _malformed(f"what is compressed at offset {outer.offset} are {i} records, "
                         f"not {outer.count}")
    if begin == NULL:
        return b"", 0, next_offset
    return PyBytes_FromStringAndSize(<char *>begin, stop - begin), count, next_offset
