# The end of a queue.

def mark_deleted(Segment segment, str not_empty, str not_full):
    """Refuse every operation on the queue from now on, and wake every sleeper.

    ``not_empty`` and ``not_full`` name its semaphores.
    """
    cdef shmq_queue q
    cdef uint32_t post[2]
    cdef uint32_t asleep[2]
    cdef int status = SHMQ_BUSY
    cdef sem_t *semaphore
    shmq_bind(&q, segment.base, segment.fd, &segment.geo)
    while status == SHMQ_BUSY:
        with nogil:
            status = shmq_lock_even_deleted(&q, LOCK_SLICE)
        PyErr_CheckSignals()
    q.h.state = SHMQ_GONE
    shmq_mark()
    asleep[0], asleep[1] = q.h.asleep[0], q.h.asleep[1]
    if status == SHMQ_OK:
        shmq_unlock(&q, post)
    for bell, name in enumerate((not_empty, not_full)):
        raw = name.encode()
        semaphore = sem_open(raw, 0)
        if semaphore == SEM_FAILED:
            continue
        for _ in range(min(asleep[bell], 65536)):
            sem_post(semaphore)
        sem_close(semaphore)
