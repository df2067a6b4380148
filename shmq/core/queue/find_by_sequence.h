/* Finding messages by their sequence numbers: of many, in one look at every slot. */
#ifndef SHMQ_QUEUE_FIND_BY_SEQUENCE_H
#define SHMQ_QUEUE_FIND_BY_SEQUENCE_H

#include "queue/queue.h"

/* Entries that the table of a search for `count` needs: a power of two. */
uint64_t shmq_search_room(uint32_t count);

/* Sets `at[i]` to the slot that holds the live message `seqs[i]`, or to SHMQ_NIL; of equal
 * numbers the first counts. `table` has shmq_search_room(count) entries. Needs no lock: what is
 * found has to be looked at again under it. */
void shmq_search(const struct shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at,
                 uint32_t *table, uint64_t room);

#endif
