/* Making room in a full queue by dropping its oldest message, where that is its rule. */
#ifndef SHMQ_QUEUE_DROP_OLDEST_H
#define SHMQ_QUEUE_DROP_OLDEST_H

#include "queue/queue.h"

/* As shmq_slot_take; with overflow="drop-oldest", visible messages are dropped for it, but
 * none in vain. Holds the lock. */
int shmq_take_or_drop(struct shmq_queue *q, uint64_t bytes, uint32_t *at);

#endif
