#include "queue/index.h"

#include "queue/segment.h"

/* ---- the pairing heap: child, siblings by next, prev = left sibling or parent ---- */
/* Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, Algorithmica 1 (1986). */

static uint32_t meld(struct shmq_queue *q, uint32_t a, uint32_t b)
{
    struct shmq_slot *top, *low;

    if (a == SHMQ_NIL)
        return b;
    if (b == SHMQ_NIL)
        return a;
    if (shmq_key_of(shmq_slot_at(q, b)) < shmq_key_of(shmq_slot_at(q, a))) {
        uint32_t swap = a;
        a = b;
        b = swap;
    }
    top = shmq_slot_at(q, a);
    low = shmq_slot_at(q, b);
    SET(low->next, top->child);
    if (top->child != SHMQ_NIL)
        SET(shmq_slot_at(q, top->child)->prev, b);
    SET(low->prev, a);
    SET(top->child, b);
    return a;
}

/* Melds a list of siblings: in pairs from the left, then all from the right. */
static uint32_t meld_siblings(struct shmq_queue *q, uint32_t first)
{
    uint32_t pairs = SHMQ_NIL, root = SHMQ_NIL, guard = q->h->slots_made + 1;

    while (first != SHMQ_NIL && guard--) {
        uint32_t second = shmq_slot_at(q, first)->next;
        uint32_t rest = second == SHMQ_NIL ? SHMQ_NIL : shmq_slot_at(q, second)->next;
        uint32_t pair;

        SET(shmq_slot_at(q, first)->next, SHMQ_NIL);
        if (second != SHMQ_NIL)
            SET(shmq_slot_at(q, second)->next, SHMQ_NIL);
        pair = meld(q, first, second);
        SET(shmq_slot_at(q, pair)->next, pairs);
        pairs = pair;
        first = rest;
    }
    while (pairs != SHMQ_NIL && guard--) {
        uint32_t rest = shmq_slot_at(q, pairs)->next;

        SET(shmq_slot_at(q, pairs)->next, SHMQ_NIL);
        root = meld(q, root, pairs);
        pairs = rest;
    }
    return root;
}

static void heap_insert(struct shmq_queue *q, struct shmq_group *g, struct shmq_slot *s)
{
    SET(s->child, SHMQ_NIL);
    SET(s->next, SHMQ_NIL);
    SET(g->heap, meld(q, g->heap, shmq_index_of(q, s)));
}

static void heap_remove(struct shmq_queue *q, struct shmq_group *g, struct shmq_slot *s)
{
    uint32_t at = shmq_index_of(q, s), below = meld_siblings(q, s->child);
    struct shmq_slot *left;

    if (g->heap == at) {
        SET(g->heap, below);
        return;
    }
    left = shmq_slot_at(q, s->prev);
    if (left->child == at)
        SET(left->child, s->next);
    else
        SET(left->next, s->next);
    if (s->next != SHMQ_NIL)
        SET(shmq_slot_at(q, s->next)->prev, s->prev);
    SET(g->heap, meld(q, g->heap, below));
}

/* ---- behind the front ---- */

static void put_behind(struct shmq_queue *q, struct shmq_group *g, struct shmq_slot *s)
{
    struct shmq_list run = {g->head, g->tail};

    if (run.tail == SHMQ_NIL || shmq_key_of(shmq_slot_at(q, run.tail)) < shmq_key_of(s)) {
        shmq_set_where(s, SHMQ_IN_GROUP_RUN);
        shmq_list_append(q, &run, s);
        SET(g->head, run.head);
        SET(g->tail, run.tail);
    } else {
        shmq_set_where(s, SHMQ_IN_GROUP_HEAP);
        heap_insert(q, g, s);
    }
}

static void take_from_behind(struct shmq_queue *q, struct shmq_group *g, struct shmq_slot *s)
{
    if (shmq_where_of(s) == SHMQ_IN_GROUP_RUN) {
        struct shmq_list run = {g->head, g->tail};

        shmq_list_remove(q, &run, s);
        SET(g->head, run.head);
        SET(g->tail, run.tail);
    } else if (shmq_where_of(s) == SHMQ_IN_GROUP_HEAP) {
        heap_remove(q, g, s);
    } else {
        q->damaged = true;
    }
    shmq_set_where(s, SHMQ_NOWHERE);
}

static uint32_t best_behind(struct shmq_queue *q, const struct shmq_group *g)
{
    if (g->head == SHMQ_NIL)
        return g->heap;
    if (g->heap == SHMQ_NIL)
        return g->head;
    return shmq_key_of(shmq_slot_at(q, g->heap)) < shmq_key_of(shmq_slot_at(q, g->head)) ? g->heap
                                                                                         : g->head;
}

static void make_front(struct shmq_queue *q, struct shmq_group *g, struct shmq_slot *s)
{
    SET(g->front, shmq_index_of(q, s));
    shmq_order_insert(q, s);
}

