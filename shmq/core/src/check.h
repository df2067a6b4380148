/* Every invariant of a segment, verified: what the tests ask after each operation. */
#ifndef SHMQ_CHECK_H
#define SHMQ_CHECK_H

#include "queue.h"

/* NULL if all is well, else what is wrong (a constant string). Holds the lock. The one
 * function of the core that allocates memory. */
const char *shmq_check(struct shmq_queue *q);

#endif
