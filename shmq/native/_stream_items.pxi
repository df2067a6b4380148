# Records to be appended: checked, and packed as a block.

def pack_records(values: Iterable[Any], keys: Sequence[_Key] | None = None,
                 headers: Sequence[Mapping[str, Any] | None] | None = None,
                 codec: str | None = None, timestamp: float | None = None,
                 default: Callable[[Any], Any] | None = None) -> bytes:
    """Pack records as a block for ``append_block``; the arguments are those of ``append_many``.

    ``default`` is that of ``connect``.
    """
    cdef Items items = Items.__new__(Items)
    items.fill(values, keys, headers, codec, default)
    return items.packed(_wall_ns(timestamp))


def pack_record(value, key: _Key = None, headers: Mapping[str, Any] | None = None,
                codec: str | None = None,
                default: Callable[[Any], Any] | None = None) -> tuple[bytes, int]:
    """Pack one record as such a block; also returns the bytes of its value, key and headers."""
    cdef Items items = Items.__new__(Items)
    items.fill((value,), None if key is None else (key,), None if headers is None else (headers,),
               codec, default)
    items.measure()
    return items.packed(0), items.largest


def count_records(bytes block not None) -> int:
    """The number of records in a block for ``append_block``: at least 1.

    Raises InvalidOption if the bytes are not such a block.
    """
    cdef Items items = Items.__new__(Items)
    items.fill_block(block, 0)
    if not items.count:
        raise _errors.InvalidOption("the block is not a block of records: it is empty")
    return items.count


