#include "queue/index.h"

void shmq_order_insert(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_header *h = q->h;
    uint32_t priority = shmq_priority_of(s);
    struct shmq_list *fifo = &h->fifo[priority];

    if (fifo->tail == SHMQ_NIL || shmq_slot_at(q, fifo->tail)->seq < s->seq) {
        shmq_set_where(s, SHMQ_IN_FIFO);
        shmq_list_append(q, fifo, s);
        SET(h->fifo_mask, h->fifo_mask | 1u << priority);
    } else {
        struct shmq_heap heap = shmq_order_heap(q);

        shmq_set_where(s, SHMQ_IN_ORDER);
        shmq_heap_push(&heap, shmq_index_of(q, s), shmq_key_of(s));
    }
    shmq_set_ready(h, shmq_ready(h) + 1);
    q->arrived = true;
}

void shmq_order_remove(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_header *h = q->h;
    uint32_t priority = shmq_priority_of(s);

    if (shmq_where_of(s) == SHMQ_IN_FIFO) {
        shmq_list_remove(q, &h->fifo[priority], s);
        if (h->fifo[priority].head == SHMQ_NIL)
            SET(h->fifo_mask, h->fifo_mask & ~(1u << priority));
    } else if (shmq_where_of(s) == SHMQ_IN_ORDER) {
        struct shmq_heap heap = shmq_order_heap(q);

        shmq_heap_remove(&heap, shmq_index_of(q, s));
    } else {
        q->damaged = true;
        return;
    }
    shmq_set_where(s, SHMQ_NOWHERE);
    shmq_set_ready(h, shmq_ready(h) - 1);
}

uint32_t shmq_order_first(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;
    uint32_t best = SHMQ_NIL;

    if (h->fifo_mask)
        best = h->fifo[(31 - (uint32_t)__builtin_clz(h->fifo_mask)) % SHMQ_MAX_PRIORITIES].head;
    if (h->order_len) {
        struct shmq_heap heap = shmq_order_heap(q);

        if (shmq_heap_len(&heap) &&
            (best == SHMQ_NIL || heap.keys[0] < shmq_key_of(shmq_slot_at(q, best))))
            best = heap.slots[0];
    }
    return best;
}

/* The heap is not sorted by sequence across priorities, so all of it is searched. */
uint32_t shmq_order_oldest(struct shmq_queue *q)
{
    struct shmq_heap heap = shmq_order_heap(q);
    uint32_t best = SHMQ_NIL, len = shmq_heap_len(&heap);
    uint64_t least = UINT64_MAX, seq;

    for (uint32_t priority = 0; priority < SHMQ_MAX_PRIORITIES; priority++) {
        uint32_t head = q->h->fifo[priority].head;

        if (head != SHMQ_NIL && (seq = shmq_slot_at(q, head)->seq) < least) {
            least = seq;
            best = head;
        }
    }
    for (uint32_t i = 0; i < len; i++)
        if ((seq = heap.keys[i] & ((1ull << 60) - 1)) < least) {
            least = seq;
            best = heap.slots[i];
        }
    return best;
}
