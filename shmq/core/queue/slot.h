/* Taking a free slot with a block for its bytes, and freeing one. */
#pragma once

#include "queue/queue.h"

/* Takes a FREE slot, in no list, with room for `bytes`. SHMQ_FULL, SHMQ_NO_SPACE. */
int shmq_slot_take(struct shmq_queue *q, uint64_t bytes, uint32_t *at);

/* Puts back a slot of shmq_slot_take that was never committed. */
void shmq_slot_untake(struct shmq_queue *q, struct shmq_slot *s);

/* Returns the blocks that free slots keep to the arena. */
void shmq_slot_drop_cached(struct shmq_queue *q);

/* Counts a slot that has just left FREE. */
void shmq_slot_born(struct shmq_queue *q);

/* Ends a message that is in no list and no group any more: commits FREE; ZOMBIE while it has views;
 * or SPENT, if the journal has it (change_hints.h). */
void shmq_slot_free(struct shmq_queue *q, struct shmq_slot *s);

/* The same for a slot whose settlement the journal need not record. */
void shmq_slot_release(struct shmq_queue *q, struct shmq_slot *s);

/* Makes this attachment the slot's owner. */
static inline void shmq_own(struct shmq_queue *q, struct shmq_slot *s)
{
    q->owned = true;
    SET(s->owner, (uint16_t)(q->attachment + 1));
}

/* Clears the origin: the slot's next message is not a copy. Only a journal reads it. */
static inline void shmq_slot_lose_origin(struct shmq_slot *s)
{
    if (s->origin_queue)
        SET_ATOMIC(s->origin_queue, 0);
}

/* Whether the slot's bytes lie in its block, and that in the arena; else the handle is damaged. */
static inline bool shmq_is_within(struct shmq_queue *q, const struct shmq_slot *s)
{
    if (s->block <= q->geo.units && s->units <= q->geo.units - s->block &&
        (uint64_t)s->body_bytes + s->meta_bytes <= (uint64_t)s->units * SHMQ_UNIT)
        return true;
    q->damaged = true;
    return false;
}

/* The places of the body, and of the properties as they were put: see amend.h. NULL and damage if they
 * are out of bounds. */
static inline unsigned char *shmq_body_of(struct shmq_queue *q, const struct shmq_slot *s)
{
    return shmq_is_within(q, s) ? q->arena + (uint64_t)s->block * SHMQ_UNIT : NULL;
}

static inline unsigned char *shmq_put_meta_of(struct shmq_queue *q, const struct shmq_slot *s)
{
    if (!shmq_is_within(q, s))
        return NULL;
    return q->arena + ((uint64_t)s->block + s->units) * SHMQ_UNIT - s->meta_bytes;
}

/* ---- arena.c ---- */

/* The arena: payloads as contiguous runs of 64-byte units, allocated first fit from a bitmap.
 *
 * A bitmap needs no links inside free space, coalesces by itself, and can be rebuilt by marking the
 * blocks of all slots. Runs of up to 64 KiB are rounded up to one of four sizes per doubling (the
 * classes), so that a freed slot keeps its block for the next message of that class: the usual put
 * takes slot and block in one step. */

#define SHMQ_CLASS_UNITS 1024u /* the largest run that has a class */

/* The units for `bytes`: those of the smallest class that fits; exactly as many as needed if no
 * class fits, or if the class is larger than the whole arena. */
uint32_t shmq_units_for(const struct shmq_queue *q, uint64_t bytes);

#define SHMQ_SMALL_UNITS 8u /* of the runs up to this, each size is a class of that number */

/* The class of a run: 1..36, or 0 if it has none. */
uint32_t shmq_class_of(uint32_t units);

/* Finds `units` free units and marks them: SHMQ_FULL, SHMQ_NO_SPACE. Unless it `may_grow`, only among
 * units that have memory already. Holds the lock. */
int shmq_arena_take(struct shmq_queue *q, uint32_t units, uint32_t *block, bool may_grow);

/* Marks the units free. Holds the lock. */
void shmq_arena_give(struct shmq_queue *q, uint32_t block, uint32_t units);

/* Marks the units used while the bitmap is rebuilt; false if some were used already. */
bool shmq_arena_claim(struct shmq_queue *q, uint32_t block, uint32_t units);

/* Marks all units free. Holds the lock. */
void shmq_arena_clear(struct shmq_queue *q);

/* One past the highest unit in use. Holds the lock. */
uint32_t shmq_arena_top(struct shmq_queue *q);

/* The longest run of free units, including units without memory. Holds the lock. */
uint32_t shmq_arena_largest(struct shmq_queue *q);
