/* The queue's lock: a robust, process-shared mutex. Whoever gets it from a dead holder
 * rebuilds the indexes from the slots before anything else (recover.c). */
#ifndef SHMQ_LOCK_H
#define SHMQ_LOCK_H

#include "queue.h"

int shmq_lock_init(struct shmq_header *h);

/* Takes the lock after spinning at most some microseconds: SHMQ_OK, SHMQ_BUSY,
 * SHMQ_DELETED (not held then), SHMQ_DAMAGED. */
int shmq_lock(struct shmq_queue *q);

/* The same, waiting up to `ns` in the kernel. To be called without the GIL. */
int shmq_lock_slowly(struct shmq_queue *q, int64_t ns);

/* As shmq_lock_slowly, but a deleted queue's lock is taken too: to detach. */
int shmq_lock_even_deleted(struct shmq_queue *q, int64_t ns);

/* Releases the lock. Afterwards `post[bell]` says how many sleepers are to be posted, and
 * q->ring which parties (shmq_ring). */
void shmq_unlock(struct shmq_queue *q, uint32_t post[2]);

#endif
