/* Following a queue for its journal: the persistence writer's side of change_hints.h.
 *
 *   collect ──► (the caller writes and syncs the collection) ──► mark synced ──► release
 *
 * A queue has one scan at a time. No function takes a lock except shmq_release, and none blocks. A
 * collection stays claimed until it is marked as synced. A caller that cannot write a collection
 * keeps it and marks it later; it makes no other in between. */
#ifndef SHMQ_FILE_CHANGE_SCAN_H
#define SHMQ_FILE_CHANGE_SCAN_H

#include "queue/change_hints.h"

/* A buffer that is filled from its beginning. */
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
    uint64_t fresh, spent, dedupe; /* counters: hints before these were followed        */
    uint32_t epoch;                /* of the hints that were followed                  */
    bool all;                      /* every slot must be looked at                     */
    bool lacking;                  /* private memory ran out                           */
    uint64_t batch;                /* the number of the collection                     */
    uint64_t covered;              /* every put up to this one is in it, or an earlier one */
    uint64_t puts_logged, settles_logged; /* in this collection                        */
    uint64_t needed;               /* bytes of the next record, if there was no room for it */
    struct shmq_candidates puts;   /* to be written,                                   */
    uint32_t puts_at;              /*   from here on                                   */
    struct shmq_marks changed;     /* from hints, to be looked at                      */
    struct shmq_candidates done;   /* SPENT; to be freed once this is synced           */
    struct shmq_candidates moved;  /* SPENT; another queue's journal must have it first */
    struct shmq_marks arrived;     /* moved messages that the other journal has        */
    uint64_t *digests;             /* of what was last written for each slot           */
    uint32_t digests_room;
    int64_t spin;                  /* ns to spin before a sleep, as that has paid       */
    _Atomic bool woken;           /* shmq_await_changes must return                          */
    int64_t wall;                  /* added to monotonic times to get wall times       */
};

void shmq_scan_begin(struct shmq_change_scan *f, struct shmq_queue *q);
void shmq_scan_end(struct shmq_change_scan *f);

/* What a dead writer had claimed and not marked as synced is written again. The claims stay: it may be
 * in the files, and then its end must be, too. */
void shmq_disclaim(struct shmq_change_scan *f);

/* Writes records, sealed with `salt`, of all changes since the last collection: SHMQ_OK;
 * SHMQ_FULL if they exceed the room (the next record needs at least f->needed bytes);
 * SHMQ_NO_SPACE if private memory ran out and nothing was collected. Settlements come first,
 * then puts by sequence number, then dedupe ids. */
int shmq_collect(struct shmq_change_scan *f, struct shmq_out *out, uint32_t salt);

/* The number of moved messages, in f->moved, whose settlement is held back; messages that are
 * settled are dropped from the list. */
uint32_t shmq_held_back(struct shmq_change_scan *f);

/* Lets the next collection contain the settlement of the moved message in slot `at`. */
void shmq_arrived(struct shmq_change_scan *f, uint32_t at);

/* Given the sorted numbers `seqs` of messages moved here from another queue: sets waits[i] if a
 * copy is still on its way: being staged, not on this queue's disk yet, or moved further and
 * held back itself. One pass over all slots. */
void shmq_copies_waiting(struct shmq_queue *q, uint64_t origin_queue, const uint64_t *seqs,
                         bool *waits, uint32_t count);

/* Notes that the collection is on disk, and the new length of the journal's segment; wakes the
 * threads that wait for it. */
void shmq_mark_synced(struct shmq_change_scan *f, uint64_t segment, uint64_t offset,
                      uint64_t bytes);

/* Frees up to `most` of the slots whose settlement is synced; true if some are left. Holds both
 * locks. */
bool shmq_release(struct shmq_change_scan *f, uint32_t most);

/* The disk failed: puts that wait for it fail until a sync succeeds. 0 clears the failure. */
void shmq_fail(struct shmq_queue *q, uint32_t error);

/* Sleeps until there is something to do, at most `ns`. It returns at once if a put waits for the
 * disk; else up to `linger` after the first change, so that a message acknowledged meanwhile is
 * never written. If the last sync `confirmed` that many puts at once, it waits up to `patience` for
 * as many again. SHMQ_OK, SHMQ_TIMED_OUT, SHMQ_INTERRUPTED, SHMQ_DELETED. Without the GIL. */
int shmq_await_changes(struct shmq_change_scan *f, int64_t ns, int64_t linger, uint32_t confirmed,
                       int64_t patience);

/* Lets shmq_await_changes return, from another thread. */
void shmq_wake_scan(struct shmq_change_scan *f);

/* Which messages a scan writes: those with sequence numbers above `after`, up to `limit`. */
struct shmq_scanned {
    uint64_t after, limit;
    bool copies; /* only those that came from another queue, or by a transaction */
};

/* Writes these messages in slots from *cursor on, as PUT records: SHMQ_OK at the end, SHMQ_FULL if the
 * room is used up. For snapshots: a message settled meanwhile may or may not be included. */
int shmq_scan(struct shmq_queue *q, uint32_t *cursor, const struct shmq_scanned *which,
              struct shmq_out *out, uint32_t salt, uint64_t *count, uint64_t *needed);

/* Writes the dedupe ids within the window from counter *cursor on; 0 means from the oldest. */
int shmq_scan_dedupe(struct shmq_queue *q, uint64_t *cursor, uint64_t limit, struct shmq_out *out,
                     uint32_t salt);

#endif
