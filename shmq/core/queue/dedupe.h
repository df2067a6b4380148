/* The ids of the puts within the dedupe window, oldest first in a ring, and by hash.
 *
 * The ring is a truth of its own: messages are forgotten before their ids. Ids are kept
 * as 128-bit hashes. An entry is written behind the tail before its put is committed,
 * and becomes part of the ring after; recovery settles the one in between. */
#ifndef SHMQ_QUEUE_DEDUPE_H
#define SHMQ_QUEUE_DEDUPE_H

#include "queue/queue.h"

/* SHMQ_DUPLICATE and the first put's sequence number, or SHMQ_OK. */
int shmq_dedupe_find(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t *seq);

/* Ensures: there is room for one entry more. SHMQ_FULL, SHMQ_NO_SPACE. */
int shmq_dedupe_reserve(struct shmq_queue *q, int64_t now);

/* Writes the entry behind the tail; call before the put's commit. Needs a reservation. */
void shmq_dedupe_write(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t seq);

/* Makes it part of the ring; call after the put's commit. */
void shmq_dedupe_accept(struct shmq_queue *q);

/* Recovery: chains all entries anew. */
void shmq_dedupe_rebuild(struct shmq_queue *q);

/* The sequence number of the entry behind the tail, 0 if there is none. */
uint64_t shmq_dedupe_pending(struct shmq_queue *q);

#endif
