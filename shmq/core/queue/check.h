/* Verification of every invariant of a segment, which the tests run after each operation. */
#ifndef SHMQ_QUEUE_CHECK_H
#define SHMQ_QUEUE_CHECK_H

#include "queue/queue.h"

/* NULL if all invariants hold, else the first violation (a constant string). Holds the lock. These
 * two are the only functions of the core that allocate memory. */
const char *shmq_check(struct shmq_queue *q);

/* All violations of different kinds, up to `most`; returns how many. Otherwise as above. */
uint32_t shmq_check_all(struct shmq_queue *q, const char **wrong, uint32_t most);

#endif
