/* Amended properties: those of a message with the error of its last failed delivery.
 *
 * A message's properties lie in its block, behind the body, with no room for more. So they are copied
 * into a block of their own, with the error added, and the slot's entry in a sparse region names that
 * block. The entry's `seq` commits it. Whatever reads a message's properties reads these instead
 * (shmq_meta_of). It is optional by design: without room a settlement does without.
 *
 * An entry changes only under the lock, while its message's word is LEASED with F_CLOSED, and is
 * dropped with its slot. So who reads without the lock leaves it alone in that state, and otherwise
 * relies on the word as for all else. */
#pragma once

#include "queue/properties.h"

/* The part of the arena that amended properties may take: an eighth. */
#define SHMQ_AMENDED_PART 8u

/* The entry of the slot's message; NULL if it has none. */
static inline struct shmq_amended *shmq_amended_of(const struct shmq_queue *q,
                                                   const struct shmq_slot *s)
{
    uint64_t seq;
    uint32_t at;

    if (__builtin_expect(!GET_RELAXED(q->h->amended), 1))
        return NULL;
    at = (uint32_t)(s - q->slots);
    if (s == &q->nowhere || at >= GET_RELAXED(q->h->amended_backed) || at >= q->capacity)
        return NULL;
    seq = GET_ACQUIRE(q->amended[at].seq); /* 0 is also that of a slot that was never used */
    return seq && seq == GET_ATOMIC(s->seq) ? &q->amended[at] : NULL;
}

/* Whether its block lies in the arena; else the handle is damaged. */
bool shmq_is_amended_within(struct shmq_queue *q, const struct shmq_amended *amended);

/* Adds the error, one msgpack value, to the properties `put` of a message whose lease is closed,
 * instead of an earlier one: SHMQ_OK; SHMQ_FULL, SHMQ_NO_SPACE: the arena has no room;
 * SHMQ_TOO_LARGE: the part that errors may take has none, or the properties are not one map. Holds
 * both locks. */
int shmq_amend(struct shmq_queue *q, struct shmq_slot *s, struct shmq_text put,
               struct shmq_text error);

/* The message ends: it gives its block back. Holds the lock. */
void shmq_drop_amended(struct shmq_queue *q, struct shmq_slot *s);

/* Recovery: the entry of slot `at`, whose message lives if it is `live`, takes its units again, or is
 * cleared. */
void shmq_rebuild_amended(struct shmq_queue *q, uint32_t at, bool live);
