#include "queue/index.h"

#include "base/clock.h"

int64_t shmq_due_of(const struct shmq_slot *s)
{
    uint64_t word = shmq_word(s);

    if (shmq_state_of(word) == SHMQ_READY)
        return s->expires;
    if (shmq_state_of(word) == SHMQ_DELAYED && word & SHMQ_F_TTL && s->expires < s->deadline)
        return s->expires;
    return s->deadline;
}

void shmq_timer_set(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_heap heap = shmq_timer_heap(q);
    int64_t due = shmq_due_of(s);

    shmq_heap_push(&heap, shmq_index_of(q, s), (uint64_t)due);
    shmq_tick_by(q->h, due);
}

void shmq_timer_unset(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_heap heap = shmq_timer_heap(q);

    shmq_heap_remove(&heap, shmq_index_of(q, s));
}

void shmq_timer_lease(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_list *leases = &q->h->leases;
    int64_t last = leases->tail == SHMQ_NIL ? INT64_MIN : shmq_slot_at(q, leases->tail)->deadline;

    if (last > s->deadline && last - s->deadline <= SHMQ_COARSE && !shmq_is_exact(q))
        SET_ATOMIC(s->deadline, last); /* only our time was coarser */
    if (last > s->deadline) {
        shmq_set_where(s, SHMQ_NOWHERE);
        shmq_timer_set(q, s);
        return;
    }
    shmq_set_where(s, SHMQ_IN_LEASES);
    shmq_list_append(q, leases, s);
    shmq_tick_by(q->h, s->deadline);
}

void shmq_timer_unlease(struct shmq_queue *q, struct shmq_slot *s)
{
    if (shmq_where_of(s) != SHMQ_IN_LEASES) {
        shmq_timer_unset(q, s);
        return;
    }
    shmq_list_remove(q, &q->h->leases, s);
    shmq_set_where(s, SHMQ_NOWHERE);
}

uint32_t shmq_first_due(struct shmq_queue *q, int64_t *due)
{
    struct shmq_heap heap = shmq_timer_heap(q);
    uint32_t first = q->h->leases.head;

    *due = first == SHMQ_NIL ? INT64_MAX : shmq_slot_at(q, first)->deadline;
    if (shmq_heap_len(&heap) && (int64_t)heap.keys[0] < *due) {
        *due = (int64_t)heap.keys[0];
        first = heap.slots[0];
    }
    return first;
}

int64_t shmq_next_due(struct shmq_queue *q)
{
    int64_t due;

    shmq_first_due(q, &due);
    return due;
}
