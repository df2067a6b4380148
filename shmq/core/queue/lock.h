/* The queue's two locks: robust, process-shared mutexes. A process that gets one from a dead
 * holder has the indexes rebuilt from the slots before anything else (recover.c).
 *
 *   lock       leases, settlements, every index: the side of the gets
 *   put_lock   sequence numbers, the spare slots: the side of the puts
 *
 * Leases and settlements take the first alone, and the usual put the second alone; all
 * else takes both, in this order, and then has the whole queue, the inbox emptied. So do
 * they all before they say that a queue is empty or full, and before they sleep. */
#ifndef SHMQ_QUEUE_LOCK_H
#define SHMQ_QUEUE_LOCK_H

#include "queue/queue.h"

int shmq_lock_init(struct shmq_header *h);

/* Takes the whole queue after spinning at most some microseconds: SHMQ_OK, SHMQ_BUSY,
 * SHMQ_DELETED (not held then), SHMQ_DAMAGED. */
int shmq_lock(struct shmq_queue *q);

/* The same, waiting up to `ns` in the kernel. To be called without the GIL. A thread that has
 * waited in vain for 1 ms or more has looked at the holder: SHMQ_BUSY is of one that may be inside,
 * and one that is not was taken over from. Damaged locks are SHMQ_DAMAGED. */
int shmq_lock_slowly(struct shmq_queue *q, int64_t ns);

/* As shmq_lock_slowly, but a deleted queue's lock is taken too: to detach. */
int shmq_lock_even_deleted(struct shmq_queue *q, int64_t ns);

/* The thread that keeps the caller of those from the lock, that which stands still of two; 0:
 * nobody any more. */
uint32_t shmq_lock_holder(const struct shmq_queue *q);

/* Takes the side of the gets, for a lease or a settlement. As shmq_lock. */
int shmq_lock_gets(struct shmq_queue *q);

/* Releases what shmq_lock, shmq_lock_gets and the like took. Afterwards `post[event]` says
 * how many sleepers are to be posted, and q->to_wake which parties (shmq_wake_parties). */
void shmq_unlock(struct shmq_queue *q, uint32_t post[2]);

/* Takes the side of the puts, for shmq_quick_put: SHMQ_OK, or SHMQ_BUSY, whatever the
 * reason: shmq_lock says it. */
int shmq_lock_puts(struct shmq_queue *q);

/* Releases it. True if there are sleepers that the messages should wake: the caller then
 * takes the whole queue and releases it, which does. */
bool shmq_unlock_puts(struct shmq_queue *q);

#endif
