/* Making room in a full queue by dropping its oldest messages, for overflow="drop-oldest". */
#ifndef SHMQ_QUEUE_DROP_OLDEST_H
#define SHMQ_QUEUE_DROP_OLDEST_H

#include "queue/queue.h"

/* As shmq_slot_take, but with overflow="drop-oldest" it drops visible messages to make room; it
 * drops none unless that is enough. Holds the lock. */
int shmq_take_or_drop(struct shmq_queue *q, uint64_t bytes, uint32_t *at);

#endif