@cython.no_gc
cdef class Items:
    """Records to be appended, ready for the core."""

    cdef shmq_log_item *at
    cdef uint32_t count
    cdef uint64_t bytes_    # of all the entries, an upper limit
    cdef uint64_t largest   # of the largest record
    cdef list keep        # owners of the memory that `at` points into
    cdef list buffers

    def __cinit__(self):
        self.at = NULL
        self.keep = []
        self.buffers = []

    def __dealloc__(self):
        free(self.at)

    cdef int _room(self, uint64_t count) except -1:
        if count > 0xFFFFFFFF:
            raise _errors.InvalidOption(f"{count} records are too many for one call")
        self.at = <shmq_log_item *>malloc(max(count, 1) * sizeof(shmq_log_item))
        if self.at == NULL:
            raise MemoryError
        memset(self.at, 0, max(count, 1) * sizeof(shmq_log_item))
        self.count = <uint32_t>count
        return 0

    cdef int measure(self) except -1:
        """Sum up their sizes; must come before any use of ``bytes_`` or ``largest``."""
        cdef uint64_t i, size
        self.bytes_ = self.largest = 0
        for i in range(self.count):
            size = <uint64_t>self.at[i].value_bytes + self.at[i].key_bytes \
                + self.at[i].headers_bytes
            self.largest = max(self.largest, size)
            self.bytes_ += shmq_entry_size(SHMQ_E_PRODUCED | SHMQ_E_SEEN, size, 0, 0)
        return 0

    cdef int fill(self, values, keys, headers, codec, default) except -1:
        check_many(values)
        cdef tuple all_values = tuple(values)  # a copy: the caller's may change in the meantime
        cdef uint64_t i, count = len(all_values)
        cdef object value
        check_each("keys", keys, count)
        check_each("headers", headers, count)
        self._room(count)
        self.keep.append(all_values)
        for i in range(count):
            value = <object>PyTuple_GET_ITEM(all_values, i)
            self.at[i].count = 1
            if codec is None and type(value) is bytes:
                self.at[i].value = PyBytes_AS_STRING(value)
                self.at[i].value_bytes = _small("value", PyBytes_GET_SIZE(value))
            else:
                self._encode(i, value, codec, default)
            if keys is not None:
                self._key(i, keys[i])
            if headers is not None:
                self._headers(i, headers[i])
        return 0

    cdef int _encode(self, uint64_t i, value, codec, default) except -1:
        cdef bytes raw
        buffer, number = _encode(value, codec, default)
        if number >= len(_CODECS):
            raise _errors.InvalidOption(
                f"codec={codec!r} is none of a stream's: use {', '.join(_CODECS)}")
        raw = buffer if type(buffer) is bytes else bytes(buffer)
        self.keep.append(raw)
        self.at[i].value = PyBytes_AS_STRING(raw)
        self.at[i].value_bytes = _small("value", PyBytes_GET_SIZE(raw))
        self.at[i].codec = number
        return 0

    cdef int _key(self, uint64_t i, key) except -1:
        cdef bytes raw = _key_bytes(key)
        if raw is None:
            return 0
        self.keep.append(raw)
        self.at[i].flags = SHMQ_E_KEYED
        self.at[i].key = PyBytes_AS_STRING(raw)
        self.at[i].key_bytes = _small("key", PyBytes_GET_SIZE(raw))
        return 0

    cdef int _headers(self, uint64_t i, headers) except -1:
        cdef bytes raw = _headers_bytes(headers)
        if raw is None:
            return 0
        self.keep.append(raw)
        self.at[i].headers = PyBytes_AS_STRING(raw)
        self.at[i].headers_bytes = _small("headers", PyBytes_GET_SIZE(raw))
        return 0

    cdef int fill_block(self, bytes block, uint32_t partition) except -1:
        """Take the records of a block from outside; the offsets in it are ignored."""
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(block)
        cdef const unsigned char *end = at + PyBytes_GET_SIZE(block)
        cdef uint64_t size = 0, i = 0
        cdef shmq_entry e
        self._room(PyBytes_GET_SIZE(block) // SHMQ_ENTRY_HEAD)
        self.keep.append(block)
        while at < end:
            if shmq_entry_read(at, end - at, 0, False, &e, &size) != SHMQ_E_OK \
                    or e.compression != SHMQ_PLAIN or e.flags & SHMQ_E_PRODUCED \
                    or e.codec >= len(_CODECS) or e.count != 1 or e.headers_bytes \
                    and not shmq_msgpack_is_map(e.headers, e.headers_bytes):
                raise _errors.InvalidOption(f"the block is not a block of records: entry {i} is none")
            self.at[i].timestamp = _checked_ns(e.timestamp)
            self.at[i].value = e.value
            self.at[i].key = e.key
            self.at[i].headers = e.headers
            self.at[i].value_bytes = e.value_bytes
            self.at[i].key_bytes = e.key_bytes
            self.at[i].headers_bytes = e.headers_bytes
            self.at[i].flags = e.flags & SHMQ_E_KEYED  # the append sets the others again
            self.at[i].codec = e.codec
            self.at[i].count = 1
            i += 1
            at += size
        self.count = <uint32_t>i
        return 0

    cdef int fill_compressed(self, bytes block, count, compression, raw_bytes) except -1:
        if compression not in COMPRESSIONS[1:]:
            raise _errors.InvalidOption(
                f"compression={compression!r} must be one of 'lz4', 'zstd' or None")
        if not block.startswith(_MAGIC[compression]):
            raise _errors.InvalidOption(
                f"the block begins with {block[:4]!r}: it is not compressed with {compression}")
        self._room(1)
        self.keep.append(block)
        self.at[0].value = PyBytes_AS_STRING(block)
        self.at[0].value_bytes = _small("block", PyBytes_GET_SIZE(block))
        self.at[0].compression = COMPRESSIONS.index(compression)
        self.at[0].count = _small("count", _natural("count", count))
        self.at[0].raw = _small("raw_bytes", _natural("raw_bytes", raw_bytes))
        if not self.at[0].count or self.at[0].raw // SHMQ_ENTRY_HEAD < self.at[0].count:
            raise _errors.InvalidOption(
                f"count={count}, raw_bytes={raw_bytes}: a compressed block has one record at "
                f"least, and {SHMQ_ENTRY_HEAD} bytes of each before it is compressed")
        return 0

    cdef bytes packed(self, int64_t timestamp):
        cdef uint64_t size = 0, i
        cdef unsigned char *at
        cdef shmq_entry e
        cdef bytes made
        for i in range(self.count):
            size += shmq_entry_size(self.at[i].flags, self.at[i].value_bytes,
                                    self.at[i].key_bytes, self.at[i].headers_bytes)
        made = PyBytes_FromStringAndSize(NULL, size)
        at = <unsigned char *>PyBytes_AS_STRING(made)
        memset(&e, 0, sizeof(e))
        for i in range(self.count):
            e.flags, e.codec, e.count = self.at[i].flags, self.at[i].codec, 1
            e.offset, e.timestamp = i, timestamp
            e.value_bytes = self.at[i].value_bytes
            e.key_bytes = self.at[i].key_bytes
            e.headers_bytes = self.at[i].headers_bytes
            e.value = <const unsigned char *>self.at[i].value
            e.key = <const unsigned char *>self.at[i].key
            e.headers = <const unsigned char *>self.at[i].headers
            at = shmq_entry_write(at, 0, &e)
        return made


def check_many(values: object):
    """Raise TypeError if ``values`` is a single value."""
    if isinstance(values, (str, bytes, bytearray, memoryview, dict)):
        raise TypeError(
            f"values={values!r:.60} is one value, not many: put it in a list, or use append")


def check_each(str what, given: object, uint64_t count):
    """Raise TypeError or InvalidOption unless ``given`` has one entry for each of the records."""
    if given is None:
        return
    if isinstance(given, (str, bytes, bytearray, memoryview)) or not isinstance(given, _Sequence):
        raise TypeError(
            f"{what}={given!r:.60} must be a list with one entry for each record, "
            f"not {type(given).__name__}")
    if <uint64_t>len(given) != count:
        raise _errors.InvalidOption(f"{what} has {len(given)} entries for {count} records")


cdef inline uint32_t _small(str what, uint64_t size) except? 0xFFFFFFFF:
    if size > SMALL:
        raise _errors.MessageTooLarge(f"a {what} of {size} bytes can never fit into a stream")
    return <uint32_t>size


cdef bytes _key_bytes(key):
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return _errors.to_utf8("key", key, _errors.AS_BYTES)
    try:
        return bytes(memoryview(key))
    except TypeError:
        raise TypeError(f"key={key!r} must be bytes or a str, not {type(key).__name__}") from None


cdef bytes _headers_bytes(headers):
    if headers is None:
        return None
    cdef dict found = _check_headers(headers)
    return _pack(found) if found else None


cdef dict _check_headers(headers):
    if not hasattr(headers, "keys"):
        raise TypeError(f"headers={headers!r:.80} must be a map, not {type(headers).__name__}")
    return dict(headers)
