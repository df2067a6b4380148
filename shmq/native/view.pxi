# The object that holds a pin: the owner of msg.view and of a loan's view.

@cython.no_gc_clear
@cython.final
cdef class View:
    """Bytes of a queue's arena, pinned until the last memoryview of them is gone."""

    cdef _Attachment handle
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


# Takes over a pin that the caller has just taken.
cdef View _new_view(_Attachment handle, const shmq_view *view):
    cdef View holder = View.__new__(View)
    _hold(holder, handle, view)
    return holder


cdef void _hold(View holder, _Attachment handle, const shmq_view *view) noexcept:
    holder.handle = handle
    holder.place = <void *>view.body
    holder.size = view.body_bytes
    holder.at = view.at
    holder.generation = fork_generation
