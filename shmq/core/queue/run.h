/* Runs: very many messages leased together, by a process or in a name (holder.h).
 *
 * A run may hold several messages of one group, in order: the group is the run's until all of them
 * are settled or have come back. The order of service decides what a run gets, as if the groups that
 * it holds were free; nobody else gets a message of them meanwhile. */
#pragma once

#include "queue/holder.h"
#include "queue/message.h"

/* A group that a run holds and that has more messages, by the key of the next one. */
struct shmq_run_group {
    uint64_t key;
    uint64_t receipt; /* of the run's newest message of the group                          */
};

/* A run while it is being leased; private memory. */
struct shmq_run {
    const struct shmq_claim *claim; /* NULL: it belongs to this process                      */
    uint32_t epoch;
    struct shmq_run_group *groups; /* a binary heap                                         */
    uint32_t count, room;
};

void shmq_run_begin(struct shmq_run *run, const struct shmq_claim *claim, uint32_t epoch);
void shmq_run_end(struct shmq_run *run);

/* Leases the run's next message for `ns`, handed out: SHMQ_OK, SHMQ_EMPTY; SHMQ_FENCED: its claim is
 * void; SHMQ_UNCLAIMED: and no other one exists. Holds the get-side lock. */
int shmq_run_lease(struct shmq_queue *q, struct shmq_run *run, int64_t now, int64_t ns,
                   struct shmq_view *view);

/* ---- the messages that have a holder's tag ---- */

/* A message of a run of the past. */
struct shmq_tagged {
    uint64_t key;
    uint64_t seq;
    uint32_t at;
    uint32_t epoch;
};

/* Finds them, in the order of service, in one pass over all slots, without a lock: the functions
 * below check again. The caller frees `found`. SHMQ_OK, SHMQ_FENCED, SHMQ_UNCLAIMED, SHMQ_NO_SPACE
 * (no memory). */
int shmq_find_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                     struct shmq_tagged **found, uint32_t *count);

/* Each of these holds both locks, and answers SHMQ_STALE, with no change, if the message is not there
 * any more, or another holder has leased it; SHMQ_FENCED, SHMQ_UNCLAIMED. */

/* Leases it again for `ns`, in the same epoch: a lease that an older claim took is a new one. */
int shmq_lease_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                      const struct shmq_tagged *which, int64_t now, int64_t ns,
                      struct shmq_view *view);

/* Acknowledges it. */
int shmq_ack_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                    const struct shmq_tagged *which);

/* Returns it, if it is leased, and removes its tag; this delivery does not count. */
int shmq_return_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                       const struct shmq_tagged *which, int64_t now);

/* Leases message `seq` in slot `at` into the run, if it is READY, whatever is before it: SHMQ_STALE,
 * also if a message of its group is in flight that is not the run's; SHMQ_FENCED, SHMQ_UNCLAIMED. */
int shmq_run_lease_at(struct shmq_queue *q, struct shmq_run *run, uint32_t at, uint64_t seq,
                      int64_t now, int64_t ns, struct shmq_view *view);
