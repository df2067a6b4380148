# A prepared message, and the result of its put.

@cython.freelist(64)
@cython.final
cdef class Put:
    """The result of a put: see :class:`shmq.api.Put`."""

    cdef readonly uint64_t sequence
    cdef readonly bint duplicate

    def __repr__(self):
        return f"Put(sequence={self.sequence}, duplicate={self.duplicate})"

    def __eq__(self, other):
        return (isinstance(other, Put) and self.sequence == other.sequence
                and self.duplicate == other.duplicate)

    def __hash__(self):
        return hash((self.sequence, self.duplicate))


cdef inline Put _new_put(uint64_t sequence, bint duplicate):
    cdef Put put = Put.__new__(Put)
    put.sequence = sequence
    put.duplicate = duplicate
    return put


# Hidden from the collector, which would clear a memoryview in `keep` that `buffer` still uses.
@cython.no_gc
cdef class PreparedPut:
    """A message ready for the core: body, properties and options."""

    cdef shmq_put c
    cdef Py_buffer buffer
    cdef bint held
    cdef object keep         # the owner of the memory that `buffer` and `c` point into
    cdef bytes meta
    cdef bytes tail
    cdef uint64_t dedupe[2]

    def __cinit__(self):
        memset(&self.c, 0, sizeof(shmq_put))
        self.held = False

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)

    cdef int _set_body(self, body) except -1:
        PyObject_GetBuffer(body, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.c.body = self.buffer.buf
        self.c.body_bytes = self.buffer.len
        return 0

    cdef int _set_meta(self, bytes meta) except -1:
        self.meta = meta
        self.c.meta = PyBytes_AS_STRING(meta)
        self.c.meta_bytes = <uint32_t>PyBytes_GET_SIZE(meta)
        return 0
