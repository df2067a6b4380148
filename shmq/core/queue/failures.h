/* Failed deliveries, counted by the type of their error.
 *
 * The first SHMQ_FAILURE_TYPES types get an entry each, for as long as the queue exists. All others
 * count in the header's total alone, which has every failure: what the entries lack of it is that
 * rest. So no count is lost, none is estimated, and none falls, as would those of a table that
 * replaces its rarest type; an application with more types than entries is not expected.
 *
 * A name is stored before `failure_types` covers its entry, and never changes afterwards. A process
 * that dies in between leaves a failure counted in the total alone. */
#pragma once

#include "queue/message.h"

/* Counts a failure with `error`, one msgpack map, by its "type"; by the empty name if it has none.
 * Holds the lock. */
void shmq_count_failure(struct shmq_queue *q, struct shmq_text error);

/* The name and the count of entry `at`; false if there is none, or its name is damaged. Holds the
 * lock. */
bool shmq_failures_of(const struct shmq_queue *q, uint32_t at, struct shmq_text *name,
                      uint64_t *count);
