/* Following a queue for its journal: the persistence writer's side of change_hints.h.
 *
 *   collect ──► (the caller writes and syncs what it gave) ──► mark synced ──► release
 *
 * A queue has one scan at a time. Nothing here takes a lock but shmq_release, and nothing blocks.
 * What is collected stays claimed until it is marked as synced. The caller keeps a collection that
 * it could not write and marks it later; it makes no other in between. */
#ifndef SHMQ_FILE_CHANGE_SCAN_H
#define SHMQ_FILE_CHANGE_SCAN_H

#include "queue/change_hints.h"

/* Room that is written from its beginning. */
struct shmq_out {
    unsigned char *at, *end;
};

struct shmq_candidate {
    uint64_t seq;
    uint32_t at;
};

/* Lists in private memory: of messages, and of slots. */
struct shmq_candidates {
    struct shmq_candidate *at;
    uint32_t len, room;
};

struct shmq_marks {
    uint32_t *at;
    uint32_t len, room;
};

struct shmq_change_scan {
    struct shmq_queue *q;
    uint64_t fresh, spent, dedupe; /* counters: followed up to here                     */
    uint32_t epoch;                /* of the hints that were followed                  */
    bool all;                      /* every slot is to be looked at                    */
    bool lacking;                  /* private memory ran out                           */
    uint64_t batch;                /* the number of the collection                     */
    uint64_t covered;              /* every put up to here is in it, or before         */
    uint64_t puts_logged, settles_logged; /* by it                                     */
    uint64_t needed;               /* bytes that the next record takes, if it had no room */
    struct shmq_candidates puts;   /* to be written,                                   */
    uint32_t puts_at;              /*   from here on                                   */
    struct shmq_marks changed;     /* hinted, to be looked at                          */
    struct shmq_candidates done;   /* SPENT; to be set free once this is synced        */
    struct shmq_candidates moved;  /* SPENT; another queue's journal must have it first */
    struct shmq_marks arrived;     /* that were moved, and that it has                 */
    uint64_t *digests;             /* of what was written last of each slot            */
    uint32_t digests_room;
    int64_t spin;                  /* ns to spin before a sleep, as that has paid       */
    _Atomic bool nudged;           /* shmq_attend is to return                         */
    int64_t wall;                  /* what is to be added to a monotonic time          */
};

void shmq_scan_changes(struct shmq_change_scan *f, struct shmq_queue *q);
void shmq_unscan(struct shmq_change_scan *f);

/* Takes back what a writer that died had claimed and not marked as synced. */
void shmq_disclaim(struct shmq_change_scan *f);

/* Whether there is something to collect. */
bool shmq_has_news(const struct shmq_change_scan *f);

/* Writes records, sealed with `salt`, of what has changed since the last collection: SHMQ_OK;
 * SHMQ_FULL if there was more than room (f->needed bytes at least for the next record);
 * SHMQ_NO_SPACE without private memory, and then nothing was collected. Settlements come first,
 * then puts by sequence number, then dedupe ids. */
int shmq_collect(struct shmq_change_scan *f, struct shmq_out *out, uint32_t salt);

/* How many moved messages there are, in f->moved, of which the settlement is held back: those
 * that are over are forgotten. */
uint32_t shmq_held_back(struct shmq_change_scan *f);

/* Lets the settlement of the moved message in slot `at` go with the next collection. */
void shmq_arrived(struct shmq_change_scan *f, uint32_t at);

/* Of the messages `seqs`, sorted, that were moved here from another queue: sets waits[i] of
 * those whose copies are on their way still, being staged, or not on this queue's disk yet, or
 * gone further and held back themselves. One look at every slot. */
void shmq_copies_waiting(struct shmq_queue *q, uint64_t origin_queue, const uint64_t *seqs,
                         bool *waits, uint32_t count);

/* The collection is on disk, the journal's segment so long now: threads that wait for it are
 * woken. */
void shmq_mark_synced(struct shmq_change_scan *f, uint64_t segment, uint64_t offset,
                      uint64_t bytes);

/* Sets up to `most` of the slots free that were settled in what is synced; true if some are
 * left. Holds both locks. */
bool shmq_release(struct shmq_change_scan *f, uint32_t most);

/* The disk refused: puts that wait for it fail, until something is synced. 0: forget it. */
void shmq_fail(struct shmq_queue *q, uint32_t error);

/* Sleeps until there is something to do, at most `ns`: at once if somebody waits for the disk;
 * else up to `linger` after the first news, so that what is acknowledged meanwhile is never
 * written. Of a crowd of `crowd` puts that were confirmed at once, it waits up to `patience`
 * for the rest. SHMQ_OK, SHMQ_TIMED_OUT, SHMQ_INTERRUPTED, SHMQ_DELETED. Without the GIL. */
int shmq_attend(struct shmq_change_scan *f, int64_t ns, int64_t linger, uint32_t crowd,
                int64_t patience);

/* Lets shmq_attend return, from another thread. */
void shmq_nudge(struct shmq_change_scan *f);

/* Writes the messages of slots from *cursor on, of which the sequence number is at most
 * `limit`, as PUT records: SHMQ_OK at the end, SHMQ_FULL if there are more than room. For
 * snapshots: what is settled meanwhile is there or not. */
int shmq_scan(struct shmq_queue *q, uint32_t *cursor, uint64_t limit, struct shmq_out *out,
              uint32_t salt, uint64_t *count, uint64_t *needed);

/* Writes the dedupe ids within the window from counter *cursor on; 0: from the oldest. */
int shmq_scan_dedupe(struct shmq_queue *q, uint64_t *cursor, uint64_t limit, struct shmq_out *out,
                     uint32_t salt);

#endif
