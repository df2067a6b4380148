#include "queue/filter.h"

#include "queue/index.h"
#include "queue/put_ring.h"
#include "queue/transition.h"

/* The cost of one look, and the budget while the lock is held: 256 messages for a filter of a few
 * comparisons, fewer for a longer one, or 4096 slots that are skipped. */
#define RUN 16u
#define A_FEW_BYTES 128u
#define PASS 1u
#define AT_ONCE (256u * RUN)

/* A heap of up to this size is searched in one go; a larger one by slots, because an entry of a
 * heap moves while the lock is free, and a slot does not. */
#define FEW 256u

/* The most looks of one search at each slot; this also ends a list that is circular by damage. */
#define ROUNDS 64u

/* A rebuild has moved everything. */
static void begin_anew(const struct shmq_queue *q, struct shmq_selection *selection)
{
    struct shmq_filter filter = selection->filter;
    uint64_t looked = selection->looked;

    shmq_select_begin(q, selection, &filter);
    selection->looked = looked;
}

void shmq_select_begin(const struct shmq_queue *q, struct shmq_selection *selection,
                       const struct shmq_filter *filter)
{
    *selection = (struct shmq_selection){
        .filter = *filter,
        .wall = shmq_wall(),
        .recoveries = q->h->recoveries,
        .priority = SHMQ_MAX_PRIORITIES - 1,
        .at = SHMQ_NIL,
        .best = SHMQ_NIL,
        .best_key = UINT64_MAX,
        .cost = RUN * (1 + filter->bytes / A_FEW_BYTES),
        .looks = AT_ONCE,
    };
}

void shmq_select_again(struct shmq_selection *selection) { selection->looks = AT_ONCE; }

/* Takes the cost of one look from the budget; whether there was enough. */
static bool spend(struct shmq_selection *c, uint32_t cost)
{
    if (!c->looks)
        return false;
    c->looks = c->looks > cost ? c->looks - cost : 0;
    c->looked++;
    return true;
}

static bool is_meant(struct shmq_queue *q, const struct shmq_selection *c, struct shmq_slot *s,
                     int64_t now)
{
    struct shmq_view view;

    if (shmq_has_expired(s, shmq_word(s), now))
        return false; /* its time has come: a tick removes it    */
    shmq_look(q, s, &view);
    return shmq_filter_matches(&c->filter, &(struct shmq_facts){
                                               .meta = view.meta,
                                               .meta_bytes = view.meta_bytes,
                                               .size = view.body_bytes,
                                               .seq = view.seq,
                                               .priority = view.priority,
                                               .codec = view.codec,
                                               .wall = c->wall,
                                           });
}

static bool is_in_order(const struct shmq_slot *s)
{
    enum shmq_where where = shmq_where_of(s);

    return shmq_state_of(shmq_word(s)) == SHMQ_READY &&
           (where == SHMQ_IN_FIFO || where == SHMQ_IN_ORDER);
}

/* ---- the heap ---- */

static void consider(struct shmq_queue *q, struct shmq_selection *c, struct shmq_slot *s,
                     int64_t now)
{
    uint64_t key = shmq_key_of(s);

    if (key >= c->best_key)
        return;
    c->looks = c->looks > c->cost ? c->looks - c->cost : 0;
    if (!is_meant(q, c, s, now))
        return;
    c->best = shmq_index_of(q, s);
    c->best_key = key;
}

static void forget_best(struct shmq_selection *c)
{
    c->best = SHMQ_NIL;
    c->best_key = UINT64_MAX;
    c->heap_seen = false;
    c->heap_at = 0;
}

/* Searches the heap; whether all of it was searched. If its first entry matches, it is the best,
 * and the others need not be searched. */
static bool look_through_heap(struct shmq_queue *q, struct shmq_selection *c, int64_t now)
{
    struct shmq_heap heap = shmq_order_heap(q);
    uint32_t len = shmq_heap_len(&heap);

    if (len && !c->heap_at)
        consider(q, c, shmq_slot_at(q, heap.slots[0]), now);
    if (!len || (c->best != SHMQ_NIL && c->best == heap.slots[0]))
        return true;
    if (len <= FEW && (uint64_t)len * c->cost <= AT_ONCE) {
        for (uint32_t i = 1; i < len; i++)
            consider(q, c, shmq_slot_at(q, heap.slots[i]), now);
        return true;
    }
    while (c->heap_at < q->h->slots_made && spend(c, PASS)) {
        struct shmq_slot *s = shmq_slot_at(q, c->heap_at++);

        if (shmq_where_of(s) == SHMQ_IN_ORDER && is_in_order(s))
            consider(q, c, s, now);
    }
    return c->heap_at >= q->h->slots_made;
}

