/* The heap of slots by a key, of which each slot knows its place. */
#include "fixture.h"
#include "queue/index.h"

#define SLOTS 200u

/* A queue of which SLOTS slots exist, all in use. */
static struct shmq_queue *queue_with_slots(void)
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = SLOTS);

    for (uint32_t i = 0; i < SLOTS; i++)
        put_bytes(q, 0);
    return q;
}

static void check_heap(const struct shmq_heap *heap)
{
    for (uint32_t at = 0; at < *heap->len; at++) {
        CHECK(!at || heap->keys[(at - 1) / 4] <= heap->keys[at]);
        CHECK_EQ(heap->q->slots[heap->slots[at]].timer_pos, at);
    }
}

static uint32_t pop(const struct shmq_heap *heap)
{
    uint32_t slot = heap->slots[0];

    shmq_heap_remove(heap, slot);
    return slot;
}

TEST("keys come out from the least to the greatest")
{
    struct shmq_queue *q = queue_with_slots();
    struct shmq_heap heap = shmq_timer_heap(q);

    for (uint32_t i = 0; i < SLOTS; i++)
        shmq_heap_push(&heap, i, i * 37 % SLOTS);
    for (uint64_t key = 0; key < SLOTS; key++) {
        CHECK_EQ(heap.keys[0], key);
        CHECK_EQ(pop(&heap) * 37 % SLOTS, key);
        check_heap(&heap);
    }
    CHECK_EQ(shmq_heap_len(&heap), 0);
}

TEST("entries that were appended in any order are put in order at once")
{
    struct shmq_queue *q = queue_with_slots();
    struct shmq_heap heap = shmq_timer_heap(q);

    for (uint32_t count = 0; count < SLOTS; count = count * 2 + 1) {
        SET(*heap.len, 0);
        for (uint32_t i = 0; i < count; i++)
            shmq_heap_append(&heap, i, (SLOTS - i) * 7919 % 101);
        shmq_heap_build(&heap);
        CHECK_EQ(shmq_heap_len(&heap), count);
        check_heap(&heap);
    }
}

TEST("a slot that is not at the place it names is not removed but noticed as damage")
{
    struct shmq_queue *q = queue_with_slots();
    struct shmq_heap heap = shmq_timer_heap(q);

    shmq_heap_push(&heap, 3, 10);
    shmq_heap_push(&heap, 4, 20);
    q->slots[5].timer_pos = 1;
    shmq_heap_remove(&heap, 5);
    CHECK(q->damaged);
    q->damaged = false;
    q->slots[4].timer_pos = UINT32_MAX;
    shmq_heap_remove(&heap, 4);
    CHECK(q->damaged);
    CHECK_EQ(shmq_heap_len(&heap), 2);
}

TEST("a length beyond the slots is noticed as damage and read as none")
{
    struct shmq_queue *q = queue_with_slots();
    struct shmq_heap heap = shmq_timer_heap(q);

    *heap.len = SLOTS + 1;
    CHECK_EQ(shmq_heap_len(&heap), 0);
    CHECK(q->damaged);
    *heap.len = SLOTS;
    q->damaged = false;
    q->h->slots_backed = SLOTS;
    shmq_heap_push(&heap, 0, 0);
    CHECK(q->damaged);
    *heap.len = 0;
}

TEST("whatever is pushed and removed, the least key of what is left stands first")
{
    struct shmq_queue *q = queue_with_slots();
    struct shmq_heap heap = shmq_timer_heap(q);
    struct chance chance = chance_of(2);
    uint64_t keys[SLOTS];
    bool in[SLOTS] = {false};

    for (int step = 0; step < 20000; step++) {
        uint32_t slot = (uint32_t)chance_below(&chance, SLOTS);
        uint64_t least = UINT64_MAX;

        if (in[slot]) {
            shmq_heap_remove(&heap, slot);
        } else {
            keys[slot] = chance_below(&chance, 50);
            shmq_heap_push(&heap, slot, keys[slot]);
        }
        in[slot] = !in[slot];
        for (uint32_t i = 0; i < SLOTS; i++)
            if (in[i] && keys[i] < least)
                least = keys[i];
        CHECK_EQ(least, *heap.len ? heap.keys[0] : UINT64_MAX);
        if (step % 64 == 0)
            check_heap(&heap);
    }
    CHECK(!q->damaged);
}
