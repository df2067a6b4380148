/* What an actor knows of its messages, and how it picks what it does: for its actions. */
#pragma once

#include "actor.h"

/* What only a strict actor can know. */
#define MUST(condition)       \
    do {                      \
        if (a->strict)        \
            CHECK(condition); \
    } while (0)

#define MUST_BE(got, wanted)       \
    do {                           \
        if (a->strict)             \
            CHECK_EQ(got, wanted); \
    } while (0)

static inline uint64_t below(struct actor *a, uint64_t limit)
{
    return chance_below(&a->chance, limit);
}

static inline bool one_in(struct actor *a, uint64_t count) { return below(a, count) == 0; }

/* Bytes that can be told from those of other messages. Both do nothing with NULL. */
void write_pattern(const unsigned char *to, uint64_t bytes, uint8_t salt);
bool has_pattern(const unsigned char *from, uint64_t bytes, uint8_t salt);

/* Reads all bytes, which must be those of message `seq`. */
/* The size of the error that a failed delivery is returned with. */
#define ERROR_BYTES 259u

void check_view(struct actor *a, const struct shmq_view *view, uint64_t seq);

/* A message was put. */
void enter(struct actor *a, uint64_t seq, const struct actor_receipt *r);

void keep(struct actor *a, struct actor_receipt r);

/* A receipt that was given for that, or now and then any other, or one out of thin air.
 * Mostly it is forgotten, sometimes it is kept to be tried again. */
struct actor_receipt pick(struct actor *a, enum shmq_state state);

/* Whether the slots say that the receipt is good for that. */
bool is_good(struct actor *a, uint64_t receipt, enum shmq_state state);

/* Does all that is due, so that the slots are as the next operation finds them. */
void settle_time(struct actor *a);