/* The group has no front: makes its best message the front. */
static void choose_front(struct shmq_queue *q, struct shmq_group *g)
{
    uint32_t best = best_behind(q, g);

    SET(g->front, SHMQ_NIL);
    if (best != SHMQ_NIL) {
        take_from_behind(q, g, shmq_slot_at(q, best));
        make_front(q, g, shmq_slot_at(q, best));
    }
}

/* ---- in flight: a list whose head is the front ---- */

static void fly(struct shmq_queue *q, struct shmq_group *g, struct shmq_slot *s)
{
    uint32_t at = shmq_index_of(q, s);

    SET(s->prev, SHMQ_NIL);
    SET(s->next, g->front);
    if (g->front != SHMQ_NIL)
        SET(shmq_slot_at(q, g->front)->prev, at);
    SET(g->front, at);
    shmq_set_where(s, SHMQ_IN_FLIGHT);
}

static void land(struct shmq_queue *q, struct shmq_group *g, struct shmq_slot *s)
{
    if (g->front == shmq_index_of(q, s))
        SET(g->front, s->next);
    else
        SET(shmq_slot_at(q, s->prev)->next, s->next);
    if (s->next != SHMQ_NIL)
        SET(shmq_slot_at(q, s->next)->prev, s->prev);
    shmq_set_where(s, SHMQ_NOWHERE);
}

/* ---- records ---- */

static uint32_t *bucket_of(struct shmq_queue *q, uint64_t hash)
{
    return &q->group_buckets[shmq_bucket_of(q, hash)];
}

static uint32_t find(struct shmq_queue *q, uint64_t hash)
{
    uint32_t at, guard = q->h->groups_made + 1;

    if (!q->h->group_buckets)
        return SHMQ_NIL;
    for (at = *bucket_of(q, hash); at != SHMQ_NIL && guard--; at = shmq_group_at(q, at)->chain)
        if (shmq_group_at(q, at)->hash == hash)
            return at;
    return SHMQ_NIL;
}

static void fetch_slot(struct shmq_queue *q, uint32_t at)
{
    if (at < q->h->slots_made)
        shmq_fetch(&q->slots[at]);
}

/* The same for a message that is leased soon: both lines of its slot. */
static void fetch_message(struct shmq_queue *q, uint32_t at)
{
    if (at >= q->h->slots_made)
        return;
    shmq_fetch_to_write(&q->slots[at]);
    shmq_fetch(&q->slots[at].expires);
}

void shmq_group_fetch(struct shmq_queue *q, uint64_t hash)
{
    uint32_t at = q->h->group_buckets ? *bucket_of(q, hash) : SHMQ_NIL;

    if (at < q->h->groups_made)
        shmq_fetch_to_write(&q->groups[at]);
}

static int make(struct shmq_queue *q, uint64_t hash, uint32_t *at)
{
    struct shmq_header *h = q->h;
    uint32_t *bucket;
    struct shmq_group *g;
    int status;

    if (h->group_free != SHMQ_NIL) {
        *at = h->group_free;
        SET(h->group_free, shmq_group_at(q, *at)->chain);
    } else {
        if ((status = shmq_back_groups(q, h->groups_made + 1)))
            return status;
        *at = h->groups_made;
        SET(h->groups_made, *at + 1);
    }
    bucket = bucket_of(q, hash);
    g = shmq_group_at(q, *at);
    *g = (struct shmq_group){.hash = hash,
                             .head = SHMQ_NIL,
                             .tail = SHMQ_NIL,
                             .heap = SHMQ_NIL,
                             .front = SHMQ_NIL,
                             .chain = *bucket};
    shmq_mark();
    SET(*bucket, *at);
    SET(h->groups, h->groups + 1);
    return SHMQ_OK;
}

static void unmake(struct shmq_queue *q, uint32_t at)
{
    struct shmq_group *g = shmq_group_at(q, at);
    uint32_t *link = bucket_of(q, g->hash), guard = q->h->groups_made + 1;

    while (*link != at && *link != SHMQ_NIL && guard--)
        link = &shmq_group_at(q, *link)->chain;
    if (*link != at) {
        q->damaged = true;
        return;
    }
    SET(*link, g->chain);
    SET(g->chain, q->h->group_free);
    SET(q->h->group_free, at);
    SET(q->h->groups, q->h->groups - 1);
}

