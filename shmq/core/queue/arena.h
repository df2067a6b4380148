/* The arena: payloads as contiguous runs of 64-byte units, allocated first fit from a bitmap.
 *
 * A bitmap needs no links inside free space, coalesces by itself, and can be rebuilt by marking the
 * blocks of all slots. Runs of up to 64 KiB are rounded up to one of four sizes per doubling (the
 * classes), so that a freed slot keeps its block for the next message of that class: the usual put
 * takes slot and block in one step. */
#ifndef SHMQ_QUEUE_ARENA_H
#define SHMQ_QUEUE_ARENA_H

#include "queue/queue.h"

#define SHMQ_CLASS_UNITS 1024u /* the largest run that has a class */

/* The units for `bytes`: those of the smallest class that fits; exactly as many as needed if there
 * is no such class, or if the class is larger than the whole arena. */
uint32_t shmq_units_for(const struct shmq_queue *q, uint64_t bytes);

/* The class of a run: 1..36, or 0 if it has none. */
uint32_t shmq_class_of(uint32_t units);

/* Finds `units` free units and marks them. SHMQ_FULL, SHMQ_NO_SPACE. Holds the lock. */
int shmq_arena_take(struct shmq_queue *q, uint32_t units, uint32_t *block);

/* The same, only among units that have memory already: SHMQ_FULL if it needs more. */
int shmq_arena_take_backed(struct shmq_queue *q, uint32_t units, uint32_t *block);

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

#endif
