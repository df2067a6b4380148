/* Altering the options of a queue while it is in use. */
#pragma once

#include "queue/queue.h"

/* Makes these the policies of the queue, at once and for every process; a death at any store leaves
 * the old ones or the new. Changes nothing with another result: SHMQ_STALE, if `alterations` led not
 * to the old ones; SHMQ_TOO_LARGE, if the segment is not laid out for a size; SHMQ_FULL, if messages
 * are where a smaller queue has no room; SHMQ_NO_SPACE. Holds the lock, of both sides. */
int shmq_alter(struct shmq_queue *q, const struct shmq_policies *policies, uint32_t alterations);

/* Makes a queue that is being restored larger, as it has no room for a message: its files may have
 * messages from after a growth that is not in them yet. SHMQ_FULL: it cannot. */
int shmq_enlarge(struct shmq_queue *q);
