# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: annotation_typing=False
"""Walks through the records of a stream's segment files, in their stored form.

``salts`` are the two salts of a file's checksums: the file's own, for the records that frame its
commits, and the stream's, for the entries. Times are in ns since 1970.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, UINT64_MAX, int64_t, uint32_t, uint64_t


from core cimport *
from system cimport *

import os as _os
from collections.abc import Callable
from typing import Any

#: How a walk or a check ended; it returns an index into this tuple first.
HOW = ("end", "stop", "torn", "damaged")


cdef enum:
    MOST_PIECES = 8
    # So many bytes are checked before progress is reported.
    REPORTED = 4 << 20


def write_synced(int file, list pieces: list[Any], int64_t offset) -> int:
    """Write the buffers one after the other, sync the file's data; returns where they end.

    Raises OSError, after which nothing is known about these bytes: FileNotFoundError if the file
    has no name any more. Without the GIL. At most 8 buffers.
    """
    cdef Py_buffer views[MOST_PIECES]
    cdef iovec vectors[MOST_PIECES]
    cdef int count = len(pieces), taken = 0, error
    cdef int64_t end = offset
    if count > MOST_PIECES:
        raise ValueError(f"{count} pieces of a commit: at most {MOST_PIECES} are written")
    try:
        for taken in range(count):
            PyObject_GetBuffer(pieces[taken], &views[taken], PyBUF_SIMPLE)
            vectors[taken].iov_base, vectors[taken].iov_len = views[taken].buf, views[taken].len
            end += views[taken].len
        taken = count
        with nogil:
            error = shmq_write_synced(file, vectors, count, offset)
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&views[taken])
    if error:
        raise OSError(error, _os.strerror(error))
    return end


def walk(data, uint64_t at, tuple salts: tuple[int, int], uint64_t offset=0,
         int64_t time=INT64_MIN, uint64_t stop_offset=UINT64_MAX, int64_t stop_time=INT64_MIN,
         uint64_t most_bytes=0, uint64_t most=0,
         bint verify=True) -> tuple[str, int, int, int, int]:
    """Pass over the whole records of the buffer ``data`` from the one at ``at`` on.

    The first entry must have ``offset`` (0: any), and a time not before ``time``. The walk stops
    at an entry whose offset is at or beyond ``stop_offset``, if its time is not before
    ``stop_time``. Once an entry was passed, it also stops before the one that would exceed
    ``most_bytes`` or ``most`` offsets (0: no limit). Returns how it ended; where; the offset and
    time of the entry it stopped at, or the next offset and the last time at the end; and the
    number of offsets passed.
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
    """The first whole entry from the byte ``at`` on, at any position: where, offset, time.

    It must be an entry that can follow damage: it has ``offset`` or a later one before
    ``stop_offset``, and no time before ``time``. None if there is none.
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
    """The bytes of the entries from ``offset``, which is at ``at``, up to ``stop_offset``.

    Checksums are not compared; entries count up to the first that is malformed.
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
          int64_t time=INT64_MIN, on_progress: Callable[[int], object] | None = None
          ) -> tuple[str, int, int, int, int, int, int, int, bool]:
    """Read all commits of a file from ``start`` on, the first of which has ``offset``.

    ``on_progress`` is called again and again with how many more bytes are read. Returns how it ended
    ("end", "torn" or "damaged"); the end of the whole part; the next offset and the last time; the
    number of offsets and of commits, and the last commit's number; where the damage is; and whether
    the file is closed.
    """
    cdef Py_buffer view
    cdef int how
    cdef uint64_t before = start
    cdef shmq_stream_segment_whole w
    cdef shmq_stream_segment_salts two
    two.file, two.entries = salts
    w.offset, w.time, w.most, w.more = offset, time, REPORTED, False
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            with nogil:
                how = shmq_stream_segment_check(<const unsigned char *>view.buf, view.len, start,
                                                two, &w)
            if on_progress is not None and w.end > before:
                on_progress(w.end - before)
                before = w.end
            if not w.more:
                break
    finally:
        PyBuffer_Release(&view)
    return (HOW[how], w.end, w.offset, w.time, w.records, w.batches, w.last_batch, w.damage,
            w.closed)


def produced(data, uint64_t at, tuple salts: tuple[int, int], uint64_t offset, uint64_t until,
             dict found: dict[int, tuple[int, int, int]]) -> str:
    """Collect in ``found`` the last records of each producer before ``until``.

    For each: the sequence number and the offset of the first of them, and how many are
    consecutive. The first entry has ``offset``. Returns how it ended: "end" or "damaged".
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
    """The run, merged with the one before it if it continues that."""
    if known is not None:
        sequence, offset, count = known
        if sequence + count == run.sequence and offset + count == run.offset \
                and count + run.count <= UINT32_MAX:
            return sequence, offset, count + run.count
    return run.sequence, run.offset, run.count


def entries(data) -> bytes:
    """The entries of the records that a walk has passed, without the records of other types."""
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
