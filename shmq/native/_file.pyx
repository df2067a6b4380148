# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Walks through the records of a stream's segment files: see _file.pyi and core/file/stream_segment.h."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, UINT64_MAX, int64_t, uint32_t, uint64_t


from core.base cimport cbool
from core.file cimport *

#: How a walk or a check ended: a place in it is what they return first.
HOW = ("end", "stop", "torn", "damaged")


def walk(data, uint64_t at, tuple salts, uint64_t offset=0, int64_t time=INT64_MIN,
         uint64_t stop_offset=UINT64_MAX, int64_t stop_time=INT64_MIN, uint64_t most_bytes=0,
         uint64_t most=0, bint verify=True):
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


def find(data, uint64_t at, tuple salts, uint64_t offset, int64_t time, uint64_t stop_offset):
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


def measure(data, uint64_t at, tuple salts, uint64_t offset, uint64_t stop_offset):
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


def check(data, uint64_t start, tuple salts, uint64_t offset, int64_t time=INT64_MIN):
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


def produced(data, uint64_t at, tuple salts, uint64_t offset, uint64_t until, dict found):
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


def entries(data):
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