/* ---- the lists ---- */

/* Where the search continues in the list of its priority. */
static uint32_t resume(struct shmq_queue *q, const struct shmq_selection *c)
{
    struct shmq_slot *s;

    if (c->at == SHMQ_NIL || c->at >= q->h->slots_made)
        return q->h->fifo[c->priority].head;
    s = shmq_slot_at(q, c->at);
    if (s->seq == c->seq && is_in_order(s) && shmq_where_of(s) == SHMQ_IN_FIFO &&
        shmq_priority_of(s) == (uint32_t)c->priority)
        return c->at;
    return q->h->fifo[c->priority].head; /* it is gone: messages seen before are skipped */
}

static void stop_at(struct shmq_queue *q, struct shmq_selection *c, uint32_t at)
{
    c->at = at;
    c->seq = at == SHMQ_NIL ? 0 : shmq_slot_at(q, at)->seq;
}

/* The next match of this priority that comes before the heap's best, or SHMQ_NIL: `*over` tells
 * whether there is none, or the budget is used up. */
static uint32_t next_of_list(struct shmq_queue *q, struct shmq_selection *c, int64_t now,
                             bool *over)
{
    uint32_t at = resume(q, c);

    *over = false;
    while (at != SHMQ_NIL && !q->damaged) {
        struct shmq_slot *s = shmq_slot_at(q, at);
        bool is_new = s->seq > c->seen;

        if (shmq_key_of(s) > c->best_key)
            break;
        if (!spend(c, is_new ? c->cost : PASS)) {
            stop_at(q, c, at);
            return SHMQ_NIL;
        }
        if (is_new) {
            c->seen = s->seq;
            if (is_meant(q, c, s, now)) {
                stop_at(q, c, s->next);
                return at;
            }
        }
        at = s->next;
    }
    stop_at(q, c, at);
    *over = true;
    return SHMQ_NIL;
}

/* The same for all priorities, from the highest on. */
static uint32_t next_of_lists(struct shmq_queue *q, struct shmq_selection *c, int64_t now)
{
    while (c->priority >= 0) {
        bool over;
        uint32_t at = next_of_list(q, c, now, &over);

        if (at != SHMQ_NIL || !over)
            return at;
        if (c->best != SHMQ_NIL && (uint64_t)(15 - c->priority) >= c->best_key >> 60)
            return SHMQ_NIL; /* later messages come after the heap's best       */
        c->priority--;
        c->at = SHMQ_NIL;
        c->seen = 0;
    }
    return SHMQ_NIL;
}

/* ---- both ---- */

/* The next match of all, or SHMQ_NIL: then `more` tells whether the search continues. */
static uint32_t next(struct shmq_queue *q, struct shmq_selection *c, int64_t now)
{
    uint32_t at;

    c->more = false;
    if (c->best != SHMQ_NIL) {
        struct shmq_slot *s = shmq_slot_at(q, c->best);

        if (!is_in_order(s) || shmq_key_of(s) != c->best_key)
            forget_best(c); /* another consumer has taken it */
    }
    if (!c->heap_seen)
        c->heap_seen = look_through_heap(q, c, now);
    c->more = !c->heap_seen;
    if (c->more)
        return SHMQ_NIL;
    at = next_of_lists(q, c, now);
    if (at != SHMQ_NIL)
        return at;
    c->more = !c->looks && c->priority >= 0;
    return c->more ? SHMQ_NIL : c->best;
}

int shmq_select(struct shmq_queue *q, struct shmq_selection *selection, int64_t now, bool handed,
                struct shmq_view *view)
{
    struct shmq_slot *s;
    uint32_t at;

    shmq_tick_if_due(q, now);
    shmq_inbox_take(q, SHMQ_RING);
    if (!selection->looked && q->h->next_tick <= now) {
        selection->more = true; /* one tick does only a limited amount */
        return shmq_outcome(q, SHMQ_EMPTY);
    }
    if (selection->recoveries != q->h->recoveries)
        begin_anew(q, selection);
    at = next(q, selection, now);
    if (selection->looked > (uint64_t)ROUNDS * (q->geo.slots_max + AT_ONCE))
        selection->more = false;
    if (at == SHMQ_NIL)
        return shmq_outcome(q, SHMQ_EMPTY);
    if (at == selection->best)
        forget_best(selection);
    s = shmq_slot_at(q, at);
    if (!is_in_order(s))
        return shmq_outcome(q, SHMQ_EMPTY);
    shmq_lease_this(q, s, now, handed, view);
    return shmq_outcome(q, SHMQ_OK);
}
