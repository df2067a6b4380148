#include "queue/recover.h"

#include <stdlib.h>
#include <string.h>

#include "queue/amend.h"
#include "queue/failures.h"
#include "queue/holder.h"
#include "queue/slot.h"
#include "queue/index.h"
#include "queue/segment.h"
#include "queue/wakeup.h"

#define EXPECT(condition, what) \
    do {                        \
        if (!(condition))       \
            return what;        \
    } while (0)

struct counts {
    uint32_t of[SHMQ_STATES];
    uint32_t ttl_ready, listed_leases, listed_free, grouped;
    uint32_t named, unnamed; /* leases of named holders, and of forgotten ones */
    uint32_t amended;
    uint64_t units, cached, amended_units;
    uint64_t *claimed; /* private bitmaps: units,    */
    uint64_t *listed;  /*   and free slots           */
};

/* An acknowledged message counts as leased until it is freed. */
static bool is_leased(enum shmq_state state) { return state == SHMQ_LEASED || state == SHMQ_ACKED; }

static bool claim(struct counts *c, uint32_t block, uint32_t units)
{
    for (uint32_t i = block; i < block + units; i++) {
        if (c->claimed[i / 64] >> i % 64 & 1)
            return false;
        c->claimed[i / 64] |= 1ull << i % 64;
    }
    return true;
}

static const char *check_amended(struct shmq_queue *q, const struct shmq_slot *s, struct counts *c)
{
    const struct shmq_amended *amended = shmq_amended_of(q, s);
    uint32_t units = amended ? shmq_units_for(q, amended->bytes) : 0;

    if (!amended)
        return NULL;
    EXPECT(units && units <= q->h->units_backed && amended->block <= q->h->units_backed - units,
           "amended properties lie outside of the arena");
    EXPECT(claim(c, amended->block, units), "amended properties lie in another block");
    c->units += units;
    c->amended_units += units;
    c->amended++;
    return NULL;
}

static const char *check_slot(struct shmq_queue *q, uint32_t at, struct counts *c)
{
    struct shmq_slot *s = &q->slots[at];
    uint64_t word = shmq_word(s);
    enum shmq_state state = shmq_state_of(word);
    const char *wrong;

    EXPECT(state < SHMQ_STATES, "a slot is in no known state");
    c->of[state]++;
    if (s->units) {
        EXPECT(s->units <= q->h->units_backed && s->block <= q->h->units_backed - s->units,
               "a block lies outside of the arena");
        EXPECT(claim(c, s->block, s->units), "two slots own the same bytes");
        c->units += s->units;
    }
    if (state == SHMQ_FREE) {
        c->cached += s->units;
        EXPECT(!s->pins, "a free slot is pinned");
        return NULL;
    }
    if ((wrong = check_amended(q, s, c)))
        return wrong;
    EXPECT((uint64_t)s->body_bytes + s->meta_bytes <= (uint64_t)s->units * SHMQ_UNIT,
           "a message is larger than its block");
    EXPECT(state != SHMQ_ZOMBIE || s->pins, "a settled slot is held by no view");
    c->ttl_ready += state == SHMQ_READY && word & SHMQ_F_TTL;
    c->listed_leases += is_leased(state) && shmq_where_of(s) == SHMQ_IN_LEASES;
    c->grouped += (word & SHMQ_F_GROUPED) != 0;
    if (is_leased(state) && s->owner == SHMQ_BY_NAME)
        *(shmq_holder_at(q, s) ? &c->named : &c->unnamed) += 1;
    return NULL;
}

static const char *check_counts(struct shmq_queue *q, const struct counts *c)
{
    struct shmq_header *h = q->h;

    EXPECT(c->of[SHMQ_READY] == h->visible, "the count of visible messages is wrong");
    EXPECT(c->of[SHMQ_DELAYED] == h->delayed, "the count of delayed messages is wrong");
    EXPECT(c->of[SHMQ_LEASED] + c->of[SHMQ_ACKED] == h->leased,
           "the count of leased messages is wrong");
    EXPECT(c->of[SHMQ_DEAD] + c->of[SHMQ_MOVING] == h->dead, "the count of dying is wrong");
    EXPECT(c->of[SHMQ_STAGED] == h->staged, "the count of staged messages is wrong");
    EXPECT(c->of[SHMQ_SPENT] == h->spent, "the count of slots that wait for the journal is wrong");
    EXPECT(!q->journaled || h->fresh_tail == h->last_seq, "the writer is not notified of a put");
    EXPECT(!q->journaled || h->hints == 0 ||
               (h->hints <= q->geo.hints_max && !(h->hints & (h->hints - 1))),
           "the rings of hints have no size that they can have");
    EXPECT(h->slots_made - c->of[SHMQ_FREE] == h->live, "the count of live slots is wrong");
    EXPECT(c->amended == h->amended && c->amended_units == h->amended_units,
           "the count of amended properties is wrong");
    EXPECT(c->units == h->units_used, "the arena has lost bytes");
    EXPECT(h->units_backed <= shmq_units(q), "the arena has more memory than it is large");
    EXPECT(c->cached == h->units_cached, "the count of cached bytes is wrong");
    EXPECT(!memcmp(c->claimed, q->bitmap, (h->units_backed + 63) / 64 * 8),
           "the bitmap does not show what the slots own");
    return NULL;
}

