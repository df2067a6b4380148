/* Allocating memory for the segment, in steps, before it is touched: on a full /dev/shm a store
 * to a page that was never allocated is a SIGBUS, while a refused allocation is an error. All
 * hold the lock; SHMQ_NO_SPACE sets q->refused_bytes. */
#ifndef SHMQ_QUEUE_BACKING_H
#define SHMQ_QUEUE_BACKING_H

#include "queue/queue.h"

/* Ensures: bytes [offset, offset + size) of the segment have memory. */
int shmq_back(struct shmq_queue *q, uint64_t offset, uint64_t size);

/* Ensures: slots below `count`, with their heap entries, have memory. */
int shmq_back_slots(struct shmq_queue *q, uint32_t count);

/* Ensures: units below `count` of the arena, with their bits, have memory. */
int shmq_back_units(struct shmq_queue *q, uint32_t count);

/* Ensures: group records below `count`, and all buckets, have memory. */
int shmq_back_groups(struct shmq_queue *q, uint32_t count);

/* Ensures: attachments below `count` have memory. */
int shmq_back_attachments(struct shmq_queue *q, uint32_t count);

/* Returns the memory above what is in use to the system. */
void shmq_give_back(struct shmq_queue *q);

#endif
