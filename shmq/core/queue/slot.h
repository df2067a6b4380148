/* Taking a free slot with a block for its bytes, and freeing one. */
#ifndef SHMQ_QUEUE_SLOT_H
#define SHMQ_QUEUE_SLOT_H

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

/* Clears the origin: the slot's next message is not a copy. Only a journal reads it. */
static inline void shmq_slot_lose_origin(struct shmq_slot *s)
{
    if (s->origin_queue)
        SET_ATOMIC(s->origin_queue, 0);
}

/* The places of the body and the properties. NULL and damage if they are out of bounds. */
unsigned char *shmq_body_of(struct shmq_queue *q, struct shmq_slot *s);
unsigned char *shmq_meta_of(struct shmq_queue *q, struct shmq_slot *s);

#endif
