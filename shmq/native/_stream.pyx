# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: annotation_typing=False, embedsignature=False, freethreading_compatible=False
"""Streams in shared memory, their partitions and their records.

An append holds the partition's lock only in plain C, where no Python object is made and no
signal handler runs. Readers take no lock.
"""

#| _Key = bytes | str | None

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.memoryview cimport PyMemoryView_GET_BUFFER, PyMemoryView_GetContiguous
from cpython.number cimport PyNumber_Index
from cpython.object cimport Py_SIZE, PyObject
from cpython.ref cimport Py_INCREF
from cpython.sequence cimport PySequence_Fast_ITEMS
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.types cimport pid_t
from posix.unistd cimport close, getpid

from core cimport *
from system cimport *

import binascii as _binascii
import bisect as _bisect
import os as _os
import time as _time
from collections.abc import Sequence as _Sequence

from shmq import errors as _errors
from shmq.native import lock_holder as _holders
from shmq.native._core import check_timeout as _check_timeout
from shmq.native._core import plain_number as _plain_number

include "base.pxi"
include "mapped_file.pxi"
include "_stream_segment.pxi"
include "_stream_record.pxi"
include "_stream_block.pxi"
include "_stream_items.pxi"
include "_stream_partition.pxi"
include "_stream_stream.pxi"
include "_stream_loan.pxi"
