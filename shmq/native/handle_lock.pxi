# Locking the queue of a handle. A thread that waits for the lock does so without the GIL.


# For an operation without a timeout.
cdef inline int _lock(Handle handle) except -1:
    return _lock_by(handle, AT_ONCE)


cdef inline int _lock_by(Handle handle, int64_t until) except -1:
    cdef int status
    if not handle.open_ or handle.generation != fork_generation:
        handle._reopen()
    status = shmq_lock(&handle.q)
    if status != SHMQ_OK:
        _lock_slowly(handle, status, until)
    return 0


# Locks only the get side: for leases and settlements.
cdef inline int _lock_gets(Handle handle) except -1:
    cdef int status
    if not handle.open_ or handle.generation != fork_generation:
        handle._reopen()
    status = shmq_lock_gets(&handle.q)
    if status != SHMQ_OK:
        _lock_slowly(handle, status, AT_ONCE)
    return 0


# For an operation with a timeout: locks the whole queue, or only the get side. `until`: see
# _end_of.
cdef inline int _lock_until(Handle handle, bint whole, int event, block, timeout,
                            int64_t *until) except -1:
    cdef int status
    if not handle.open_ or handle.generation != fork_generation:
        handle._reopen()
    status = shmq_lock(&handle.q) if whole else shmq_lock_gets(&handle.q)
    if status != SHMQ_OK:
        _lock_slowly(handle, status, _end_of(handle, event, block, timeout, until))
    return 0


# Waits without the GIL until the lock is free, then tries to take it with the GIL: the holder
# of the lock must never wait for the GIL, which could take long. If other processes are
# quicker each time, this thread finally keeps the lock; if no other thread can hold the GIL, it
# keeps it at once. Raises LockTimeout at the operation's deadline, see
# shmq/core/base/mutex.h.
cdef int _lock_slowly(Handle handle, int status, int64_t until) except -1:
    cdef int64_t waited = 0, slice_
    cdef int tries = 0, patience
    if status == SHMQ_UNREGISTERED:
        handle._process_number()
        status = shmq_lock(&handle.q)
    while status == SHMQ_BUSY:
        slice_ = shmq_patience(waited, until, handle.q.self, shmq_lock_holder(&handle.q))
        if not slice_:
            raise _locked_out(handle, waited)
        tries += 1
        patience = PATIENCE if _has_threads() else 0
        with nogil:
            status = shmq_lock_slowly(&handle.q, slice_)
            if status == SHMQ_BUSY:
                waited += slice_
            elif status == SHMQ_OK and tries < patience:
                _unlock(handle)
                status = SHMQ_BUSY
        if status == SHMQ_BUSY:
            PyErr_CheckSignals()
            status = shmq_lock(&handle.q)
    if status != SHMQ_OK:
        raise _error(handle, status)
    if not handle.open_:  # another thread has closed it in the meantime
        _unlock(handle)
        raise _closed_error(handle)
    return 0


cdef inline void _unlock(Handle handle) noexcept nogil:
    cdef uint32_t post[2]
    shmq_unlock(&handle.q, post)
    if post[0] or post[1]:
        shmq_post(handle.semaphores, post)
    if shmq_must_wake(&handle.q):
        shmq_wake_parties(&handle.q)


# Wakes sleepers that should be awake, after a put that is done: so it neither raises nor looks
# at signals. If the lock is not to be had, a sleeper sleeps up to one slice longer.
cdef void _rouse(Handle handle) noexcept:
    if shmq_lock(&handle.q) == SHMQ_OK:
        _unlock(handle)
        return
    with nogil:
        if _lock_to_end(handle):
            _unlock(handle)


# Takes the lock to release something, even that of a deleted queue. Returns whether it was
# taken; if not, what is left is reclaimed with the handle or the process, unless it is disowned.
cdef bint _lock_to_end(Handle handle) noexcept nogil:
    cdef int64_t waited = 0, slice_
    cdef int status = SHMQ_BUSY
    if handle.q.attachment == SHMQ_NIL:
        return False
    while status == SHMQ_BUSY:
        slice_ = shmq_patience(waited, AT_ONCE, handle.q.self, shmq_lock_holder(&handle.q))
        if not slice_:
            return False
        status = shmq_lock_even_deleted(&handle.q, slice_)
        waited += slice_
    return status == SHMQ_OK
