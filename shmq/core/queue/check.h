/* Every invariant of a segment, verified: what the tests ask after each operation. */
#ifndef SHMQ_QUEUE_CHECK_H
#define SHMQ_QUEUE_CHECK_H

#include "queue/queue.h"

/* NULL if all is well, else what is wrong (a constant string). Holds the lock. These
 * two are the only functions of the core that allocate memory. */
const char *shmq_check(struct shmq_queue *q);

/* Everything that is wrong, up to `most` things of different kinds; how many. As above. */
uint32_t shmq_check_all(struct shmq_queue *q, const char **wrong, uint32_t most);

#endif
