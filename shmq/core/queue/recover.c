#include "queue/recover.h"

#include "queue/amend.h"
#include "queue/change_hints.h"
#include "queue/index.h"
#include "queue/message.h"
#include "queue/put_ring.h"
#include "queue/segment.h"
#include "queue/slot.h"
#include "queue/transition.h"
#include "queue/wakeup.h"

static void forget_indexes(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;

    shmq_set_ready(h, 0);
    SET(h->visible, 0);
    SET_RELAXED(h->amended, 0);
    SET(h->amended_units, 0);
    SET_ATOMIC(h->live, 0);
    SET(h->delayed, 0);
    SET(h->leased, 0);
    SET(h->dead, 0);
    SET(h->staged, 0);
    SET(h->spent, 0);
    SET(h->fifo_mask, 0);
    SET(h->order_len, 0);
    SET(h->timer_len, 0);
    SET(h->groups, 0);
    SET(h->groups_made, 0);
    SET(h->group_free, SHMQ_NIL);
    shmq_list_clear(&h->leases);
    shmq_list_clear(&h->dying);
    for (int p = 0; p < SHMQ_MAX_PRIORITIES; p++)
        shmq_list_clear(&h->fifo[p]);
    shmq_put_ring_clear(h);
    for (int c = 0; c < SHMQ_CLASSES; c++)
        SET(h->free[c], SHMQ_NIL);
    for (uint32_t i = 0; i < h->group_buckets && i < q->geo.group_buckets_max; i++)
        q->group_buckets[i] = SHMQ_NIL;
    shmq_arena_clear(q);
}

static void recount_sleepers(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;
    uint32_t asleep[2] = {0, 0}, watchers[2] = {0, 0};

    for (uint32_t at = 0; h->holders_backed && at < SHMQ_HOLDERS; at++)
        SET(q->holders[at].leases, 0);

    for (uint32_t at = 0; at < h->attachments_made; at++) {
        struct shmq_attachment *a = &q->attachments[at];

        SET(a->leases, 0);
        for (int event = 0; a->process && event < 2; event++) {
            asleep[event] += a->asleep[event];
            watchers[event] += a->watchers[event];
        }
    }
    for (int event = 0; event < 2; event++) {
        SET_ATOMIC(h->asleep[event], asleep[event]);
        SET(h->watchers[event], watchers[event]);
    }
}

static void append(struct shmq_heap heap, uint32_t at, uint64_t key)
{
    shmq_heap_append(&heap, at, key);
}

/* Puts a READY slot at an end of its priority's list, if its sequence number belongs there. The
 * slots of a queue that was filled in order, and is visited from the last slot to the first, all go
 * to the list: it takes one cache line of each, and no sorting. */
static bool list_ready(struct shmq_queue *q, struct shmq_slot *s)
{
    uint32_t priority = shmq_priority_of(s);
    struct shmq_list *fifo = &q->h->fifo[priority];

    if (fifo->head == SHMQ_NIL || s->seq < shmq_slot_at(q, fifo->head)->seq)
        shmq_list_prepend(q, fifo, s);
    else if (s->seq > shmq_slot_at(q, fifo->tail)->seq)
        shmq_list_append(q, fifo, s);
    else
        return false;
    shmq_set_where(s, SHMQ_IN_FIFO);
    SET(q->h->fifo_mask, q->h->fifo_mask | 1u << priority);
    return true;
}

static void index_ready(struct shmq_queue *q, struct shmq_slot *s, uint32_t at, uint64_t word)
{
    SET(q->h->visible, q->h->visible + 1);
    if (word & SHMQ_F_TTL)
        append(shmq_timer_heap(q), at, (uint64_t)s->expires);
    if (word & SHMQ_F_GROUPED) {
        shmq_group_rebuild_behind(q, s);
        return;
    }
    if (!list_ready(q, s)) {
        shmq_set_where(s, SHMQ_IN_ORDER);
        append(shmq_order_heap(q), at, shmq_key_of(s));
    }
    shmq_set_ready(q->h, shmq_ready(q->h) + 1);
}

/* Puts one slot that is not FREE into the indexes. */
static void index_live(struct shmq_queue *q, struct shmq_slot *s, uint32_t at, uint64_t word)
{
    struct shmq_header *h = q->h;
    enum shmq_state state = shmq_state_of(word);

    if (word & SHMQ_F_GROUPED && shmq_group_join(q, s))
        q->damaged = true; /* the records had memory before, so they have it now */
    shmq_set_where(s, SHMQ_NOWHERE);
    switch (state) {
    case SHMQ_READY: index_ready(q, s, at, word); break;
    case SHMQ_DELAYED:
        SET(h->delayed, h->delayed + 1);
        append(shmq_timer_heap(q), at, (uint64_t)shmq_due_of(s));
        if (word & SHMQ_F_HOLDS)
            shmq_group_rebuild_flight(q, s);
        break;
    case SHMQ_LEASED:
        shmq_count_lease(q, s, 1);
        append(shmq_timer_heap(q), at, (uint64_t)s->deadline);
        if (word & SHMQ_F_GROUPED)
            shmq_group_rebuild_flight(q, s);
        break;
    case SHMQ_DEAD:
        SET(h->dead, h->dead + 1);
        shmq_set_where(s, SHMQ_IN_DYING);
        shmq_list_append(q, &h->dying, s);
        break;
    case SHMQ_MOVING: SET(h->dead, h->dead + 1); break;
    case SHMQ_STAGED: SET(h->staged, h->staged + 1); break;
    case SHMQ_SPENT: SET(h->spent, h->spent + 1); break;
    case SHMQ_FILLING:
    case SHMQ_ZOMBIE: break;
    default: q->damaged = true;
    }
}

