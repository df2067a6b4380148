/* Messages of a queue, read without its lock and without a lease, for a block of columns.
 *
 * There are two steps, because a block's layout depends on its contents: first slots are chosen,
 * then their messages are copied, without those that have gone in between. A message is copied
 * while its slot's word stays unchanged, so no row is torn. Its properties have its last error
 * (amend.h), unless that came in between. */
#pragma once

#include "queue/columns.h"
#include "queue/queue.h"

/* A chosen message. */
struct shmq_pick {
    uint64_t seq;
    uint32_t at;
    uint32_t block;
    uint32_t meta_bytes; /* of its properties: those of its put, or with its last error   */
};

struct shmq_snapshot_read {
    struct shmq_pick *picks;
    uint32_t most;           /* the most picks                                           */
    uint32_t count;
    uint64_t max_bytes;      /* of the block: what does not fit is left, except the first */
    uint64_t largest;        /* the most bytes of the first, up to INT32_MAX             */
    uint64_t body_bytes, meta_bytes;
};

/* Chooses the live messages in the slots from `at` to `end`, as many as fit; sets `at` to the first
 * slot that was not looked at. SHMQ_OK, SHMQ_TOO_LARGE (the first one fits no block),
 * SHMQ_DAMAGED. */
int shmq_snapshot_read_slots(struct shmq_queue *q, struct shmq_snapshot_read *e, uint32_t *at,
                             uint32_t end);

/* Chooses the messages `seqs` in the slots `slots`, from `at` on. SHMQ_STALE: the one at `at` is
 * gone; those chosen before are valid. */
int shmq_snapshot_read_run(struct shmq_queue *q, struct shmq_snapshot_read *e,
                           const uint32_t *slots, const uint64_t *seqs, uint64_t *at, uint64_t end);

/* Begins to choose. If `picks` is NULL, memory is exhausted. The caller frees `picks`. */
void shmq_snapshot_read_begin(struct shmq_snapshot_read *e, uint64_t messages, uint64_t max_bytes,
                              uint64_t largest);

/* What must be added to monotonic times to get wall times, in ns: whole milliseconds, so that a
 * process that reads a message again sees the same times, although it reads the clocks again. */
int64_t shmq_wall_offset(void);

/* Whether slot `at` still holds the live message `seq`. */
bool shmq_is_there(const struct shmq_queue *q, uint32_t at, uint64_t seq);

/* Copies the chosen messages; `wall` is added to monotonic times, in ns. */
void shmq_snapshot_read_copy(struct shmq_queue *q, const struct shmq_snapshot_read *e, int64_t wall,
                             struct shmq_columns *c);

/* ---- by sequence number, in one pass over all slots ---- */

/* The entries of the table for a search for `count` messages: a power of two. */
uint64_t shmq_search_room(uint32_t count);

/* Sets `at[i]` to the slot of the live message `seqs[i]`, or to SHMQ_NIL; of equal numbers only the
 * first is set. `table` has shmq_search_room(count) entries. Needs no lock: the caller must check
 * the results again under it. */
void shmq_search(const struct shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at,
                 uint32_t *table, uint64_t room);
