/* Everything that happens at a time: the ends of leases, delays and ttls.
 *
 * Leases that were begun in the order of their ends are in a list, all other times in a heap. There
 * is no timer process: each operation on the queue does what is due, after one look at
 * header.next_tick. */
#ifndef SHMQ_QUEUE_TIMER_H
#define SHMQ_QUEUE_TIMER_H

#include "queue/queue.h"

/* When a slot in the timer heap is due, by its state. */
int64_t shmq_due_of(const struct shmq_slot *s);

/* The lease runs until s->deadline. */
void shmq_timer_lease(struct shmq_queue *q, struct shmq_slot *s);
/* The same for a lease of another length than the usual: it is not in the list, because one long
 * lease at its end would keep all later leases out of the list's order. */
void shmq_timer_alone(struct shmq_queue *q, struct shmq_slot *s);
void shmq_timer_unlease(struct shmq_queue *q, struct shmq_slot *s);

/* Sets or removes the timer of a DELAYED slot, or of a READY one with a ttl. */
void shmq_timer_set(struct shmq_queue *q, struct shmq_slot *s);
void shmq_timer_unset(struct shmq_queue *q, struct shmq_slot *s);

/* Does what is due, at most some thousand things in one call. */
void shmq_tick(struct shmq_queue *q, int64_t now);

/* The earliest time at which something is due. */
int64_t shmq_next_due(struct shmq_queue *q);

#endif