static const char *check_free_slot(struct shmq_queue *q, uint32_t at, uint32_t class,
                                   struct counts *c)
{
    struct shmq_slot *s = shmq_slot_at(q, at);

    EXPECT(at < q->h->slots_made, "a free list has a slot that is none");
    EXPECT(!(c->listed[at / 64] >> at % 64 & 1), "a free slot is in two lists");
    c->listed[at / 64] |= 1ull << at % 64;
    c->listed_free++;
    EXPECT(shmq_state_of(shmq_word(s)) == SHMQ_FREE, "a free list has a live slot");
    EXPECT((s->units ? shmq_class_of(s->units) : 0) == class, "a slot is in the wrong list");
    return NULL;
}

static const char *check_free_list(struct shmq_queue *q, uint32_t at, uint32_t class,
                                   struct counts *c)
{
    const char *wrong;

    for (; at != SHMQ_NIL; at = shmq_slot_at(q, at)->next)
        if ((wrong = check_free_slot(q, at, class, c)))
            return wrong;
    return NULL;
}

/* Each side's copy of the other's counter must never be ahead of it. */
static const char *check_rings(const struct shmq_header *h)
{
    uint32_t head = h->returned_head, tail = h->returned_tail;

    EXPECT(h->inbox_head == h->inbox_tail, "a message is left in the inbox");
    EXPECT(h->inbox_head - h->inbox_seen <= SHMQ_RING, "the puts know too much of the inbox");
    EXPECT(tail - head <= SHMQ_RING, "the ring of returned slots is longer than it is");
    EXPECT(h->returned_seen - head <= tail - head, "the puts know too much of what is returned");
    EXPECT(head - h->returned_out <= SHMQ_RING && tail - h->returned_out <= SHMQ_RING,
           "the gets know too much of what is returned");
    return NULL;
}

static const char *check_free(struct shmq_queue *q, struct counts *c)
{
    struct shmq_header *h = q->h;
    const char *wrong = check_rings(h);

    if (wrong)
        return wrong;
    for (uint32_t class = 0; class < SHMQ_CLASSES; class++)
        if ((wrong = check_free_list(q, h->free[class], class, c)) ||
            (wrong = check_free_list(q, h->spare[class], class, c)))
            return wrong;
    for (uint32_t at = h->returned_head; at != h->returned_tail; at++) {
        uint32_t entry = h->returned[at % SHMQ_RING];

        if ((wrong = check_free_slot(q, entry & SHMQ_RECEIPT_SLOT, entry >> 24, c)))
            return wrong;
    }
    EXPECT(c->listed_free == c->of[SHMQ_FREE], "a free slot is in no list");
    return NULL;
}

static const char *check_heap(const struct shmq_heap *heap)
{
    uint32_t len = *heap->len;

    EXPECT(len <= heap->q->h->slots_made, "a heap is longer than the slots");
    for (uint32_t at = 0; at < len; at++) {
        struct shmq_slot *s = shmq_slot_at(heap->q, heap->slots[at]);

        EXPECT(!at || heap->keys[(at - 1) / 4] <= heap->keys[at], "a heap is out of order");
        EXPECT(*(uint32_t *)((char *)s + heap->position) == at,
               "a slot does not know its position");
    }
    return NULL;
}

