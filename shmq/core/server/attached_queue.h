/* Attached queues: the queues that an engine has attached to, their locks, and the deferred work
 * for a queue whose lock was not free. */
#ifndef SHMQ_SERVER_ATTACHED_QUEUE_H
#define SHMQ_SERVER_ATTACHED_QUEUE_H

#include "server/server.h"

/* ---- the lock ---- */

/* Takes the get side or the whole queue: SHMQ_OK, or the error. SHMQ_BUSY: another process holds
 * the lock for longer than this thread may wait. That is remembered: until the lock is free,
 * later attempts return at once, and each tick tries again. */
int shmq_attached_queue_lock(struct shmq_attached_queue *attached_queue, bool whole);

/* Whether a request may still wait for the lock: only for a limited time. */
bool shmq_attached_queue_is_awaited(const struct shmq_attached_queue *attached_queue);

/* Defers the operation, for want of the lock, to a later tick. */
void shmq_attached_queue_owe(struct shmq_attached_queue *attached_queue, enum shmq_deed deed,
                             uint64_t what);

/* Has a tick look at it soon. */
void shmq_attached_queue_later(struct shmq_attached_queue *attached_queue);

/* Does the deferred work: whether the lock was free, or the work is obsolete. */
bool shmq_attached_queue_do_owed(struct shmq_attached_queue *attached_queue);

/* Releases the lock, and wakes the sleepers for which there is something. */
void shmq_attached_queue_unlock(struct shmq_attached_queue *attached_queue);

/* The same for the put-side lock. */
void shmq_attached_queue_unlock_puts(struct shmq_attached_queue *attached_queue);

/* Reclaims what dead processes hold, and the like, unless that was done a moment ago; whether it
 * was done now. */
bool shmq_attached_queue_tend(struct shmq_attached_queue *attached_queue);

/* ---- references ---- */

/* Has its waiters served at the end of the request. */
void shmq_attached_queue_touch(struct shmq_attached_queue *attached_queue);

/* Drops one reference to it. */
void shmq_attached_queue_release(struct shmq_attached_queue *attached_queue);

/* An outgoing body was sent, or never will be: unpins it. */
void shmq_outgoing_body_gone(struct shmq_outgoing_body *outgoing_body);

#endif
