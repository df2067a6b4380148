/* Ringing: posts the bells of other processes, which are opened by name once and kept, as
 * many as there are places for. */
#ifndef SHMQ_QUEUE_WAKEUP_POST_H
#define SHMQ_QUEUE_WAKEUP_POST_H

#include <semaphore.h>

#include "queue/queue.h"

#define SHMQ_BELL_NAME 192 /* bytes */

/* Whether there is anybody to ring: one look at private memory. */
static inline bool shmq_must_ring(struct shmq_queue *q)
{
    return atomic_load_explicit(&q->ring, memory_order_relaxed) != 0;
}

/* Posts a bell unless it is posted already: its owner has not looked yet then, and will
 * look at everything. So a bell's value is one, and one more for each who posts it in the
 * same moment. What the owner is to find must have been stored before. */
void shmq_post_bell(sem_t *bell);

/* Rings the parties in q->ring. Without the lock. A bell that is not there was its dead
 * owner's. */
void shmq_ring(struct shmq_queue *q);

/* The name of bell `n` of process `process`. */
void shmq_bell_name(char name[SHMQ_BELL_NAME], const char *bells, uint64_t process, uint32_t n);

/* This process is a fork's child: a lock that a thread of the parent held is free here. */
void shmq_ring_forked(void);

#endif