static const char *check_timers(struct shmq_queue *q, const struct counts *c)
{
    struct shmq_heap heap = shmq_timer_heap(q);
    const char *wrong = check_heap(&heap);
    uint32_t count = 0;
    int64_t last = INT64_MIN;

    if (wrong)
        return wrong;
    for (uint32_t i = 0; i < *heap.len; i++)
        EXPECT(heap.keys[i] == (uint64_t)shmq_due_of(shmq_slot_at(q, heap.slots[i])),
               "a timer runs to another time than its slot's");
    for (uint32_t at = q->h->leases.head; at != SHMQ_NIL; at = shmq_slot_at(q, at)->next) {
        struct shmq_slot *s = shmq_slot_at(q, at);

        EXPECT(is_leased(shmq_state_of(shmq_word(s))), "the list of leases has another slot");
        EXPECT(s->deadline >= last, "the list of leases is out of order");
        last = s->deadline;
        EXPECT(++count <= q->h->slots_made, "the list of leases is a ring");
        EXPECT(s->next != SHMQ_NIL || q->h->leases.tail == at, "the list of leases has no end");
    }
    EXPECT(count == c->listed_leases, "a lease is in no list");
    EXPECT(*heap.len ==
               c->ttl_ready + c->of[SHMQ_DELAYED] + c->of[SHMQ_LEASED] + c->of[SHMQ_ACKED] - count,
           "a slot has no timer, or one too many");
    EXPECT(shmq_next_due(q) >= q->h->next_tick, "the next tick comes too late");
    return NULL;
}

static const char *check_order(struct shmq_queue *q)
{
    struct shmq_heap heap = shmq_order_heap(q);
    const char *wrong = check_heap(&heap);
    uint32_t count = *heap.len;

    if (wrong)
        return wrong;
    for (uint32_t i = 0; i < *heap.len; i++) {
        struct shmq_slot *s = shmq_slot_at(q, heap.slots[i]);

        EXPECT(heap.keys[i] == shmq_key_of(s), "the order has another key than the slot");
        EXPECT(shmq_state_of(shmq_word(s)) == SHMQ_READY, "the order has an invisible slot");
    }
    for (uint32_t priority = 0; priority < SHMQ_MAX_PRIORITIES; priority++) {
        struct shmq_list *fifo = &q->h->fifo[priority];
        uint64_t last = 0;

        EXPECT((fifo->head != SHMQ_NIL) == (q->h->fifo_mask >> priority & 1),
               "the mask of priorities is wrong");
        for (uint32_t at = fifo->head; at != SHMQ_NIL; at = shmq_slot_at(q, at)->next) {
            struct shmq_slot *s = shmq_slot_at(q, at);

            EXPECT(shmq_state_of(shmq_word(s)) == SHMQ_READY, "the order has an invisible slot");
            EXPECT(shmq_priority_of(s) == priority && s->seq > last, "the order is out of order");
            last = s->seq;
            EXPECT(++count <= q->h->slots_made, "the order is a ring");
            EXPECT(s->next != SHMQ_NIL || fifo->tail == at, "the order has no end");
        }
    }
    EXPECT(count == shmq_ready(q->h), "the count of ready messages is wrong");
    return NULL;
}

/* What the slots say of one group. */
struct tally {
    uint32_t members, ready, flying, listed;
    uint64_t best;
};

/* A run's messages of a group are a list, from the front on. */
static const char *check_flight(struct shmq_queue *q, const struct shmq_group *g,
                                const struct tally *t)
{
    uint32_t count = 0, at = t->listed ? g->front : SHMQ_NIL;

    EXPECT(t->flying <= 1 || t->listed == t->flying, "two messages of a group are in flight");
    for (; at != SHMQ_NIL; at = shmq_slot_at(q, at)->next) {
        EXPECT(shmq_where_of(shmq_slot_at(q, at)) == SHMQ_IN_FLIGHT && ++count <= t->listed,
               "what a group has in flight is not a list");
    }
    EXPECT(count == t->listed, "what a group has in flight is in no list");
    return NULL;
}

static const char *check_groups(struct shmq_queue *q, const struct counts *c, struct tally *tallies)
{
    uint32_t members = 0, waiting = 0;

    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];
        uint64_t word = shmq_word(s);
        enum shmq_state state = shmq_state_of(word);
        struct tally *t;

        if (state == SHMQ_READY && !(word & SHMQ_F_GROUPED))
            waiting++;
        if (state == SHMQ_FREE || !(word & SHMQ_F_GROUPED))
            continue;
        EXPECT(s->group_at < q->h->groups_made && q->groups[s->group_at].hash == s->group,
               "a message is in another group's record");
        t = &tallies[s->group_at];
        t->members++;
        t->flying += is_leased(state) || (state == SHMQ_DELAYED && word & SHMQ_F_HOLDS);
        t->listed += shmq_where_of(s) == SHMQ_IN_FLIGHT;
        if (state != SHMQ_READY)
            continue;
        if (!t->ready++ || shmq_key_of(s) < t->best)
            t->best = shmq_key_of(s);
    }
    for (uint32_t at = 0; at < q->h->groups_made; at++) {
        struct shmq_group *g = &q->groups[at];
        struct tally *t = &tallies[at];
        const char *wrong = check_flight(q, g, t);

        if (wrong)
            return wrong;
        EXPECT(g->count == t->members, "a group's count is wrong");
        if (t->members && (t->ready || t->flying))
            EXPECT(g->front < q->h->slots_made, "a group has no front");
        if (t->ready && !t->flying)
            EXPECT(shmq_key_of(&q->slots[g->front]) == t->best, "a group's front is not its first");
        waiting += t->ready && !t->flying;
        members += t->members;
    }
    EXPECT(members == c->grouped, "a grouped message is in no group");
    EXPECT(waiting == shmq_ready(q->h), "a message that could be served is not in the order");
    return NULL;
}

