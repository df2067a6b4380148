/* Finding many messages by their sequence numbers in one pass over all slots. */
#ifndef SHMQ_QUEUE_FIND_BY_SEQUENCE_H
#define SHMQ_QUEUE_FIND_BY_SEQUENCE_H

#include "queue/queue.h"

/* The entries of the table for a search for `count` messages: a power of two. */
uint64_t shmq_search_room(uint32_t count);

/* Sets `at[i]` to the slot of the live message `seqs[i]`, or to SHMQ_NIL; of equal numbers only the
 * first is set. `table` has shmq_search_room(count) entries. Needs no lock: the caller must check
 * the results again under it. */
void shmq_search(const struct shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at,
                 uint32_t *table, uint64_t room);

#endif
