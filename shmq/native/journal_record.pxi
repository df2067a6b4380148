# Records of a journal one at a time, for file headers and footers, and for tools.

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
