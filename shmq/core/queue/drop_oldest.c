#include "queue/drop_oldest.h"

#include "queue/arena.h"
#include "queue/transition.h"
#include "queue/ready_order.h"
#include "queue/slot.h"

/* The visible message to drop next. Dropping one that has a view would make no room. */
static uint32_t oldest_visible(struct shmq_queue *q)
{
    uint32_t at = shmq_order_oldest(q);
    uint64_t least = UINT64_MAX;

    if (!q->h->visible || (at != SHMQ_NIL && !shmq_slot_at(q, at)->pins))
        return at;
    at = SHMQ_NIL;
    for (uint32_t i = 0; i < q->h->slots_made; i++) {
        struct shmq_slot *s = &q->slots[i];

        if (shmq_state_of(shmq_word(s)) == SHMQ_READY && !s->pins && s->seq < least) {
            least = s->seq;
            at = i;
        }
    }
    return at;
}

static void mark_droppable(struct shmq_queue *q, bool used)
{
    for (uint32_t i = 0; i < q->h->slots_made; i++) {
        struct shmq_slot *s = &q->slots[i];

        if (shmq_state_of(shmq_word(s)) != SHMQ_READY || !s->units || s->pins)
            continue;
        if (used)
            (void)shmq_arena_claim(q, s->block, s->units);
        else
            shmq_arena_give(q, s->block, s->units);
    }
}

/* Whether `units` would fit if every visible message were dropped. The bitmap is derived: their
 * units are marked free, counted, and marked used again. */
static bool could_fit(struct shmq_queue *q, uint32_t units)
{
    uint32_t hint = q->h->units_hint;
    bool fits;

    if (!units)
        return true;
    mark_droppable(q, false);
    fits = shmq_arena_largest(q) >= units;
    mark_droppable(q, true);
    SET(q->h->units_hint, hint);
    return fits;
}

static void drop(struct shmq_queue *q, struct shmq_slot *s)
{
    shmq_withdraw(q, s);
    shmq_leave_group(q, s);
    SET(q->h->dropped, q->h->dropped + 1);
    shmq_slot_free(q, s);
}

/* Takes a slot, dropping the oldest messages to make room; drops none if that would not be
 * enough. If a journal must record the drops first, the room comes when it has: until then the
 * queue is full, and nothing more is dropped. */
static int drop_and_take(struct shmq_queue *q, uint64_t bytes, uint32_t *at)
{
    uint32_t units = shmq_units_for(q, bytes), oldest = oldest_visible(q);
    int status = SHMQ_FULL;

    if (oldest == SHMQ_NIL || q->h->spent)
        return SHMQ_FULL;
    if (shmq_slot_at(q, oldest)->units < units) {
        shmq_slot_drop_cached(q);
        if (!could_fit(q, units))
            return SHMQ_FULL;
    }
    while (status == SHMQ_FULL && oldest != SHMQ_NIL && !q->h->spent && !q->damaged) {
        drop(q, shmq_slot_at(q, oldest));
        status = shmq_slot_take(q, bytes, at);
        oldest = oldest_visible(q);
    }
    return status;
}

int shmq_take_or_drop(struct shmq_queue *q, uint64_t bytes, uint32_t *at)
{
    int status = shmq_slot_take(q, bytes, at);

    if (status == SHMQ_FULL && q->h->options.overflow == SHMQ_DROP_OLDEST)
        return drop_and_take(q, bytes, at);
    return status;
}
