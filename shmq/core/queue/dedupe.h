/* The dedupe ids of the puts within the dedupe window, oldest first in a ring, and indexed by hash.
 *
 * The ring is a truth of its own, because messages are forgotten before their ids. Ids are stored
 * as 128-bit hashes. A put writes its entry behind the tail before its commit, and makes it part of
 * the ring afterwards; recovery settles an entry in between. */
#ifndef SHMQ_QUEUE_DEDUPE_H
#define SHMQ_QUEUE_DEDUPE_H

#include "queue/queue.h"

/* SHMQ_DUPLICATE and the first put's sequence number, or SHMQ_OK. */
int shmq_dedupe_find(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t *seq);

/* Ensures: there is room for one more entry. SHMQ_FULL, SHMQ_NO_SPACE. */
int shmq_dedupe_reserve(struct shmq_queue *q, int64_t now);

/* Writes the entry behind the tail; call it before the put's commit. Needs a reservation. */
void shmq_dedupe_write(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t seq);

/* Makes the entry part of the ring; call it after the put's commit. */
void shmq_dedupe_accept(struct shmq_queue *q);

/* Recovery: rebuilds the chains of all entries. */
void shmq_dedupe_rebuild(struct shmq_queue *q);

/* The sequence number of the entry behind the tail, 0 if there is none. */
uint64_t shmq_dedupe_pending(struct shmq_queue *q);

#endif
