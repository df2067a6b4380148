# Values of msgpack maps as Arrow's columns: see shmq/core/base/map_columns.h.

cdef enum:
    MOST_BYTES = 0x7FFFFFFF     # of a column: Arrow's offsets have 31 bits


# The values of a key in a run of maps. `data` and `kept` own their bytes.
@cython.final
cdef class _Spans:
    cdef shmq_span *at
    cdef uint32_t count
    cdef object data
    cdef list kept

    def __cinit__(self, uint32_t count, data):
        self.count = count
        self.data = data
        self.kept = []
        self.at = <shmq_span *>malloc((count + 1) * sizeof(shmq_span))
        if self.at == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.at)

    cdef bytes packed(self, uint32_t i):
        return PyBytes_FromStringAndSize(<const char *>self.at[i].at, self.at[i].bytes)

    cdef int replace(self, uint32_t i, bytes packed) except -1:
        self.kept.append(packed)
        self.at[i].at = <const unsigned char *>PyBytes_AS_STRING(packed)
        self.at[i].bytes = <uint32_t>PyBytes_GET_SIZE(packed)
        return 0


# Raises ValueError if the ends contradict their bytes, and for a malformed map.
cdef _Spans _find(ends, data, outer, key):
    cdef const unsigned char[::1] view = memoryview(ends).cast("B")
    cdef shmq_maps maps = shmq_maps(NULL, NULL, 0, 0)
    cdef uint32_t found
    cdef const char *outer_key = NULL if outer is None else PyBytes_AS_STRING(outer)
    cdef const char *inner_key = NULL if key is None else PyBytes_AS_STRING(key)
    if view.shape[0] < 4 or view.shape[0] % 4 or <uintptr_t>&view[0] % 4:
        raise ValueError(f"{view.shape[0]} bytes are no ends of maps")
    maps.ends = <const int32_t *>&view[0]
    maps.count = <uint32_t>(view.shape[0] // 4 - 1)
    view = memoryview(data).cast("B")
    maps.size = view.shape[0]
    if maps.size:
        maps.bytes = &view[0]
    if not shmq_maps_check(&maps):
        raise ValueError("the ends of the maps contradict their bytes")
    cdef _Spans spans = _Spans(maps.count, data)
    with nogil:
        found = shmq_maps_find(&maps, outer_key, inner_key, spans.at)
    if found < maps.count:
        raise ValueError(f"the map of row {found} is malformed")
    return spans


def texts_of(ends: Buffer, data: Buffer, outer: bytes | None,
             key: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The texts of a key in maps: a bit for each map, the ends, and the texts.

    Map i goes from ``ends[i]`` to ``ends[i + 1]``; with ``outer``, a key or several with dots
    between, the key is looked up in the map that this leads to. None if no map has the key. Raises
    ValueError for ends that contradict their bytes, and for a malformed map.
    """
    cdef _Spans spans = _find(ends, data, outer, key)
    cdef shmq_text_sums sums
    cdef shmq_text_arrays to
    with nogil:
        shmq_texts_measure(spans.at, spans.count, &sums)
    if not sums.present:
        return None
    there, made, texts = _bits(spans.count), _room(4 * (<uint64_t>spans.count + 1)), _room(sums.bytes)
    to.there = <unsigned char *>PyBytes_AS_STRING(there)
    to.ends = <int32_t *>PyBytes_AS_STRING(made)
    to.bytes = <unsigned char *>PyBytes_AS_STRING(texts)
    with nogil:
        shmq_texts_fill(spans.at, spans.count, &to)
    return there, made, texts


def ints_of(ends: Buffer, data: Buffer, outer: bytes | None,
            key: bytes) -> tuple[bytes, bytes] | None:
    """The ints of a key in maps: a bit for each map, and the numbers, signed 64-bit.

    As :func:`texts_of`.
    """
    cdef _Spans spans = _find(ends, data, outer, key)
    cdef uint32_t present
    there, numbers = _bits(spans.count), _room(8 * <uint64_t>spans.count)
    cdef unsigned char *bits = <unsigned char *>PyBytes_AS_STRING(there)
    cdef int64_t *to = <int64_t *>PyBytes_AS_STRING(numbers)
    with nogil:
        present = shmq_ints_fill(spans.at, spans.count, to, bits)
    return (there, numbers) if present else None


@cython.final
cdef class Pairs:
    """Maps as lists of pairs, in Arrow's format.

    Arrays of ends have one element more than there are lists or pairs.
    """

    #: How many pairs there are in all lists.
    cdef readonly uint32_t count
    #: A bit for each map: whether it has pairs.
    cdef readonly bytes there
    cdef readonly bytes ends, key_ends, value_ends
    cdef readonly bytes keys, values
    #: A bit for each pair: whether its value is there.
    cdef readonly bytes has_value


def pairs_of(ends: Buffer, data: Buffer, key: bytes | None,
             plain: Callable[[bytes, int], bytes]) -> Pairs | None:
    """The maps that are the values of a key in maps, as pairs; without a key, the maps themselves.

    Keys are texts, and values texts, bytes or nil. For every other map, ``plain`` gets the map
    and its row, and returns it with such keys and values. None if no map has pairs. Raises
    ValueError as :func:`texts_of`, and what ``plain`` raises.
    """
    cdef _Spans spans = _find(ends, data, None, key)
    cdef shmq_pair_sums sums
    cdef uint32_t i = 0
    memset(&sums, 0, sizeof(sums))
    while True:
        with nogil:
            i = _measure_from(spans, i, &sums)
        if i == spans.count:
            break
        _make_plain(spans, i, plain, &sums)
        i += 1
    if max(sums.pairs, sums.key_bytes, sums.value_bytes) > MOST_BYTES:
        raise ValueError("the pairs of these maps have more than 2 GiB")
    return _filled(spans, &sums) if sums.present else None


# Adds the pairs of maps from `i` on; returns the number of the first that is not plain.
cdef uint32_t _measure_from(_Spans spans, uint32_t i, shmq_pair_sums *sums) noexcept nogil:
    cdef shmq_pair_sums tried
    while i < spans.count:
        tried = sums[0]
        if not shmq_pairs_measure(&spans.at[i], &tried):
            break
        sums[0] = tried
        i += 1
    return i


cdef int _make_plain(_Spans spans, uint32_t i, plain, shmq_pair_sums *sums) except -1:
    cdef shmq_pair_sums tried = sums[0]
    spans.replace(i, plain(spans.packed(i), i))
    if not shmq_pairs_measure(&spans.at[i], &tried):
        raise ValueError(f"the map of row {i} is malformed")
    sums[0] = tried
    return 0


cdef Pairs _filled(_Spans spans, const shmq_pair_sums *sums):
    cdef Pairs made = Pairs.__new__(Pairs)
    cdef shmq_pair_arrays to
    made.count = <uint32_t>sums.pairs
    made.there = _bits(spans.count)
    to.there = <unsigned char *>PyBytes_AS_STRING(made.there)
    made.ends = _room(4 * (<uint64_t>spans.count + 1))
    to.ends = <int32_t *>PyBytes_AS_STRING(made.ends)
    made.key_ends = _room(4 * (sums.pairs + 1))
    to.key_ends = <int32_t *>PyBytes_AS_STRING(made.key_ends)
    made.keys = _room(sums.key_bytes)
    to.keys = <unsigned char *>PyBytes_AS_STRING(made.keys)
    made.value_ends = _room(4 * (sums.pairs + 1))
    to.values.ends = <int32_t *>PyBytes_AS_STRING(made.value_ends)
    made.values = _room(sums.value_bytes)
    to.values.bytes = <unsigned char *>PyBytes_AS_STRING(made.values)
    made.has_value = _bits(<uint32_t>sums.pairs)
    to.values.there = <unsigned char *>PyBytes_AS_STRING(made.has_value)
    with nogil:
        shmq_pairs_fill(spans.at, spans.count, &to)
    return made


cdef bytes _bits(uint32_t count):
    return bytes((count + 7) // 8)
