/* Rebuilding everything derived from the slots: after a death under the lock, and for a purge. */
#pragma once

#include "queue/queue.h"

/* Rebuilds lists, heaps, groups, bitmap and counters from the slots. Holds the lock; a death may
 * cut it short, and it is begun again. SHMQ_DAMAGED if the slots contradict each other. */
int shmq_rebuild(struct shmq_queue *q);

/* The same, counted as a recovery; also settles the dedupe ring. */
int shmq_recover(struct shmq_queue *q);

/* ---- check.c: every invariant of a segment, which the tests verify after each operation ---- */

/* NULL if all invariants hold, else the first violation (a constant string). Holds the lock. It
 * allocates private memory. */
const char *shmq_check(struct shmq_queue *q);

/* All violations of different kinds, up to `most`; returns how many. Otherwise as above. */
uint32_t shmq_check_all(struct shmq_queue *q, const char **wrong, uint32_t most);
