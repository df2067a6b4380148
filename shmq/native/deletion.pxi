# Deleting a queue.

def mark_deleted(Segment segment, str not_empty, str not_full, str bells):
    """Refuse every operation on the queue from now on, and wake all waiters.

    ``not_empty`` and ``not_full`` name its semaphores; ``bells`` is the prefix of the names of
    the namespace's wakeup semaphores. Raises LockTimeout; the queue is unchanged then.
    """
    cdef bytes stem = bells.encode()
    cdef shmq_queue q
    cdef uint32_t post[2]
    cdef uint32_t asleep[2]
    cdef int status = SHMQ_BUSY
    cdef int64_t waited = 0, slice_
    cdef sem_t *semaphore
    shmq_bind(&q, segment.base, segment.fd, &segment.geo)
    q.wakeup_prefix = PyBytes_AS_STRING(stem)
    while status == SHMQ_BUSY:
        slice_ = shmq_patience(waited, AT_ONCE, shmq_lock_holder(&q))
        if not slice_:
            raise _holders.lock_timeout(f"queue {(<bytes>q.h.options.name).decode()!r}",
                                        shmq_lock_holder(&q), waited / 1e9)
        with nogil:
            status = shmq_lock_even_deleted(&q, slice_)
        waited += slice_
        PyErr_CheckSignals()
    q.h.state = SHMQ_GONE
    shmq_mark()
    asleep[0], asleep[1] = q.h.asleep[0], q.h.asleep[1]
    if status == SHMQ_OK:
        shmq_unlock(&q, post)
    shmq_wake_parties(&q)
    shmq_wake_synced(&q)
    shmq_wake_writer(&q)
    for bell, name in enumerate((not_empty, not_full)):
        raw = name.encode()
        semaphore = sem_open(raw, 0)
        if semaphore == SEM_FAILED:
            continue
        for _ in range(min(asleep[bell], 65536)):
            sem_post(semaphore)
        sem_close(semaphore)
