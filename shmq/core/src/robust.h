/* A robust mutex between processes: whoever gets it from a dead holder is told so. */
#ifndef SHMQ_ROBUST_H
#define SHMQ_ROBUST_H

#include "layout.h"

/* Makes the mutex in shared memory: SHMQ_OK, SHMQ_DAMAGED. */
int shmq_robust_init(union shmq_mutex *lock);

/* Takes it, spinning for some microseconds and then, if `ns` is not 0, waiting that long in
 * the kernel (without the GIL): SHMQ_OK, SHMQ_BUSY, SHMQ_DAMAGED.
 *
 * `*unsettled` is set before the mutex of a dead holder is good again: whoever holds the
 * mutex and sees it set puts right what the dead one left, and clears it last, so that a
 * death in between counts the same. */
int shmq_robust_take(union shmq_mutex *lock, int64_t ns, uint32_t *unsettled);

void shmq_robust_drop(union shmq_mutex *lock);

#endif
