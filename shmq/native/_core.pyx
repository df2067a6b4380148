# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: annotation_typing=False, embedsignature=False, freethreading_compatible=False
"""Queues, the server's sessions and the client's connections: the binding of the C core.

A critical section is plain C between `_lock` and `_unlock`. It makes no Python object and keeps
the GIL, so no other thread of the process can interrupt it, no exception can leave it, and no
signal handler runs in it.

Classes whose deallocation touches shared memory are `no_gc_clear`: the collector must not clear
their reference to the handle, or the handle's to the mapping, before they are deallocated.
"""

#| _StagedRow = bytes | tuple[bytes, dict[str, Any]]
#| _Row = tuple[int, int, bytes, bytes, int, int, int, int, float, bool]

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM
from cpython.number cimport PyNumber_Index
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.errno cimport EAGAIN, EINTR, ENOENT, errno
from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, ceil
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strlen
from posix.fcntl cimport O_RDWR
from posix.types cimport off_t
from posix.unistd cimport SEEK_END, close, lseek, read, write

from core cimport *
from system cimport *

import array as _array
import numbers as _numbers
import os as _os
import sys as _sys
import threading as _threading
import time as _time
import typing as _typing
import warnings as _warnings
import weakref as _weakref
from _thread import allocate_lock as _allocate_lock
from collections.abc import Mapping as _Mapping

from shmq import errors as _errors
from shmq.display import as_html as _as_html, sample as _sample
from shmq.native import lock_holder as _holders

include "base.pxi"
include "mapped_file.pxi"
include "process.pxi"
include "semaphore.pxi"
include "segment.pxi"
include "common.pxi"
include "wait.pxi"
include "handle_put.pxi"
include "handle.pxi"
include "handle_errors.pxi"
include "handle_lock.pxi"
include "handle_wait.pxi"
include "wait_set.pxi"
include "properties.pxi"
include "put.pxi"
include "get.pxi"
include "settle.pxi"
include "bulk.pxi"
include "transfer.pxi"
include "inspection.pxi"
include "message.pxi"
include "batch.pxi"
include "consumer.pxi"
include "journal.pxi"
include "journal_record.pxi"
include "journal_scan.pxi"
include "journal_replay.pxi"
include "server.pxi"
include "remote_message.pxi"
include "client_answer.pxi"
include "client_connection.pxi"
include "client_frames.pxi"
include "client_waiting.pxi"
include "client_socket.pxi"