/* A settled slot becomes FREE, SPENT until the journal records it, or ZOMBIE while it has views. */
static uint64_t settled(struct shmq_queue *q, struct shmq_slot *s, uint64_t word)
{
    enum shmq_state state = shmq_state_of(word);

    if (state != SHMQ_ACKED && state != SHMQ_SPENT && (state != SHMQ_ZOMBIE || s->pins))
        return word;
    if (state == SHMQ_ACKED)
        SET(q->h->acked, q->h->acked + 1);
    shmq_conclude(q, s);
    return shmq_word(s);
}

/* FREE slots lose their blocks: only live slots own parts of the arena. */
static void index_slot(struct shmq_queue *q, uint32_t at)
{
    struct shmq_slot *s = shmq_slot_at(q, at);
    uint64_t word = shmq_word(s);

    word = settled(q, s, word);
    shmq_rebuild_amended(q, at, shmq_state_of(word) != SHMQ_FREE);
    if (shmq_state_of(word) == SHMQ_FREE) {
        SET(s->units, 0);
        SET(s->pins, 0);
        shmq_slot_lose_origin(s);
        SET(s->next, q->h->free[0]);
        SET(q->h->free[0], at);
        return;
    }
    if (s->units && !shmq_arena_claim(q, s->block, s->units))
        q->damaged = true;
    SET_ATOMIC(q->h->live, q->h->live + 1);
    index_live(q, s, at, word);
}

static bool sane(struct shmq_queue *q)
{
    const struct shmq_header *h = q->h;

    return h->slots_made <= q->geo.slots_max && h->slots_backed <= q->geo.slots_max &&
           h->slots_made <= h->slots_backed && h->units_backed <= q->geo.units &&
           h->groups_backed <= q->geo.slots_max && h->amended_backed <= q->geo.slots_max &&
           h->attachments_made <= SHMQ_MAX_ATTACHMENTS;
}

/* Slots above the highest one in use become as if never made. */
static void trim(struct shmq_queue *q)
{
    uint32_t made = q->h->slots_made;

    while (made && (shmq_state_of(shmq_word(&q->slots[made - 1])) == SHMQ_FREE ||
                    (shmq_state_of(shmq_word(&q->slots[made - 1])) == SHMQ_ZOMBIE &&
                     !q->slots[made - 1].pins)))
        made--;
    for (uint32_t at = made; at < q->h->slots_made; at++) {
        shmq_rebuild_amended(q, at, false);
        shmq_commit(&q->slots[at], 0);
    }
    SET_ATOMIC(q->h->slots_made, made);
}

int shmq_rebuild(struct shmq_queue *q)
{
    struct shmq_heap timers = shmq_timer_heap(q), order = shmq_order_heap(q);

    if (!sane(q))
        return SHMQ_DAMAGED;
    forget_indexes(q);
    recount_sleepers(q);
    shmq_settle_parties(q);
    trim(q);
    for (uint32_t at = q->h->slots_made; at-- > 0 && !q->damaged;)
        index_slot(q, at);
    shmq_heap_build(&timers);
    shmq_heap_build(&order);
    shmq_group_rebuild_done(q);
    shmq_dedupe_rebuild(q);
    shmq_lose_hints(q);
    SET_ATOMIC(q->h->next_tick, 0);
    SET(q->h->alarm, INT64_MAX);
    q->freed = SHMQ_MAX_CAPACITY; /* everyone may look; to be added to, so not the greatest */
    return shmq_outcome(q, SHMQ_OK);
}

/* Settles the id of the put that the death interrupted, if that put was committed. */
static void settle_dedupe(struct shmq_queue *q)
{
    uint64_t pending = shmq_dedupe_pending(q);

    if (!pending || pending != q->h->last_seq)
        return;
    for (uint32_t at = 0; at < q->h->slots_made; at++)
        if (shmq_state_of(shmq_word(&q->slots[at])) > SHMQ_STAGED && q->slots[at].seq == pending)
            SET(q->h->dedupe_tail, q->h->dedupe_tail + 1);
}

int shmq_recover(struct shmq_queue *q)
{
    if (!sane(q))
        return SHMQ_DAMAGED;
    settle_dedupe(q);
    SET(q->h->recoveries, q->h->recoveries + 1);
    return shmq_rebuild(q);
}

/* ---- purge ---- */

/* Frees every visible and delayed message and rebuilds everything derived, which is linear,
 * whatever the messages' groups, priorities and timers. */
int shmq_purge(struct shmq_queue *q, uint64_t *removed)
{
    int status;

    *removed = 0;
    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];
        uint64_t word = shmq_word(s);

        if (shmq_state_of(word) != SHMQ_READY && shmq_state_of(word) != SHMQ_DELAYED)
            continue;
        shmq_conclude(q, s);
        ++*removed;
    }
    if ((status = shmq_rebuild(q)))
        return status;
    shmq_give_back(q, shmq_arena_top(q));
    return SHMQ_OK;
}
