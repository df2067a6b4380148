# The holder of a pin: the object behind msg.view and a loan's view.

@cython.final
cdef class View:
    """Bytes of a queue's arena, pinned until the last memoryview of them is gone."""

    cdef Handle handle
    cdef void *place
    cdef Py_ssize_t size
    cdef uint32_t at
    cdef uint64_t generation
    cdef bint writable

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.place, self.size, not self.writable, flags)

    def __dealloc__(self):
        if self.handle is not None:
            self.handle._unpin(self.at, self.generation)


# Another pin on bytes that the message pins already.
cdef View _new_view(Message message):
    cdef shmq_view view
    cdef View holder = View.__new__(View)
    cdef Handle handle = message.handle
    cdef int status = SHMQ_BUSY
    while status == SHMQ_BUSY:
        with nogil:
            status = shmq_lock_even_deleted(&handle.q, LOCK_SLICE)
    if status != SHMQ_OK:
        raise handle._error(status)
    status = shmq_pin_at(&handle.q, message.at, message.sequence, &view)
    if status == SHMQ_OK:
        handle.views += 1
    handle._unlock()
    if status != SHMQ_OK:
        raise _errors.ShmqError(f"message {message.sequence} has as many views as it can have")
    holder.handle = handle
    holder.place = <void *>message.place
    holder.size = message.size
    holder.at = message.at
    holder.generation = fork_generation
    return holder
