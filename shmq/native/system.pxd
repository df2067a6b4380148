# The system calls and the interpreter's functions that Cython does not declare.

from libc.stdint cimport uint32_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.time cimport CLOCK_MONOTONIC
from posix.uio cimport iovec


cdef extern from "<stdbool.h>":
    ctypedef bint cbool "bool"


cdef extern from "Python.h":
    ctypedef struct PyInterpreterState:
        pass
    ctypedef struct PyThreadState:
        pass
    PyInterpreterState *PyInterpreterState_Get()
    PyThreadState *PyInterpreterState_ThreadHead(PyInterpreterState *interpreter)
    PyThreadState *PyThreadState_Next(PyThreadState *thread)


cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    sem_t *SEM_FAILED
    sem_t *sem_open(const char *name, int flags, ...)
    int sem_init(sem_t *semaphore, int shared, unsigned value)
    int sem_close(sem_t *semaphore)
    int sem_post(sem_t *semaphore)
    int sem_trywait(sem_t *semaphore)
    int sem_getvalue(sem_t *semaphore, int *value)


cdef extern from "<sys/file.h>" nogil:
    enum:
        LOCK_EX
        LOCK_NB
        LOCK_UN
    int flock(int fd, int operation)


cdef extern from "<fcntl.h>" nogil:
    enum: O_CLOEXEC, O_NOFOLLOW
    int c_open "open"(const char *path, int flags, ...)


cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT, MSG_NOSIGNAL
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)
    ssize_t c_recv "recv"(int fd, void *data, size_t size, int flags)


cdef extern from "<poll.h>" nogil:
    enum: POLLIN, POLLOUT, POLLHUP, POLLERR
    struct pollfd:
        int fd
        short events, revents
    int c_poll "poll"(pollfd *fds, unsigned long count, int timeout)


cdef extern from "<sys/inotify.h>" nogil:
    enum: IN_CLOEXEC, IN_NONBLOCK, IN_CLOSE_WRITE, IN_CREATE, IN_DELETE, IN_MOVED_TO
    int inotify_init1(int flags)
    int inotify_add_watch(int fd, const char *path, uint32_t mask)


cdef extern from "<sys/eventfd.h>" nogil:
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    int c_eventfd "eventfd"(unsigned int count, int flags)
