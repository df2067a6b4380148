/* What passes between the puts and the gets without either waiting for the other's lock.
 *
 * Most puts need nothing that a get changes: they take a free slot, write it, and commit
 * it as READY. So they have a lock of their own, and two rings join the two sides:
 *
 *   inbox     puts ──► gets   messages that are committed and in no index yet
 *   returned  gets ──► puts   slots that were set free, with their blocks
 *
 * The rings are derived, like every index: the slots say what is a message and what is
 * free. A process that holds both locks holds the queue as a whole (queue/lock.h), and begins by
 * emptying the inbox, so that all else stands as if there were one lock only.
 *
 * The order is kept: the inbox holds messages of the middle priority alone, in the order
 * of their sequence numbers, and all that is in an index was put before all that is in
 * the inbox. So a get looks into it only when the order has none of that priority.
 *
 * Free slots go round in a ring, not through a stack: a slot comes back to the puts when
 * its line has left the other core's cache for the one that they share, and early enough
 * to be fetched ahead. */
#ifndef SHMQ_QUEUE_PUT_RING_H
#define SHMQ_QUEUE_PUT_RING_H

#include "queue/message.h"
#include "queue/queue.h"

/* Whether the put is of the kind that goes this way. Needs no lock. */
static inline bool shmq_is_plain(const struct shmq_queue *q, const struct shmq_put *put)
{
    return put->priority == q->middle && !put->group && !put->delay && !put->dedupe;
}

/* The time of such a put: of one that sets a timer, the exact one. Needs no lock. */
static inline int64_t shmq_put_time(const struct shmq_queue *q, const struct shmq_put *put)
{
    return put->ttl > 0 || q->h->options.ttl ? shmq_now() : shmq_time(q);
}

/* Puts one message: SHMQ_OK, or SHMQ_BUSY with nothing done if it takes the whole queue, as
 * for a message with a group, a delay, a dedupe id or another priority, or where no free
 * slot of its size is at hand. Holds the lock of the puts, or both. */
int shmq_quick_put(struct shmq_queue *q, const struct shmq_put *put, int64_t now, uint64_t *seq);

/* Ensures: up to `most` messages of the inbox are in the order, or all. Holds the lock of
 * the gets. */
void shmq_inbox_take(struct shmq_queue *q, uint32_t most);

/* Offers a FREE slot, in no list, to the puts: false if there is no room. Holds the lock
 * of the gets. */
bool shmq_return_slot(struct shmq_queue *q, const struct shmq_slot *s, uint32_t class);

/* Ensures: what was returned is among the spare slots. Holds both locks. */
void shmq_collect_returned(struct shmq_queue *q);

/* Ensures: both rings and the spare slots are empty. Holds both locks. */
void shmq_exchange_clear(struct shmq_header *h);

#endif
