#include "queue/slot.h"

#include "queue/amend.h"
#include "queue/segment.h"
#include "queue/change_hints.h"
#include "queue/put_ring.h"

#define STOCK 31 /* slots prepared in addition to the one needed   */

/* The list of free slots for a block of so many units; 0: no block, or too large a one to keep. */
static inline uint32_t list_for(uint32_t units)
{
    return units <= SHMQ_SMALL_UNITS ? units : shmq_class_of(units) % SHMQ_CLASSES;
}

static inline uint32_t list_of(const struct shmq_slot *s) { return list_for(s->units); }

/* Offers the slot to the puts; if their ring is full, it waits in a list of the get side. */
static void push_free(struct shmq_queue *q, struct shmq_slot *s)
{
    uint32_t class = list_of(s);

    if (s->units && !class) { /* too large to keep    */
        uint32_t units = s->units;

        SET(s->units, 0);
        shmq_arena_give(q, s->block, units);
    }
    if (class)
        SET(q->h->units_cached, q->h->units_cached + s->units);
    if (class && shmq_return_slot(q, s, class))
        return;
    SET(s->next, q->h->free[class]);
    SET(q->h->free[class], shmq_index_of(q, s));
}

/* A slot reached through a damaged list is rejected unless it is a free slot of that class. */
static struct shmq_slot *pop(struct shmq_queue *q, uint32_t *list, uint32_t class)
{
    struct shmq_slot *s = shmq_slot_at(q, *list);

    if (shmq_state_of(shmq_word(s)) != SHMQ_FREE || list_of(s) != class)
        q->damaged = true;
    SET(*list, s->next);
    if (class)
        SET(q->h->units_cached, q->h->units_cached - s->units);
    return s;
}

static void give_block(struct shmq_queue *q, struct shmq_slot *s)
{
    uint32_t units = s->units;

    SET(s->units, 0);
    if (units)
        shmq_arena_give(q, s->block, units);
}

/* Returns the blocks of a list of free slots to the arena: all, or one. True if there was any. */
static bool give_list(struct shmq_queue *q, uint32_t *list, uint32_t class, bool all)
{
    bool any = false;

    while (*list != SHMQ_NIL && !q->damaged && (all || !any)) {
        struct shmq_slot *s = pop(q, list, class);

        give_block(q, s);
        push_free(q, s);
        any = true;
    }
    return any;
}

static bool give_cached(struct shmq_queue *q, bool all)
{
    bool any = false;

    shmq_collect_returned(q);
    for (uint32_t class = 1; class < SHMQ_CLASSES && (all || !any); class++)
        any = give_list(q, &q->h->free[class], class, all) || any;
    for (uint32_t class = 1; class < SHMQ_CLASSES && (all || !any); class++)
        any = give_list(q, &q->h->spare[class], class, all) || any;
    return any;
}

/* Takes a slot that was never used, if there is memory for it. */
static int take_new(struct shmq_queue *q, struct shmq_slot **s)
{
    struct shmq_header *h = q->h;
    int status = shmq_back_slots(q, h->slots_made + 1);

    if (status)
        return status;
    SET_ATOMIC(h->slots_made, h->slots_made + 1);
    *s = shmq_slot_at(q, h->slots_made - 1);
    SET((*s)->units, 0);
    return SHMQ_OK;
}

/* Takes a slot without a block: a freed one, a new one, or one that gives its block up. */
static int take_bare(struct shmq_queue *q, struct shmq_slot **s)
{
    struct shmq_header *h = q->h;
    int status = SHMQ_FULL;

    if (h->free[0] == SHMQ_NIL && h->slots_made < shmq_capacity(q) && !(status = take_new(q, s)))
        return SHMQ_OK;
    if (h->free[0] == SHMQ_NIL && !give_cached(q, false))
        return status;
    *s = pop(q, &h->free[0], 0);
    return SHMQ_OK;
}

/* Prepares free slots with blocks of that size for the next puts, in the order of their
 * addresses, as far as the queue has the memory already. */
