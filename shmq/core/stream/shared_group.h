/* Records of a stream that a group shares: each is lent to one member at a time, and settled
 * by itself. Whatever is below a partition's `next` and not held is done, so a record that
 * nobody can settle keeps one entry, and neither the records behind it nor the partition.
 *
 *            lend                 ack
 *   (next) --------> LENT --------------------> done
 *                    |  ^
 *    nack, its end,  |  | again                    bury            buried
 *    owner's death   v  |      at the limit,   SPENT ----> MOVING ---------> done
 *                    BACK      or rejected --> (to the dead letters; without such
 *                                               a queue it is dropped, and counted)
 *
 * A transition is one store of the entry's word; `next` follows it, so that a death between
 * the two leaves a record that is held, never one that nobody has. Only a lease that the
 * application was handed counts as a delivery.
 *
 * All of it is called with the group's lock held. Times are monotonic, in ns. */
#ifndef SHMQ_STREAM_SHARED_GROUP_H
#define SHMQ_STREAM_SHARED_GROUP_H

#include "stream/group_state.h"

enum shmq_held_state {
    SHMQ_HELD_FREE = 0,
    SHMQ_HELD_LENT = 1,   /* its owner's until `deadline`                               */
    SHMQ_HELD_BACK = 2,   /* to be lent again from `deadline` on                        */
    SHMQ_HELD_SPENT = 3,  /* waits to be moved to the dead letters                      */
    SHMQ_HELD_MOVING = 4, /* its owner moves it                                         */
};

#define SHMQ_HELD_STATE 0xFull
#define SHMQ_HELD_HANDED 0x10ull /* the application has seen this lease                 */
#define SHMQ_HELD_DELIVERIES_SHIFT 8

/* What a member gets to know of a record that it is lent. */
struct shmq_lent {
    uint64_t receipt; /* serial << 24 | entry                                           */
    uint64_t offset;
    uint32_t partition;
    uint32_t deliveries; /* before this one                                             */
};

/* The partition's first record to be lent, unless it has one: SHMQ_OK. */
void shmq_shared_group_begin(struct shmq_group_state *r, uint32_t partition, uint64_t offset);

/* Lends `id` up to `limit` records of the partition that nobody has had, from those between
 * `earliest` and `latest` (the next offset to come). Those before `earliest` are gone, and
 * counted as skipped. SHMQ_OK with `*count`, or FULL if `held` is, and nothing was lent. */
int shmq_shared_group_lend(struct shmq_group_state *r, uint64_t id, uint32_t partition,
                           uint64_t earliest, uint64_t latest, uint32_t limit, int64_t now,
                           struct shmq_lent *lent, uint32_t *count);

/* Lends `id` up to `limit` records that came back; how many. */
uint32_t shmq_shared_group_again(struct shmq_group_state *r, uint64_t id, uint32_t limit,
                                 int64_t now, struct shmq_lent *lent);

/* The application is handed the record: SHMQ_OK, or STALE if it is no longer lent so. */
int shmq_shared_group_hand(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* It is done: SHMQ_OK, or STALE. */
int shmq_shared_group_ack(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* It comes back in `delay` ns, or is spent: SHMQ_OK, or STALE. */
int shmq_shared_group_nack(struct shmq_group_state *r, uint64_t receipt, int64_t delay,
                           int64_t now);

/* It is spent, whatever the limit: SHMQ_OK, or STALE. */
int shmq_shared_group_reject(struct shmq_group_state *r, uint64_t receipt, int64_t now);

/* It is its holder's for `ns` from now on; 0: for the group's lease. SHMQ_OK, or STALE. */
int shmq_shared_group_extend(struct shmq_group_state *r, uint64_t receipt, int64_t ns, int64_t now);

/* A spent record, for `id` to move: SHMQ_OK, or EMPTY. */
int shmq_shared_group_bury(struct shmq_group_state *r, uint64_t id, int64_t now,
                           struct shmq_lent *lent);

/* It is with the dead letters, or (not `there`) dropped, as there is no queue for them: SHMQ_OK,
 * or STALE. */
int shmq_shared_group_buried(struct shmq_group_state *r, uint64_t receipt, int there);

/* The stream no longer has it, lent or moving: SHMQ_OK, or STALE. */
int shmq_shared_group_lost(struct shmq_group_state *r, uint64_t receipt);

/* Member `id` is gone: what it held comes back at once. */
void shmq_shared_group_orphan(struct shmq_group_state *r, uint64_t id, int64_t now);

/* When something held is due next, and INT64_MAX if nothing is; may be early. */
int64_t shmq_shared_group_due(const struct shmq_group_state *r);

/* Of each of the group's partitions the first offset that is not settled; SHMQ_NO_OFFSET: none
 * was lent yet. */
void shmq_shared_group_lows(const struct shmq_group_state *r, uint64_t *lows);

/* Counts anew, after a death. */
void shmq_shared_group_recover(struct shmq_group_state *r);

#endif
