/* Everything that happens at a time: leases that end, delays and ttls.
 *
 * Leases begun in the order of their ends are a list, all other times a heap. There is
 * no timer process: each operation on the queue does what is due, after one look at
 * header.next_tick. */
#ifndef SHMQ_QUEUE_TIMER_H
#define SHMQ_QUEUE_TIMER_H

#include "queue/queue.h"

/* When a slot in the timer heap is due, by its state. */
int64_t shmq_due_of(const struct shmq_slot *s);

/* The lease runs until s->deadline. */
void shmq_timer_lease(struct shmq_queue *q, struct shmq_slot *s);
/* The same of a lease that is not as long as the others: not among them, as one long lease at
 * their end would keep all that follow out of their order. */
void shmq_timer_alone(struct shmq_queue *q, struct shmq_slot *s);
void shmq_timer_unlease(struct shmq_queue *q, struct shmq_slot *s);

/* A DELAYED slot, or a READY one with a ttl, gets or loses its timer. */
void shmq_timer_set(struct shmq_queue *q, struct shmq_slot *s);
void shmq_timer_unset(struct shmq_queue *q, struct shmq_slot *s);

/* Does what is due, at most some thousand things at once. */
void shmq_tick(struct shmq_queue *q, int64_t now);

/* The earliest time at which something is due. */
int64_t shmq_next_due(struct shmq_queue *q);

#endif
