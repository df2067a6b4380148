/* Attached queues: the queues that an engine has attached to, their locks, and what is owed to a
 * queue whose lock could not be had. */
#ifndef SHMQ_SERVER_ATTACHED_QUEUE_H
#define SHMQ_SERVER_ATTACHED_QUEUE_H

#include "server/server.h"

/* ---- the lock ---- */

/* The side of the gets, or the whole queue: SHMQ_OK, or why not. SHMQ_BUSY: somebody holds it
 * for longer than this thread may wait. That is remembered: until it is free, later attempts
 * return at once, and each tick tries again. */
int shmq_attached_queue_lock(struct shmq_attached_queue *attached_queue, bool whole);

/* Whether a request may wait for the lock that could not be had: not for too long. */
bool shmq_attached_queue_is_awaited(const struct shmq_attached_queue *attached_queue);

/* The lock could not be had: that is done to the queue at a later tick. */
void shmq_attached_queue_owe(struct shmq_attached_queue *attached_queue, enum shmq_deed deed,
                             uint64_t what);

/* A tick is to look at it soon. */
void shmq_attached_queue_later(struct shmq_attached_queue *attached_queue);

/* Does what is owed: whether the lock could be had, or is of no use any more. */
bool shmq_attached_queue_do_owed(struct shmq_attached_queue *attached_queue);

/* Releases the lock, and wakes the sleepers that there is something for. */
void shmq_attached_queue_unlock(struct shmq_attached_queue *attached_queue);

/* The same for the lock of the puts. */
void shmq_attached_queue_unlock_puts(struct shmq_attached_queue *attached_queue);

/* Looks for what dead processes hold, and the like, unless that was done a moment ago:
 * whether it was now. */
bool shmq_attached_queue_tend(struct shmq_attached_queue *attached_queue);

/* ---- coming and going ---- */

/* At the end of the request, its waiters are to be looked after. */
void shmq_attached_queue_touch(struct shmq_attached_queue *attached_queue);

/* One who used it is gone. */
void shmq_attached_queue_release(struct shmq_attached_queue *attached_queue);

/* An outgoing body has gone, or will never go: its body is unpinned. */
void shmq_outgoing_body_gone(struct shmq_outgoing_body *outgoing_body);

#endif
