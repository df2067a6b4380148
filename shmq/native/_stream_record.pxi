# A record of a stream, and the results of appends.

@cython.freelist(64)
@cython.final
cdef class Appended:
    """The result of an append: see :class:`shmq.api.Appended`."""

    cdef readonly uint32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ns
    cdef readonly bint duplicate

    def __init__(self, uint32_t partition, int64_t offset, int64_t timestamp_ns,
                 bint duplicate=False):
        self.partition = partition
        self.offset = offset
        self.timestamp_ns = timestamp_ns
        self.duplicate = duplicate

    @property
    def timestamp(self) -> float:
        """See shmq.api.Appended."""
        return _seconds(self.timestamp_ns)

    def __repr__(self):
        return (f"Appended(partition={self.partition}, offset={self.offset}, "
                f"timestamp={self.timestamp}, duplicate={self.duplicate})")

    def __eq__(self, other):
        return isinstance(other, Appended) and _told(self) == _told(other)

    def __hash__(self):
        return hash(_told(self))

    def __reduce__(self):
        return Appended, _told(self)


cdef Appended _appended_of(uint32_t partition, const shmq_log_appended *out):
    cdef Appended made = Appended.__new__(Appended)
    made.partition = partition
    made.offset = <int64_t>out.first
    made.timestamp_ns = out.timestamp
    made.duplicate = out.duplicate
    return made


cdef tuple _told(Appended self):
    return self.partition, self.offset, self.timestamp_ns, self.duplicate


@cython.freelist(64)
@cython.final
cdef class AppendedRange:
    """Records that were appended in one piece: see :class:`shmq.api.AppendedRange`."""

    cdef readonly uint32_t partition
    cdef readonly int64_t first
    cdef readonly uint64_t count
    cdef readonly bint duplicate
    cdef readonly int64_t timestamp_ns

    def __init__(self, uint32_t partition, int64_t first, uint64_t count, bint duplicate=False,
                 int64_t timestamp_ns=0):
        self.partition = partition
        self.first = first
        self.count = count
        self.duplicate = duplicate
        self.timestamp_ns = timestamp_ns

    def __repr__(self):
        return (f"AppendedRange(partition={self.partition}, first={self.first}, "
                f"count={self.count}, duplicate={self.duplicate})")

    def __eq__(self, other):
        return isinstance(other, AppendedRange) and _range_told(self) == _range_told(other)

    def __hash__(self):
        return hash(_range_told(self))

    def __reduce__(self):
        return AppendedRange, _range_told(self)


cdef AppendedRange _range_of(uint32_t partition, const shmq_log_appended *out):
    cdef AppendedRange made = AppendedRange.__new__(AppendedRange)
    made.partition = partition
    made.first = <int64_t>out.first
    made.count = out.records
    made.duplicate = out.duplicate
    made.timestamp_ns = out.timestamp
    return made


cdef tuple _range_told(AppendedRange self):
    return self.partition, self.first, self.count, self.duplicate, self.timestamp_ns


cdef class _Bytes:
    # Bytes of shared memory or of a block, exported as a buffer.

    cdef object owner
    cdef const unsigned char *at
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.at, self.size, 1, flags)


cdef object _view_of(object owner, const unsigned char *at, Py_ssize_t size):
    cdef _Bytes made = _Bytes.__new__(_Bytes)
    made.owner = owner
    made.at = at
    made.size = size
    return memoryview(made)


#| class Record(api.Record):
@cython.freelist(256)
@cython.final
cdef class Record:
    """One record of a stream: see :class:`shmq.api.Record`."""

    cdef readonly uint32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ns
    cdef readonly object value
    #| key: bytes | None
    cdef readonly bytes key
    cdef bytes packed
    cdef uint8_t number

    @property
    def timestamp(self) -> float:
        """See shmq.api.Record."""
        return _seconds(self.timestamp_ns)

    @property
    def headers(self) -> Mapping[str, Any]:
        """See shmq.api.Record."""
        if self.packed is None:
            return {}
        try:
            return _unpack(self.packed)
        except Exception as error:  # msgpack's own errors, and keys that a dict cannot have
            raise _errors.ShmqError(
                f"the headers of the record at offset {self.offset} of partition "
                f"{self.partition} are damaged: {error!r:.80}; they are no msgpack map") from error

    @property
    def headers_packed(self) -> bytes:
        """The headers as one msgpack map; empty if there are none."""
        return self.packed if self.packed is not None else b""

    @property
    def codec(self) -> str:
        """See shmq.api.Record."""
        return _CODECS[self.number] if self.number < len(_CODECS) else f"codec {self.number}"

    @property
    def body(self) -> Any:
        """See shmq.api.Record."""
        if not self.number:
            return self.value
        return _decode(bytes(self.value), self.number, self.codec)

    def __repr__(self):
        return (f"Record(partition={self.partition}, offset={self.offset}, "
                f"timestamp={self.timestamp}, key={self.key!r}, {len(self.value)} bytes)")


cdef Record _new_record(uint32_t partition, const shmq_entry *e, object owner):
    """``owner`` is the owner of the memory that the entry points into; None: copy it."""
    cdef Record record = Record.__new__(Record)
    record.partition = partition
    record.offset = e.offset
    record.timestamp_ns = e.timestamp
    record.number = e.codec
    if owner is None:
        record.value = PyBytes_FromStringAndSize(<const char *>e.value, e.value_bytes)
    else:
        record.value = _view_of(owner, e.value, e.value_bytes)
    if e.flags & SHMQ_E_KEYED:
        record.key = PyBytes_FromStringAndSize(<const char *>e.key, e.key_bytes)
    if e.headers_bytes:
        record.packed = PyBytes_FromStringAndSize(<const char *>e.headers, e.headers_bytes)
    return record
