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
    if (s == &q->nowhere || at >= GET_RELAXED(q->h->amended_backed) || at >= q->geo.slots_max)
        return NULL;
    seq = GET_ACQUIRE(q->amended[at].seq); /* 0 is also that of a slot that was never used */
    return seq && seq == GET_ATOMIC(s->seq) ? &q->amended[at] : NULL;
}

/* The properties of an entry; none if it is changing under us, or its block is not in the arena. */
static inline struct shmq_text shmq_amended_text(const struct shmq_queue *q,
                                                 const struct shmq_amended *amended)
{
    uint32_t block = GET_ATOMIC(amended->block), bytes = GET_ATOMIC(amended->bytes);

    if (block >= q->geo.units || bytes > (uint64_t)(q->geo.units - block) * SHMQ_UNIT)
        bytes = 0;
    return (struct shmq_text){bytes ? q->arena + (uint64_t)block * SHMQ_UNIT : NULL, bytes};
}

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
