/* The rings between puts and gets, through which neither waits for the other's lock.
 *
 * Most puts need nothing that a get changes: they take a free slot, write it, and commit it as
 * READY. So they have a lock of their own, and two rings join the two sides:
 *
 *   inbox     puts ──► gets   committed messages that are in no index yet
 *   returned  gets ──► puts   freed slots, with their blocks
 *
 * The rings are derived, like every index: the slots say what is a message and what is free. A
 * process that holds both locks holds the whole queue (queue/lock.h), and empties the inbox first,
 * so that everything else works as if there were only one lock.
 *
 * The order is kept: the inbox holds only messages of the middle priority, in the order of their
 * sequence numbers, and every message in an index was put before every message in the inbox. So a
 * get looks into the inbox only when the order has no message of that priority.
 *
 * Free slots circulate in a ring rather than a stack: when a slot comes back to the puts, its cache
 * line has moved from the other core's cache to the shared one, and there is time to prefetch it.
 * */
#pragma once

#include "queue/message.h"
#include "queue/queue.h"

/* Whether the put can go through the inbox. Needs no lock. */
static inline bool shmq_is_plain(const struct shmq_queue *q, const struct shmq_put *put)
{
    return put->priority == q->middle && !put->group && !put->delay && !put->dedupe;
}

/* Puts one message: SHMQ_OK, or SHMQ_BUSY with nothing done if the put needs the whole queue, as
 * for a message with a group, a delay, a dedupe id or another priority, or if no free slot of
 * its size is at hand. Holds the put-side lock, or both. */
int shmq_quick_put(struct shmq_queue *q, const struct shmq_put *put, int64_t now, uint64_t *seq);

/* Ensures: up to `most` messages of the inbox, or all, are in the order. Holds the get-side
 * lock. */
void shmq_inbox_take(struct shmq_queue *q, uint32_t most);

/* Offers a FREE slot, in no list, to the puts: false if there is not enough room. Holds the get-side
 * lock. */
bool shmq_return_slot(struct shmq_queue *q, const struct shmq_slot *s, uint32_t class);

/* Ensures: the returned slots are among the spare slots. Holds both locks. */
void shmq_collect_returned(struct shmq_queue *q);

/* Ensures: both rings and the spare slots are empty. Holds both locks. */
void shmq_put_ring_clear(struct shmq_header *h);