static const char *check_attachments(struct shmq_queue *q, const struct counts *c)
{
    uint32_t leases = 0, named = 0;

    for (uint32_t at = 0; at < q->h->attachments_made; at++)
        leases += q->attachments[at].leases;
    for (uint32_t at = 0; q->h->holders_backed && at < SHMQ_HOLDERS; at++)
        named += q->holders[at].leases;
    EXPECT(leases + c->named + c->unnamed == q->h->leased,
           "the attachments do not hold what is leased");
    EXPECT(named == c->named, "the named holders do not hold what is leased in their names");
    for (uint32_t at = 0; at < SHMQ_PARTIES; at++) {
        const struct shmq_party *p = &q->h->parties[at];
        uint64_t armed = shmq_armed(q->h, SHMQ_NOT_EMPTY) | shmq_armed(q->h, SHMQ_NOT_FULL);

        EXPECT(p->process || !(armed >> at & 1), "a party is armed that has no entry");
        EXPECT(!p->process || shmq_party_is_attached(q, p), "a party waits through no handle");
    }
    return NULL;
}

static const char *check_failures(const struct shmq_queue *q)
{
    uint64_t failed = 0, count;
    struct shmq_text name;

    EXPECT(q->h->failure_types <= SHMQ_FAILURE_TYPES,
           "there are more types of errors than entries");
    for (uint32_t at = 0; at < q->h->failure_types; at++, failed += count)
        EXPECT(shmq_failures_of(q, at, &name, &count), "a type of errors has a damaged name");
    EXPECT(failed <= q->h->failed, "more failures have a type than there are");
    return NULL;
}

/* The violations found, each kind once: the texts are constants. */
struct findings {
    const char **wrong;
    uint32_t count, most;
};

static void note(struct findings *f, const char *wrong)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->wrong[i] == wrong)
            return;
    if (wrong && f->count < f->most)
        f->wrong[f->count++] = wrong;
}

/* Each check is safe in memory whatever the others have found. */
static void check_each(struct shmq_queue *q, struct counts *c, struct tally *tallies,
                       struct findings *f)
{
    struct shmq_policies policies;
    uint32_t alterations;

    if (!shmq_read_policies(q->h, &policies, &alterations))
        note(f, "the options contradict their checksum");
    for (uint32_t at = 0; at < q->h->slots_made; at++)
        note(f, check_slot(q, at, c));
    note(f, check_counts(q, c));
    note(f, check_free(q, c));
    note(f, check_timers(q, c));
    note(f, check_order(q));
    note(f, check_groups(q, c, tallies));
    note(f, check_attachments(q, c));
    note(f, check_failures(q));
    if (q->damaged)
        note(f, "an index is out of bounds");
}

uint32_t shmq_check_all(struct shmq_queue *q, const char **wrong, uint32_t most)
{
    struct counts counts = {.claimed = calloc((q->geo.units + 63) / 64 + 1, 8),
                            .listed = calloc(q->geo.slots_max / 64 + 1, 8)};
    struct tally *tallies = calloc((uint64_t)q->h->groups_made + 1, sizeof *tallies);
    struct findings found = {.wrong = wrong, .most = most};

    if (!counts.claimed || !counts.listed || !tallies)
        note(&found, "no memory to check with");
    else if (q->h->slots_made > shmq_capacity(q) || q->h->slots_made > q->h->slots_backed)
        note(&found, "more slots are in use than there are");
    else
        check_each(q, &counts, tallies, &found);
    free(counts.claimed);
    free(counts.listed);
    free(tallies);
    q->damaged = false;
    return found.count;
}

const char *shmq_check(struct shmq_queue *q)
{
    const char *wrong = NULL;

    shmq_check_all(q, &wrong, 1);
    return wrong;
}
