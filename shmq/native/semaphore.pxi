# POSIX semaphores by name: filled and opened.
#
# A name with more than one slash is the path of a file that holds the semaphore: sem_open(3) knows
# only /dev/shm, where users of a group could not remove each other's.


def reserve_standard():
    """Occupy those of descriptors 0, 1 and 2 that are closed: see core/base/descriptor.h.

    Every function that opens a descriptor calls it before.
    """
    shmq_reserve_standard()


def fill_semaphore(int fd) -> None:
    """Make the new file ``fd`` a semaphore, at 0. Raises OSError, and NoSpace of a full /dev/shm."""
    _os.posix_fallocate(fd, 0, sizeof(sem_t))
    cdef void *base = mmap(NULL, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    if base == MAP_FAILED:
        raise _errors.not_mapped(errno, sizeof(sem_t))
    sem_init(<sem_t *>base, 1, 0)
    munmap(base, sizeof(sem_t))


cdef bint _is_in_file(bytes name) noexcept:
    return name.rfind(b"/") > 0


cdef sem_t *_open_semaphore(bytes name) noexcept:
    """The semaphore; SEM_FAILED with errno if it cannot be opened."""
    cdef void *base
    cdef int fd
    cdef bint whole
    shmq_reserve_standard()
    if not _is_in_file(name):
        return sem_open(name, 0)
    fd = c_open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
    if fd < 0:
        return SEM_FAILED
    whole = lseek(fd, 0, SEEK_END) >= <off_t>sizeof(sem_t)
    # Of a file that was cut off it is EINVAL: a look at the semaphore would be SIGBUS.
    base = mmap(NULL, sizeof(sem_t) if whole else 0, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    close(fd)
    return SEM_FAILED if base == MAP_FAILED else <sem_t *>base


cdef void _close_semaphore(sem_t *semaphore, bint in_file) noexcept nogil:
    if in_file:
        munmap(semaphore, sizeof(sem_t))
    else:
        sem_close(semaphore)
