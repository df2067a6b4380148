# Rows of Arrow's columns as msgpack maps: see shmq/core/base/map_rows.h.

@cython.final
cdef class MapFault:
    """A row that cannot be a map."""

    #: ``"text"``: a text is not UTF-8; ``"names"``: the key of a pair is null, or there twice.
    cdef readonly str fault
    #: The numbers of the row and of the column.
    cdef readonly uint64_t row
    cdef readonly uint32_t column


cdef MapFault _fault(str fault, uint64_t row, uint32_t column):
    cdef MapFault made = MapFault.__new__(MapFault)
    made.fault, made.row, made.column = fault, row, column
    return made


def pack_maps(columns: Sequence[_MapColumn], uint32_t count) -> tuple[bytes, bytes] | MapFault:
    """The rows of columns as msgpack maps: the ends of the maps, signed 32-bit, and the maps.

    A column is its key, its kind and its buffers. A ``"text"`` has texts, an ``"int"`` a bit for
    each number, the signed 64-bit numbers, and the place of the first one. ``"pairs"`` are lists:
    (bits, ends, place of the first list), the keys, the values, how many pairs there are, and
    whether the values are bytes, of which those in UTF-8 become texts. A null, and a list without
    pairs, is not in the map; a map without entries has no bytes. A single column of pairs without a
    key is the map. Returns the first row that cannot be a map, if there is one. Raises ValueError
    for ends that contradict their bytes.
    """
    cdef shmq_map_column made[SHMQ_MAP_COLUMNS]
    cdef uint32_t many = <uint32_t>len(columns), i
    cdef uint64_t row = 0
    cdef uint32_t which = 0
    if not 0 < many <= SHMQ_MAP_COLUMNS or (many > 1 and any(c[0] is None for c in columns)):
        raise ValueError(f"{many} columns are not 1 to {SHMQ_MAP_COLUMNS} with a key each")
    memset(made, 0, sizeof(made))
    for i in range(many):
        _set_column(&made[i], columns[i], count)
    ends = _room(4 * (<uint64_t>count + 1))
    cdef int32_t *to = <int32_t *>PyBytes_AS_STRING(ends)
    cdef int fault
    with nogil:
        fault = _measure_rows(made, many, count, to, &row, &which)
    if fault == SHMQ_ROW_MEMORY:
        raise MemoryError
    if fault == SHMQ_ROW_TEXT or fault == SHMQ_ROW_NAMES:
        return _fault("text" if fault == SHMQ_ROW_TEXT else "names", row, which)
    if fault != SHMQ_ROW_OK:
        raise ValueError(f"the ends of column {which} contradict their bytes at row {row}, or the "
                         f"maps of the rows up to it have more than 2 GiB")
    maps = _room(to[count])
    cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(maps)
    with nogil:
        for row in range(count):
            if to[row + 1] > to[row]:
                shmq_map_row_write(made, many, row, at + to[row])
    return ends, maps


cdef int _measure_rows(const shmq_map_column *columns, uint32_t many, uint32_t count, int32_t *ends,
                       uint64_t *row, uint32_t *which) noexcept nogil:
    cdef uint64_t size, total = 0
    cdef int fault
    ends[0] = 0
    while row[0] < count:
        fault = shmq_map_row_measure(columns, many, row[0], &size, which)
        total += size
        if fault != SHMQ_ROW_OK or total > MOST_BYTES:
            return fault if fault != SHMQ_ROW_OK else SHMQ_ROW_ENDS
        row[0] += 1
        ends[row[0]] = <int32_t>total
    return SHMQ_ROW_OK


cdef int _set_column(shmq_map_column *to, column, uint32_t count) except -1:
    key, kind, buffers = column
    if key is not None:
        if not 0 < len(key) < 32:
            raise ValueError(f"key={key!r} must have 1 to 31 bytes")
        to.key = PyBytes_AS_STRING(key)
    if kind == "text" and key is not None:
        to.kind = SHMQ_MAP_TEXT
        to.texts = _texts(buffers, count)
    elif kind == "int" and key is not None:
        to.kind = SHMQ_MAP_INT
        _set_numbers(&to.numbers, buffers, count)
    elif kind == "pairs":
        to.kind = SHMQ_MAP_PAIRS
        _set_pairs(&to.pairs, buffers, count)
    else:
        raise ValueError(f"kind={kind!r} must be text or int, which have a key, or pairs")
    return 0


cdef int _set_numbers(shmq_numbers *to, buffers, uint32_t count) except -1:
    cdef uint64_t first
    there, data, first = buffers
    cdef const unsigned char[::1] view = memoryview(data).cast("B")
    if <uint64_t>view.shape[0] // 8 < first + count or (count and <uintptr_t>&view[0] % 8):
        raise ValueError(f"{view.shape[0]} bytes are not {count} numbers from {first} on")
    if count:
        to.at = <const int64_t *>&view[0] + first
    to.there = _bits_of(there, first, count)
    return 0


cdef int _set_pairs(shmq_pairs *to, buffers, uint32_t count) except -1:
    lists, keys, values, to.count, to.is_binary = buffers
    there, ends, first = lists
    to.ends = _ends(ends, first, count)
    to.there = _bits_of(there, first, count)
    if to.count >= MOST_BYTES:
        raise ValueError(f"{to.count} pairs are too many for one batch")
    to.keys = _texts(keys, <uint32_t>to.count)
    to.values = _texts(values, <uint32_t>to.count)
    return 0


def partitions_of(keys: _Texts, uint32_t count, uint32_t begin, uint32_t partitions) -> bytes:
    """The partition of each key, by its CRC-32: ``begin`` and up; -1 for null. Signed 64-bit.

    Raises ValueError for ends that contradict their bytes.
    """
    cdef shmq_texts texts = _texts(keys, count)
    cdef shmq_span key
    cdef uint32_t i = 0
    if not partitions:
        raise ValueError("no partition is given")
    made = _room(8 * <uint64_t>count)
    cdef int64_t *to = <int64_t *>PyBytes_AS_STRING(made)
    with nogil:
        while i < count and shmq_text_at(&texts, i, &key):
            to[i] = begin + shmq_crc32(key.at, key.bytes) % partitions if key.at != NULL else -1
            i += 1
    if i < count:
        raise ValueError("the ends of the keys contradict their bytes")
    return made
