/* A 4-ary min-heap of slots by a 64-bit key; the keys are adjacent, for the cache. Each slot knows
 * its position, so that any slot can be removed. Derived: recovery rebuilds it. */
#ifndef SHMQ_QUEUE_HEAP_H
#define SHMQ_QUEUE_HEAP_H

#include "queue/queue.h"

struct shmq_heap {
    struct shmq_queue *q;
    uint64_t *keys;
    uint32_t *slots;
    uint32_t *len;        /* in the header                            */
    size_t position;      /* offset of the slot's field for its position */
};

struct shmq_heap shmq_timer_heap(struct shmq_queue *q);
struct shmq_heap shmq_order_heap(struct shmq_queue *q);

void shmq_heap_push(const struct shmq_heap *heap, uint32_t slot, uint64_t key);

/* Removes the slot. SHMQ_NIL keys and positions out of range mark the handle as damaged. */
void shmq_heap_remove(const struct shmq_heap *heap, uint32_t slot);

/* Appends without keeping the order; must be followed by shmq_heap_build. */
void shmq_heap_append(const struct shmq_heap *heap, uint32_t slot, uint64_t key);

/* Orders all entries, in linear time. */
void shmq_heap_build(const struct shmq_heap *heap);

/* The length, limited to the slots that exist. */
static inline uint32_t shmq_heap_len(const struct shmq_heap *heap)
{
    uint32_t len = *heap->len;

    if (__builtin_expect(len > heap->q->h->slots_made, 0)) {
        heap->q->damaged = true;
        return 0;
    }
    return len;
}

#endif
