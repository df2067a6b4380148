# The end of a queue.

def mark_deleted(Segment segment, str not_empty, str not_full, str bells):
    """Refuse every operation on the queue from now on, and wake whoever waits.

    ``not_empty`` and ``not_full`` name its semaphores, ``bells`` begins the names of the
    namespace's bells.
    """
    cdef bytes stem = bells.encode()
    cdef shmq_queue q
    cdef uint32_t post[2]
    cdef uint32_t asleep[2]
    cdef int status = SHMQ_BUSY
    cdef sem_t *semaphore
    shmq_bind(&q, segment.base, segment.fd, &segment.geo)
    q.bells = PyBytes_AS_STRING(stem)
    while status == SHMQ_BUSY:
        with nogil:
            status = shmq_lock_even_deleted(&q, LOCK_SLICE)
        PyErr_CheckSignals()
    q.h.state = SHMQ_GONE
    shmq_mark()
    asleep[0], asleep[1] = q.h.asleep[0], q.h.asleep[1]
    if status == SHMQ_OK:
        shmq_unlock(&q, post)
    shmq_ring(&q)
    shmq_ring_synced(&q)
    shmq_wake_writer(&q)
    for bell, name in enumerate((not_empty, not_full)):
        raw = name.encode()
        semaphore = sem_open(raw, 0)
        if semaphore == SEM_FAILED:
            continue
        for _ in range(min(asleep[bell], 65536)):
            sem_post(semaphore)
        sem_close(semaphore)
