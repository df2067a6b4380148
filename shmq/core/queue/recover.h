/* Deriving everything from the slots: after a death inside the lock, and for a purge. */
#ifndef SHMQ_QUEUE_RECOVER_H
#define SHMQ_QUEUE_RECOVER_H

#include "queue/queue.h"

/* Rebuilds lists, heaps, groups, bitmap and counts from the slots. Holds the lock; may be
 * cut short by a death and begun anew. SHMQ_DAMAGED if the slots contradict each other. */
int shmq_rebuild(struct shmq_queue *q);

/* The same, counted as a recovery, with the dedupe ring settled. */
int shmq_recover(struct shmq_queue *q);

#endif
