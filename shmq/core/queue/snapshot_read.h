/* Messages of a queue, read without its lock and without a lease, for a block of columns.
 *
 * In two steps, as a block is laid out by what comes into it: first the slots are chosen, then
 * what stands in them is copied, and a message that has gone in between is passed over. Of each
 * message all is copied while its slot's word stays as it is, so no row is torn. */
#ifndef SHMQ_QUEUE_SNAPSHOT_READ_H
#define SHMQ_QUEUE_SNAPSHOT_READ_H

#include "queue/columns.h"
#include "queue/queue.h"

/* A message that was chosen. */
struct shmq_pick {
    uint64_t seq;
    uint32_t at;
    uint32_t block;
};

struct shmq_snapshot_read {
    struct shmq_pick *picks;
    uint32_t most;           /* room for them                                            */
    uint32_t count;
    uint64_t max_bytes;      /* of the block: what does not fit is left, but the first   */
    uint64_t largest;        /* bytes that the first may have, up to INT32_MAX           */
    uint64_t body_bytes, meta_bytes;
};

/* Chooses the live messages in the slots from `at` to `end`, as far as they fit; `at` becomes
 * the first slot that was not looked at. SHMQ_OK, SHMQ_TOO_LARGE (the first one fits no block),
 * SHMQ_DAMAGED. */
int shmq_snapshot_read_slots(struct shmq_queue *q, struct shmq_snapshot_read *e, uint32_t *at,
                             uint32_t end);

/* Chooses the messages `seqs` in the slots `slots`, from `at` on. SHMQ_STALE: the one at `at`
 * is not there any more; what was chosen before is good. */
int shmq_snapshot_read_run(struct shmq_queue *q, struct shmq_snapshot_read *e,
                           const uint32_t *slots, const uint64_t *seqs, uint64_t *at, uint64_t end);

/* Begins an excerpt: NULL picks mean that there is no memory. To be freed: the picks. */
void shmq_snapshot_read_begin(struct shmq_snapshot_read *e, uint64_t messages, uint64_t max_bytes,
                              uint64_t largest);

/* What is to be added to monotonic times, in ns: whole milliseconds, so that a process that reads a
 * message again sees the same times, though the clocks are read anew. */
int64_t shmq_wall_offset(void);

/* Whether slot `at` still holds the live message `seq`. */
bool shmq_is_there(const struct shmq_queue *q, uint32_t at, uint64_t seq);

/* Copies what was chosen; `wall` is what is to be added to monotonic times, in ns. */
void shmq_snapshot_read_copy(struct shmq_queue *q, const struct shmq_snapshot_read *e, int64_t wall,
                             struct shmq_columns *c);

#endif