int shmq_group_spread(struct shmq_queue *q, uint32_t capacity)
{
    uint32_t had = q->h->group_buckets, count = shmq_power_up(capacity);
    uint32_t guard = q->h->groups_made + 1;
    int status;

    if (!had || count <= had)
        return SHMQ_OK;
    if ((status = shmq_back_buckets(q, count)))
        return status;
    for (uint32_t i = 0; i < had && i < count; i++) {
        uint32_t at = q->group_buckets[i], next;

        SET(q->group_buckets[i], SHMQ_NIL);
        for (; at != SHMQ_NIL && guard--; at = next) {
            struct shmq_group *g = shmq_group_at(q, at);
            uint32_t *bucket = bucket_of(q, g->hash);

            next = g->chain;
            SET(g->chain, *bucket);
            SET(*bucket, at);
        }
    }
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_group_reserve(struct shmq_queue *q, uint64_t hash)
{
    if (q->h->group_free != SHMQ_NIL || find(q, hash) != SHMQ_NIL)
        return SHMQ_OK;
    return shmq_back_groups(q, q->h->groups_made + 1);
}

int shmq_group_join(struct shmq_queue *q, struct shmq_slot *s)
{
    uint32_t at = find(q, s->group);
    struct shmq_group *g;
    int status;

    if (at == SHMQ_NIL && (status = make(q, s->group, &at)))
        return status;
    g = shmq_group_at(q, at);
    fetch_slot(q, g->front); /* for shmq_group_ready */
    fetch_slot(q, g->tail);
    SET(s->group_at, at);
    SET(g->count, g->count + 1);
    return SHMQ_OK;
}

void shmq_group_ready(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_group *g = shmq_group_at(q, s->group_at);
    uint32_t at = shmq_index_of(q, s), best = best_behind(q, g);
    struct shmq_slot *front;

    if (shmq_where_of(s) == SHMQ_IN_FLIGHT)
        land(q, g, s);
    if (g->front == at || g->front == SHMQ_NIL) {
        if (best == SHMQ_NIL || shmq_key_of(s) < shmq_key_of(shmq_slot_at(q, best))) {
            make_front(q, g, s);
        } else {
            put_behind(q, g, s);
            choose_front(q, g);
        }
        return;
    }
    front = shmq_slot_at(q, g->front);
    if (shmq_state_of(shmq_word(front)) == SHMQ_READY && shmq_key_of(s) < shmq_key_of(front)) {
        shmq_order_remove(q, front);
        put_behind(q, g, front);
        make_front(q, g, s);
    } else {
        put_behind(q, g, s);
    }
}

void shmq_group_unready(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_group *g = shmq_group_at(q, s->group_at);

    if (g->front == shmq_index_of(q, s))
        shmq_order_remove(q, s);
    else
        take_from_behind(q, g, s);
}

bool shmq_group_bring_forward(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_group *g = shmq_group_at(q, s->group_at);
    struct shmq_slot *front;

    if (g->front == shmq_index_of(q, s))
        return true;
    front = shmq_slot_at(q, g->front);
    if (shmq_state_of(shmq_word(front)) != SHMQ_READY)
        return false;
    take_from_behind(q, g, s);
    shmq_order_remove(q, front);
    put_behind(q, g, front);
    make_front(q, g, s);
    return !q->damaged;
}

void shmq_group_leased(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_group *g = shmq_group_at(q, s->group_at);

    if (g->front != shmq_index_of(q, s))
        q->damaged = true;
    fetch_message(q, g->head); /* it comes next, once this one is settled */
    shmq_order_remove(q, s);
}

void shmq_group_fly(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_group *g = shmq_group_at(q, s->group_at);

    fetch_message(q, g->head);
    if (g->front == shmq_index_of(q, s)) {
        shmq_order_remove(q, s);
        SET(g->front, SHMQ_NIL);
    } else {
        take_from_behind(q, g, s);
    }
    fly(q, g, s);
}

uint32_t shmq_group_behind(struct shmq_queue *q, const struct shmq_slot *s)
{
    return best_behind(q, shmq_group_at(q, s->group_at));
}

void shmq_group_leave(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_group *g = shmq_group_at(q, s->group_at);
    bool last = g->front == shmq_index_of(q, s);

    if (shmq_where_of(s) == SHMQ_IN_FLIGHT) {
        land(q, g, s);
        last = g->front == SHMQ_NIL;
    }
    if (last)
        choose_front(q, g);
    SET(g->count, g->count - 1);
    if (!g->count)
        unmake(q, s->group_at);
}

/* ---- recovery ---- */

void shmq_group_rebuild_behind(struct shmq_queue *q, struct shmq_slot *s)
{
    put_behind(q, shmq_group_at(q, s->group_at), s);
}

void shmq_group_rebuild_flight(struct shmq_queue *q, struct shmq_slot *s)
{
    fly(q, shmq_group_at(q, s->group_at), s);
}

/* What is in flight is set; all READY messages of the other groups are behind. */
void shmq_group_rebuild_done(struct shmq_queue *q)
{
    for (uint32_t at = 0; at < q->h->groups_made; at++) {
        struct shmq_group *g = &q->groups[at];

        if (g->count && g->front == SHMQ_NIL)
            choose_front(q, g);
    }
}