static void stock(struct shmq_queue *q, uint32_t units, uint32_t class)
{
    struct shmq_header *h = q->h;
    uint32_t block, *link = &h->spare[class];
    struct shmq_slot *s;

    for (int i = 0; i < STOCK && !q->damaged; i++) {
        if (h->free[0] == SHMQ_NIL && h->slots_made >= h->slots_backed)
            return;
        if (shmq_arena_take(q, units, &block, false))
            return;
        if (take_bare(q, &s)) {
            shmq_arena_give(q, block, units);
            return;
        }
        SET(s->block, block);
        SET(s->units, units);
        SET(h->units_cached, h->units_cached + units);
        SET(s->next, SHMQ_NIL);
        SET(*link, shmq_index_of(q, s));
        link = &s->next;
    }
}

/* The put side's list from which a slot of that class is taken: freed slots for which the ring
 * had no room are moved there first. */
static uint32_t *spare_of(struct shmq_queue *q, uint32_t class)
{
    struct shmq_header *h = q->h;

    if (h->spare[class] == SHMQ_NIL) {
        SET(h->spare[class], h->free[class]);
        SET(h->free[class], SHMQ_NIL);
    }
    if (h->spare[class] == SHMQ_NIL)
        shmq_collect_returned(q);
    return &h->spare[class];
}

/* Ensures: the slot has a block of `units`. */
static int give_it_a_block(struct shmq_queue *q, struct shmq_slot *s, uint32_t units)
{
    uint32_t block;
    int status = shmq_arena_take(q, units, &block, true);

    if ((status == SHMQ_FULL || status == SHMQ_NO_SPACE) && give_cached(q, true))
        status = shmq_arena_take(q, units, &block, true);
    if (status) {
        push_free(q, s);
        return status;
    }
    SET(s->block, block);
    SET(s->units, units);
    return SHMQ_OK;
}

int shmq_slot_take(struct shmq_queue *q, uint64_t bytes, uint32_t *at)
{
    struct shmq_header *h = q->h;
    uint32_t units = shmq_units_for(q, bytes), class;
    struct shmq_slot *s;
    int status;

    if (h->live >= shmq_capacity(q))
        return SHMQ_FULL;
    class = list_for(units);
    if (class && *spare_of(q, class) != SHMQ_NIL) {
        s = pop(q, &h->spare[class], class);
        *at = shmq_index_of(q, s);
        return s->units == units && !q->damaged ? SHMQ_OK : SHMQ_DAMAGED;
    }
    if ((status = take_bare(q, &s)) || (units && (status = give_it_a_block(q, s, units))))
        return status;
    *at = shmq_index_of(q, s);
    if (class)
        stock(q, units, class);
    return q->damaged ? SHMQ_DAMAGED : SHMQ_OK;
}

void shmq_slot_drop_cached(struct shmq_queue *q) { (void)give_cached(q, true); }

void shmq_slot_untake(struct shmq_queue *q, struct shmq_slot *s) { push_free(q, s); }

void shmq_slot_born(struct shmq_queue *q) { SET_ATOMIC(q->h->live, q->h->live + 1); }

void shmq_slot_free(struct shmq_queue *q, struct shmq_slot *s)
{
    shmq_set_where(s, SHMQ_NOWHERE);
    if (q->journaled && shmq_spend(q, s))
        return;
    shmq_slot_release(q, s);
}

void shmq_slot_release(struct shmq_queue *q, struct shmq_slot *s)
{
    uint64_t serial = shmq_serial_of(shmq_word(s));

    if (q->journaled)
        shmq_slot_lose_origin(s);
    if (shmq_amended_of(q, s))
        shmq_drop_amended(q, s);
    if (s->pins) {
        shmq_commit(s, shmq_make_word(SHMQ_ZOMBIE, 0, 0, serial));
        return;
    }
    shmq_commit(s, shmq_make_word(SHMQ_FREE, 0, 0, serial));
    push_free(q, s);
    SET_ATOMIC(q->h->live, q->h->live - 1);
    q->freed++;
}
