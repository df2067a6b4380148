/* Posting the wakeups of other processes. A process opens each of them once by its name, and
 * keeps a limited number of them open. */
#ifndef SHMQ_QUEUE_WAKEUP_POST_H
#define SHMQ_QUEUE_WAKEUP_POST_H

#include <semaphore.h>

#include "queue/queue.h"

#define SHMQ_WAKEUP_NAME 192 /* bytes */

/* Whether the last critical section selected parties to wake: one read of private memory. */
static inline bool shmq_must_wake(struct shmq_queue *q)
{
    return atomic_load_explicit(&q->to_wake, memory_order_relaxed) != 0;
}

/* Posts a wakeup unless it is posted already: then its owner has not looked yet, and will look at
 * everything. So the semaphore's value is one, plus one for each process that posts at the same
 * moment. The caller stores what the owner must find before the call. */
void shmq_post_wakeup(sem_t *wakeup);

/* Wakes the parties in q->to_wake. Without the lock. Skips a wakeup that is gone: it belonged to a
 * process that died. */
void shmq_wake_parties(struct shmq_queue *q);

/* The name of wakeup `n` of process `process`. */
void shmq_wakeup_name(char name[SHMQ_WAKEUP_NAME], const char *prefix, uint64_t process,
                      uint32_t n);

/* Tells this module that the process is a forked child: a lock that a thread of the parent held is
 * free here. */
void shmq_wakeups_forked(void);

#endif
