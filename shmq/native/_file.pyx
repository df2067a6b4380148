# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: annotation_typing=False
"""Walks through the records of a stream's segment files, as they lie.

``salts`` are the two that a file's records are sealed with: the file's own, of what frames
its commits, and the stream's, of the entries. Times are in ns since 1970.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, UINT64_MAX, int64_t, uint32_t, uint64_t


from core.base cimport cbool
from core.file cimport *

#: How a walk or a check ended: a place in it is what they return first.
HOW = ("end", "stop", "torn", "damaged")


def walk(data, uint64_t at, tuple salts: tuple[int, int], uint64_t offset=0,
         int64_t time=INT64_MIN, uint64_t stop_offset=UINT64_MAX, int64_t stop_time=INT64_MIN,
         uint64_t most_bytes=0, uint64_t most=0,
         bint verify=True) -> tuple[str, int, int, int, int]:
    """Pass whole records of the buffer ``data`` from the one ``at`` on.

    The first entry must have ``offset`` (0: any) and no time before ``time``. It stops at the
    entry that has ``stop_offset`` or begins behind it, if its time is not before
    ``stop_time``, and before the one that would make it more than ``most_bytes`` or ``most``
    offsets, once one was passed (0: no limit). Returns how it ended; where; the offset and
    the time of the entry it stopped at, or the next offset and the last time at the end; and
    how many offsets were passed.
    """
    cdef Py_buffer view
    cdef int how
    cdef shmq_stream_segment w
    cdef shmq_stream_segment_salts two
    two.file, two.entries = salts
    w.at, w.offset, w.time, w.records = at, offset, time, 0
    w.stop_offset, w.stop_time, w.most_bytes, w.most = stop_offset, stop_time, most_bytes, most
    w.verify = verify
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        how = shmq_stream_segment_walk(<const unsigned char *>view.buf, view.len, two, &w)
    PyBuffer_Release(&view)
    return HOW[how], w.at, w.offset, w.time, w.records


def find(data, uint64_t at, tuple salts: tuple[int, int], uint64_t offset, int64_t time,
         uint64_t stop_offset) -> tuple[int, int, int] | None:
    """The first whole entry from the byte ``at`` on, wherever it begins: where, offset, time.

    It is one that may come behind damage: it has ``offset`` or a later one before
    ``stop_offset``, and no time before ``time``. None: there is none.
    """
    cdef Py_buffer view
    cdef bint found
    cdef shmq_stream_segment w
    cdef shmq_stream_segment_salts two
    two.file, two.entries = salts
    w.at, w.offset, w.time, w.stop_offset = at, offset, time, stop_offset
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        found = shmq_stream_segment_find(<const unsigned char *>view.buf, view.len, two, &w)
    PyBuffer_Release(&view)
    return (w.at, w.offset, w.time) if found else None


def measure(data, uint64_t at, tuple salts: tuple[int, int], uint64_t offset,
            uint64_t stop_offset) -> int:
    """The bytes of the entries from ``offset`` on, which is ``at``, up to ``stop_offset``.

    Checksums are not compared; where something else stands there, of those before it.
    """
    cdef Py_buffer view
    cdef shmq_stream_segment w
    cdef shmq_stream_segment_salts two
    two.file, two.entries = salts
    w.at, w.offset, w.stop_offset, w.most_bytes, w.most = at, offset, stop_offset, 0, 0
    w.time = w.stop_time = INT64_MIN
    w.verify = False
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        shmq_stream_segment_walk(<const unsigned char *>view.buf, view.len, two, &w)
    PyBuffer_Release(&view)
    return w.bytes


def check(data, uint64_t start, tuple salts: tuple[int, int], uint64_t offset,
          int64_t time=INT64_MIN) -> tuple[str, int, int, int, int, int, int, int, bool]:
    """Read all commits of a file from ``start`` on, the first of which has ``offset``.

    Returns how it ended; where what is whole ends; the next offset, the last time; how many
    offsets and commits there are, the last commit's number; where the damage is; and whether
    the file is closed. It ends with "end", "torn" or "damaged".
    """
    cdef Py_buffer view
    cdef int how
    cdef shmq_stream_segment_whole w
    cdef shmq_stream_segment_salts two
    two.file, two.entries = salts
    w.offset, w.time = offset, time
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        how = shmq_stream_segment_check(<const unsigned char *>view.buf, view.len, start, two, &w)
    PyBuffer_Release(&view)
    return (HOW[how], w.end, w.offset, w.time, w.records, w.batches, w.last_batch, w.damage,
            w.closed)


def produced(data, uint64_t at, tuple salts: tuple[int, int], uint64_t offset, uint64_t until,
             dict found: dict[int, tuple[int, int, int]]) -> str:
    """Have ``found`` say of each producer which were its last records before ``until``.

    That is the sequence number and the offset of the first of them, and how many follow each
    other. The first entry has ``offset``. Returns how it ended: "end" or "damaged".
    """
    cdef Py_buffer view
    cdef int how = 1
    cdef shmq_stream_segment w
    cdef shmq_stream_segment_run run
    cdef shmq_stream_segment_salts two
    two.file, two.entries = salts
    w.at, w.offset, w.time, w.stop_offset, w.verify = at, offset, INT64_MIN, until, True
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while HOW[how] == "stop":
            with nogil:
                how = shmq_stream_segment_next_run(<const unsigned char *>view.buf, view.len, two, &w, &run)
            if run.count:
                found[run.producer] = _joined(found.get(run.producer), run)
    finally:
        PyBuffer_Release(&view)
    return HOW[how]


cdef tuple _joined(tuple known, shmq_stream_segment_run run):
    """The run, with the one before it if it goes on with that."""
    if known is not None:
        sequence, offset, count = known
        if sequence + count == run.sequence and offset + count == run.offset \
                and count + run.count <= UINT32_MAX:
            return sequence, offset, count + run.count
    return run.sequence, run.offset, run.count


def entries(data) -> bytes:
    """The entries alone of what a walk has passed: all other records are left out."""
    cdef Py_buffer view
    cdef bytes made
    cdef unsigned char *to
    cdef size_t size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        made = PyBytes_FromStringAndSize(NULL, view.len)
        to = <unsigned char *>PyBytes_AS_STRING(made)
        with nogil:
            size = shmq_stream_segment_entries(<const unsigned char *>view.buf, view.len, to)
    finally:
        PyBuffer_Release(&view)
    return made if size == <size_t>PyBytes_GET_SIZE(made) else made[:size]
