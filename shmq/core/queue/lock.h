/* The queue's two locks (base/mutex.h). A process that takes one over from a dead holder first
 * rebuilds the indexes from the slots (recover.c).
 *
 *   lock       the get side: leases, settlements, every index
 *   put_lock   the put side: sequence numbers, the spare slots
 *
 * Leases and settlements take only the first, and the usual put only the second. Everything else
 * takes both, in this order, and then holds the whole queue with the inbox emptied. An operation
 * also takes both before it reports that a queue is empty or full, and before it sleeps. */
#pragma once

#include "queue/queue.h"

/* Takes the whole queue, after spinning for at most a few microseconds: SHMQ_OK, SHMQ_BUSY,
 * SHMQ_DELETED (the lock is not held then), SHMQ_DAMAGED, SHMQ_UNREGISTERED. */
int shmq_lock(struct shmq_queue *q);

/* The same, waiting up to `ns` in the kernel. Call it without the GIL. A wait of 1 ms or more that
 * fails has examined the holder, and so has one of 0, which does not wait: SHMQ_BUSY means that it
 * may be inside; from one that died, the lock is taken over. */
int shmq_lock_slowly(struct shmq_queue *q, int64_t ns);

/* As shmq_lock_slowly, but also takes a deleted queue's lock: to detach. */
int shmq_lock_even_deleted(struct shmq_queue *q, int64_t ns);

/* The number of the process that holds the lock that the caller wants; of two, of the one that is
 * not running; 0 if none does any more. */
uint64_t shmq_lock_holder(const struct shmq_queue *q);

/* Takes the get side, for a lease or a settlement. Otherwise as shmq_lock. */
int shmq_lock_gets(struct shmq_queue *q);

/* Releases what shmq_lock, shmq_lock_gets and the like took. Sets `post[event]` to the number of
 * sleepers to wake, and q->to_wake to the parties to wake (shmq_wake_parties). */
void shmq_unlock(struct shmq_queue *q, uint32_t post[2]);

/* The same for a caller that has only looked: wakes no sleeper and counts none as woken. A process
 * that makes something available does that. */
void shmq_unlock_unchanged(struct shmq_queue *q);

/* Takes the put side, for shmq_quick_put: SHMQ_OK, or SHMQ_BUSY for any reason; shmq_lock tells
 * which. */
int shmq_lock_puts(struct shmq_queue *q);

/* Releases the put side. True if the messages should wake sleepers: the caller must then take and
 * release the whole queue, which wakes them. */
bool shmq_unlock_puts(struct shmq_queue *q);
