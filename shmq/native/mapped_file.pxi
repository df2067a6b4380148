# A mapped file of shared memory.

cdef object _no_space(int fd, uint64_t wanted):
    space = _os.fstatvfs(fd)
    return _errors.NoSpace(
        f"/dev/shm is full: {wanted} bytes wanted, {space.f_bavail * space.f_frsize} available; "
        f"purge or delete queues or streams, or give it more room (in a container: --shm-size)"
    )


cdef class MappedFile:
    """A mapped file of shared memory. It lives as long as anything points into it."""

    cdef void *base
    cdef size_t size
    cdef readonly int fd

    def __cinit__(self):
        self.base = NULL
        self.fd = -1

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.size)
        if self.fd >= 0:
            close(self.fd)  # not os.close: at interpreter exit the module may be gone already

    cdef int _map(self, size_t size) except -1:
        cdef void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if base == MAP_FAILED:
            raise _errors.not_mapped(errno, size)
        self.base = base
        self.size = size
        return 0
