# POSIX semaphores by name: made and removed. Who sleeps on one opens it where it sleeps.


def reserve_standard():
    """Occupy those of descriptors 0, 1 and 2 that are closed: see core/base/descriptor.h.

    Every function that opens a descriptor calls it before.
    """
    shmq_reserve_standard()


def make_semaphore(name: str) -> bool:
    """Create the semaphore ``name``, at 0 and for this user only; False if it exists.

    Raises OSError.
    """
    cdef bytes raw = name.encode()
    cdef sem_t *semaphore
    shmq_reserve_standard()
    semaphore = sem_open(raw, O_CREAT | O_EXCL, <mode_t>0o600, <unsigned>0)
    if semaphore != SEM_FAILED:
        sem_close(semaphore)
        _os.chmod(f"/dev/shm/sem.{name.removeprefix('/')}", 0o600)  # whatever the umask
        return True
    if errno == EEXIST:
        return False
    raise OSError(errno, f"cannot make the semaphore {name}: {_os.strerror(errno)}")


def remove_semaphore(name: str) -> bool:
    """Remove the semaphore ``name``; False if there is none. Raises OSError."""
    cdef bytes raw = name.encode()
    if not sem_unlink(raw):
        return True
    if errno == ENOENT:
        return False
    raise OSError(errno, f"cannot remove the semaphore {name}: {_os.strerror(errno)}")
