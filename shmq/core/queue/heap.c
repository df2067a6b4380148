#include "queue/index.h"

#define ARITY 4u

struct shmq_heap shmq_timer_heap(struct shmq_queue *q)
{
    return (struct shmq_heap){q, q->timer_keys, q->timer_slots, &q->h->timer_len,
                              offsetof(struct shmq_slot, timer_pos)};
}

struct shmq_heap shmq_order_heap(struct shmq_queue *q)
{
    return (struct shmq_heap){q, q->order_keys, q->order_slots, &q->h->order_len,
                              offsetof(struct shmq_slot, order_pos)};
}

static uint32_t *place_of(const struct shmq_heap *heap, uint32_t slot)
{
    return (uint32_t *)((char *)shmq_slot_at(heap->q, slot) + heap->position);
}

static void put_at(const struct shmq_heap *heap, uint32_t at, uint32_t slot, uint64_t key)
{
    SET(heap->keys[at], key);
    SET(heap->slots[at], slot);
    SET(*place_of(heap, slot), at);
}

static void sift_up(const struct shmq_heap *heap, uint32_t at, uint32_t slot, uint64_t key)
{
    while (at) {
        uint32_t parent = (at - 1) / ARITY;

        if (heap->keys[parent] <= key)
            break;
        put_at(heap, at, heap->slots[parent], heap->keys[parent]);
        at = parent;
    }
    put_at(heap, at, slot, key);
}

static void sift_down(const struct shmq_heap *heap, uint32_t at, uint32_t slot, uint64_t key,
                      uint32_t len)
{
    for (;;) {
        uint64_t first = (uint64_t)at * ARITY + 1, last = first + ARITY;
        uint32_t least;

        if (first >= len)
            break;
        least = (uint32_t)first;
        for (uint64_t child = first + 1; child < last && child < len; child++)
            if (heap->keys[child] < heap->keys[least])
                least = (uint32_t)child;
        if (heap->keys[least] >= key)
            break;
        put_at(heap, at, heap->slots[least], heap->keys[least]);
        at = least;
    }
    put_at(heap, at, slot, key);
}

void shmq_heap_append(const struct shmq_heap *heap, uint32_t slot, uint64_t key)
{
    uint32_t len = shmq_heap_len(heap);

    if (len >= heap->q->h->slots_backed) {
        heap->q->damaged = true;
        return;
    }
    put_at(heap, len, slot, key);
    SET(*heap->len, len + 1);
}

void shmq_heap_push(const struct shmq_heap *heap, uint32_t slot, uint64_t key)
{
    uint32_t len = shmq_heap_len(heap);

    if (len >= heap->q->h->slots_backed) {
        heap->q->damaged = true;
        return;
    }
    SET(*heap->len, len + 1);
    sift_up(heap, len, slot, key);
}

void shmq_heap_remove(const struct shmq_heap *heap, uint32_t slot)
{
    uint32_t len = shmq_heap_len(heap), at = *place_of(heap, slot), last;
    uint64_t key;

    if (at >= len || heap->slots[at] != slot) {
        heap->q->damaged = true;
        return;
    }
    len--;
    SET(*heap->len, len);
    if (at == len)
        return;
    last = heap->slots[len];
    key = heap->keys[len];
    if (at && heap->keys[(at - 1) / ARITY] > key)
        sift_up(heap, at, last, key);
    else
        sift_down(heap, at, last, key, len);
}

void shmq_heap_build(const struct shmq_heap *heap)
{
    uint32_t len = shmq_heap_len(heap);

    for (uint32_t at = len / ARITY + 1; at-- > 0;)
        if (at < len)
            sift_down(heap, at, heap->slots[at], heap->keys[at], len);
}
