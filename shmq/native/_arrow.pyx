# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: annotation_typing=False, embedsignature=False, freethreading_compatible=False
"""Conversion between messages, records and Arrow's columns.

See shmq/core/stream/columns.h, and base/map_columns.h and base/map_rows.h beside it.
"""

#| _Texts = tuple[Buffer | None, Buffer, Buffer | None, int]
#| _MapColumn = tuple[bytes | None, str, Any]

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from core cimport *
from system cimport *


@cython.final
cdef class RecordColumns:
    """Records as columns: buffers in Arrow's format, which numpy reads as well.

    Arrays of numbers have one element for each record, arrays of ends one more: value i goes from
    ``value_ends[i]`` to ``value_ends[i + 1]`` of ``values``, and so do keys and headers.
    """

    cdef readonly uint32_t count
    #: Offsets, and times in microseconds since 1970; both signed 64-bit.
    cdef readonly bytes offsets, timestamps
    #: The number of each codec, unsigned 8-bit.
    cdef readonly bytes codecs
    #: Signed 32-bit.
    cdef readonly bytes value_ends, key_ends, header_ends
    cdef readonly bytes values, keys
    #: For each record a msgpack map, or no bytes.
    cdef readonly bytes headers
    #: A bit for each record, the lowest first: whether it has a key; None if no record has one.
    #| has_key: bytes | None
    cdef readonly bytes has_key


def columns_of(const unsigned char[::1] block not None, uint64_t start,
               uint64_t end) -> RecordColumns | None:
    """The records of a block of entries, with offsets from ``start`` up to ``end``, as columns.

    None if some of them are compressed: these must be expanded first. Raises ValueError if the
    bytes are not entries, or the texts exceed 2 GiB.
    """
    cdef shmq_log_block b = shmq_log_block(NULL, block.shape[0], start, end)
    cdef shmq_log_sums sums
    cdef shmq_log_arrays to
    cdef cbool right
    if b.size:
        b.bytes = &block[0]
    if <uintptr_t>b.bytes % 8:
        raise ValueError("a block of entries begins at a multiple of 8")
    with nogil:
        right = shmq_log_measure(&b, &sums)
    if not right:
        raise ValueError(f"these {b.size} bytes are no block of entries, or too many for columns")
    if sums.compressed:
        return None
    made = _empty_columns(&sums, &to)
    with nogil:
        shmq_log_fill(&b, &to)
    return made


cdef RecordColumns _empty_columns(const shmq_log_sums *sums, shmq_log_arrays *to):
    cdef RecordColumns made = RecordColumns.__new__(RecordColumns)
    cdef uint64_t count = sums.count
    made.count = sums.count
    made.offsets = _room(8 * count)
    to.offsets = <int64_t *>PyBytes_AS_STRING(made.offsets)
    made.timestamps = _room(8 * count)
    to.timestamps = <int64_t *>PyBytes_AS_STRING(made.timestamps)
    made.codecs = _room(count)
    to.codecs = <unsigned char *>PyBytes_AS_STRING(made.codecs)
    made.value_ends = _room(4 * (count + 1))
    to.value_ends = <int32_t *>PyBytes_AS_STRING(made.value_ends)
    made.key_ends = _room(4 * (count + 1))
    to.key_ends = <int32_t *>PyBytes_AS_STRING(made.key_ends)
    made.header_ends = _room(4 * (count + 1))
    to.header_ends = <int32_t *>PyBytes_AS_STRING(made.header_ends)
    made.values = _room(sums.value_bytes)
    to.values = <unsigned char *>PyBytes_AS_STRING(made.values)
    made.keys = _room(sums.key_bytes)
    to.keys = <unsigned char *>PyBytes_AS_STRING(made.keys)
    made.headers = _room(sums.header_bytes)
    to.headers = <unsigned char *>PyBytes_AS_STRING(made.headers)
    bits = bytes((count + 7) // 8)
    to.has_key = <unsigned char *>PyBytes_AS_STRING(bits)
    made.has_key = bits if sums.keyed else None
    return made


cdef bytes _room(uint64_t size):
    return PyBytes_FromStringAndSize(NULL, size)


def pack_columns(values: _Texts, keys: _Texts | None, headers: _Texts | None, codec: int | Buffer,
                 uint32_t start, uint32_t end, *, uint64_t max_bytes=1 << 20) -> tuple[bytes, int]:
    """Pack rows from ``start`` up to ``end`` as a block for ``append_block``; also where it ended.

    Texts are (bits or None, ends, bytes, place of the first). Headers are a msgpack map for each
    row, or no bytes; ``codec`` is one number for all rows, or a byte for each. The block has at most ``max_bytes`` (1 MiB), or one row. Raises ValueError for
    ends that contradict their bytes.
    """
    cdef shmq_log_rows rows
    cdef uint32_t last = end
    cdef uint64_t size
    rows.codecs = NULL
    rows.codec = 0
    if isinstance(codec, int):
        rows.codec = codec
    else:
        rows.codecs = _numbers(codec, end)
    rows.values = _texts(values, end)
    rows.keys = _texts(keys, end)
    rows.headers = _texts(headers, end)
    size = shmq_log_packed(&rows, start, &last, max_bytes)
    if not size and start < end:
        raise ValueError("the ends of the rows contradict their bytes")
    block = _room(size)
    cdef unsigned char *to = <unsigned char *>PyBytes_AS_STRING(block)
    with nogil:
        shmq_log_pack(&rows, start, last, to)
    return block, last


cdef const unsigned char *_numbers(codecs, uint32_t count) except? NULL:
    cdef const unsigned char[::1] view = memoryview(codecs).cast("B")
    if <uint64_t>view.shape[0] < count:
        raise ValueError(f"{view.shape[0]} bytes are not the codec of each of {count} rows")
    return &view[0] if count else NULL


# Texts of Arrow's: the bits and the data may be absent, and the place of the first one is given.
cdef shmq_texts _texts(buffers, uint32_t count) except *:
    cdef shmq_texts texts
    cdef const unsigned char[::1] view
    memset(&texts, 0, sizeof(texts))
    if buffers is None:
        return texts
    there, ends, data, first = buffers
    texts.ends = _ends(ends, first, count)
    texts.there = _bits_of(there, first, count)
    if data is not None:
        view = memoryview(data).cast("B")
        texts.size = view.shape[0]
        if texts.size:
            texts.bytes = &view[0]
    return texts


# The ends of `count` items from the first on; NULL if no item exists.
cdef const int32_t *_ends(ends, uint64_t first, uint32_t count) except? NULL:
    cdef const unsigned char[::1] view
    if not count:
        return NULL
    view = memoryview(ends).cast("B")
    if <uint64_t>view.shape[0] // 4 < first + count + 1 or <uintptr_t>&view[0] % 4:
        raise ValueError(f"{view.shape[0]} bytes are no ends of {count} items from {first} on")
    return <const int32_t *>&view[0] + first


cdef shmq_bits _bits_of(there, uint64_t first, uint32_t count) except *:
    cdef const unsigned char[::1] view
    if there is None or not count:
        return shmq_bits(NULL, first)
    view = memoryview(there).cast("B")
    if <uint64_t>view.shape[0] < (first + count + 7) // 8:
        raise ValueError(f"{view.shape[0]} bytes are not a bit for each of {count} items from "
                         f"{first} on")
    return shmq_bits(&view[0], first)


include "map_columns.pxi"
include "map_rows.pxi"
