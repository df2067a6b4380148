/* Performs random operations on a queue, as several processes would.
 *
 * A strict actor knows what every operation must do, from the slots alone and from its
 * own ledger, and fails the test where the core does anything else. One that is not
 * strict only performs: for queues that are damaged. */
#pragma once

#include "fixture.h"

#define ACTOR_HANDLES 3
#define MOST_RECEIPTS 48
#define MOST_VIEWS 16
#define MOST_PUTS 40000 /* of one actor */
#define DEDUPE_IDS 8

/* Which of the two locks a step is done under. */
enum actor_side { ACTOR_NEITHER, ACTOR_WHOLE, ACTOR_GETS, ACTOR_PUTS };

struct actor_receipt {
    uint64_t receipt;
    enum shmq_state state; /* what it was given for */
    uint8_t salt;          /* FILLING, STAGED: of the bytes */
    uint64_t body_bytes;
    uint32_t meta_bytes;
};

struct actor_view {
    struct shmq_queue *holder;
    struct shmq_view view;
    uint8_t salt;
};

struct actor {
    struct shmq_queue *handles[ACTOR_HANDLES];
    struct shmq_queue *q; /* the handle of the step that is being done */
    struct chance chance;
    bool strict;
    enum actor_side side; /* what is locked, of `q` */
    uint64_t most_bytes; /* of a body */
    uint64_t groups;     /* how many there are; 0: none */
    uint64_t purged, moved, processes;
    uint64_t id[2]; /* the dedupe id of the put that is being done */
    struct actor_receipt receipts[MOST_RECEIPTS];
    uint32_t receipt_count;
    struct actor_view views[MOST_VIEWS];
    uint32_t view_count;
    struct {
        uint64_t seq;
        int64_t until;
    } ids[DEDUPE_IDS];
    struct {
        uint64_t body_bytes;
        uint32_t meta_bytes;
        uint8_t salt;
        bool settled;
    } puts[MOST_PUTS]; /* by sequence number */
};

/* An actor on `q` and two more handles of it. Free with free(). */
struct actor *actor_new(struct shmq_queue *q, struct chance chance, uint64_t most_bytes,
                        uint64_t groups);

/* Begins a new critical section under both locks, with a random handle; false if it was
 * refused. */
bool actor_lock(struct actor *a);

/* Does one random thing, in a critical section of its own. */
void actor_step(struct actor *a);
