/* Records of a stream that a group shares: each is leased to one member at a time, and settled
 * individually. Every record below a partition's `next` that is not held is done. So a record that
 * cannot be settled occupies one entry, and blocks neither the records behind it nor the partition.
 *
 *            lend                 ack
 *   (next) --------> LENT --------------------> done
 *                    |  ^
 *    nack, its end,  |  | again                    bury            buried
 *    owner's death   v  |      at the limit,   SPENT ----> MOVING ---------> done
 *                    BACK      or rejected --> (to the dead letters; without such
 *                                               a queue it is dropped, and counted)
 *
 * A transition is one store of the entry's word; `next` follows it, so that a death between the two
 * leaves a record that is held, never one that is lost. Only a lease that was handed to the
 * application counts as a delivery.
 *
 * All functions are called with the group's lock held. Times are monotonic, in ns. */
#ifndef SHMQ_STREAM_SHARED_GROUP_H
#define SHMQ_STREAM_SHARED_GROUP_H

#include "stream/group_state.h"

enum shmq_held_state {
    SHMQ_HELD_FREE = 0,
    SHMQ_HELD_LENT = 1,   /* leased by its owner until `deadline`                       */
    SHMQ_HELD_BACK = 2,   /* to be leased again from `deadline` on                      */
    SHMQ_HELD_SPENT = 3,  /* waits to be moved to the dead letters                      */
    SHMQ_HELD_MOVING = 4, /* its owner moves it                                         */
};

#define SHMQ_HELD_STATE 0xFull
#define SHMQ_HELD_HANDED 0x10ull /* the application has received this lease             */
#define SHMQ_HELD_DELIVERIES_SHIFT 8

/* The description of a leased record for its member. */
struct shmq_lent {
    uint64_t receipt; /* serial << 24 | entry                                           */
    uint64_t offset;
    uint32_t partition;
    uint32_t deliveries; /* before this one                                             */
};

/* Sets the first record of the partition to lease, unless it is set already. */
void shmq_shared_group_begin(struct shmq_group_state *r, uint32_t partition, uint64_t offset);

/* Leases to `id` up to `limit` new records of the partition, between `earliest` and `latest` (the
 * next offset to come). Records before `earliest` are gone, and counted as skipped. SHMQ_OK with
 * `*count`, or FULL if `held` is full and nothing was leased. */
int shmq_shared_group_lend(struct shmq_group_state *r, uint64_t id, uint32_t partition,
                           uint64_t earliest, uint64_t latest, uint32_t limit, int64_t now,
                           struct shmq_lent *lent, uint32_t *count);

/* Leases to `id` up to `limit` records that were returned; returns how many. */
uint32_t shmq_shared_group_again(struct shmq_group_state *r, uint64_t id, uint32_t limit,
                                 int64_t now, struct shmq_lent *lent);

/* Counts the delivery of the record to the application: SHMQ_OK, or STALE if the lease is over. */
int shmq_shared_group_hand(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* Settles the record as done: SHMQ_OK, or STALE. */
int shmq_shared_group_ack(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* Returns the record in `delay` ns, or gives it up at the limit: SHMQ_OK, or STALE. */
int shmq_shared_group_nack(struct shmq_group_state *r, uint64_t receipt, int64_t delay,
                           int64_t now);

/* Gives the record up, whatever the limit: SHMQ_OK, or STALE. */
int shmq_shared_group_reject(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* Extends the lease to `ns` from now; 0: to the group's lease. SHMQ_OK, or STALE. */
int shmq_shared_group_extend(struct shmq_group_state *r, uint64_t receipt, int64_t ns, int64_t now);

/* Gives `id` a SPENT record to move: SHMQ_OK, or EMPTY. */
int shmq_shared_group_bury(struct shmq_group_state *r, uint64_t id, int64_t now,
                           struct shmq_lent *lent);

/* Settles a moved record: it is in the dead-letter queue, or (not `there`) dropped, because
 * there is no such queue: SHMQ_OK, or STALE. */
int shmq_shared_group_buried(struct shmq_group_state *r, uint64_t receipt, int there);

/* Settles a record that the stream no longer has, leased or moving: SHMQ_OK, or STALE. */
int shmq_shared_group_lost(struct shmq_group_state *r, uint64_t receipt);

/* Member `id` is gone: its records are returned at once. */
void shmq_shared_group_orphan(struct shmq_group_state *r, uint64_t id, int64_t now);

/* When the next held record is due, INT64_MAX if none is; may be early. */
int64_t shmq_shared_group_due(const struct shmq_group_state *r);

/* The first unsettled offset of each of the group's partitions; SHMQ_NO_OFFSET: none was leased
 * yet. */
void shmq_shared_group_lows(const struct shmq_group_state *r, uint64_t *lows);

/* Recounts after a death. */
void shmq_shared_group_recover(struct shmq_group_state *r);

#endif
