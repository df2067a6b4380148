/* The order of service: highest priority first, then lowest sequence number.
 *
 * A message that comes in this order, as every fresh put of its priority does, is appended to a
 * list; one that does not, because it was returned, delayed, or waited behind its group, goes into
 * a heap. The next message is the better of the two heads. */
#ifndef SHMQ_QUEUE_READY_ORDER_H
#define SHMQ_QUEUE_READY_ORDER_H

#include "queue/queue.h"

/* Ensures: the READY slot is in the order, and counted in header.ready. */
void shmq_order_insert(struct shmq_queue *q, struct shmq_slot *s);
void shmq_order_remove(struct shmq_queue *q, struct shmq_slot *s);

/* The next message, or SHMQ_NIL. */
uint32_t shmq_order_first(struct shmq_queue *q);

/* The message with the lowest sequence number of all priorities, or SHMQ_NIL. */
uint32_t shmq_order_oldest(struct shmq_queue *q);

#endif
