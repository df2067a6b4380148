#include "queue/put_ring.h"

#include <string.h>

#include "queue/slot.h"
#include "queue/change_hints.h"
#include "queue/index.h"
#include "queue/transition.h"

#define AHEAD 8u     /* entries of a ring that are prefetched                           */
#define DISTANCE 32u /* slots between the freeing of one and its next use               */
#define ENOUGH 128u  /* with this many slots the distance is kept anyway                */
#define CLASS_SHIFT 24

#define RING(counter) ((counter) % SHMQ_RING)

/* ---- the put side ---- */

static uint32_t returned_count(struct shmq_header *h)
{
    uint32_t head = GET_RELAXED(h->returned_head);
    uint32_t count = h->returned_seen - head;

    if (count >= AHEAD && count <= SHMQ_RING)
        return count;
    SET(h->returned_seen, GET_ACQUIRE(h->returned_tail));
    return h->returned_seen - head;
}

/* Bounds what is read from shared memory, like shmq_slot_at: the put side does not share a handle's
 * mark of damage with the get side. */
static inline bool is_slot(const struct shmq_queue *q, uint32_t at)
{
    return at < q->h->slots_made && at < q->geo.slots_max;
}

/* Prefetches what the next puts will write: the slot some puts ahead, and the block of a nearer
 * one, whose slot has arrived by now. */
static inline void fetch_ahead(struct shmq_queue *q, uint32_t head, uint32_t count)
{
    const uint32_t *ring = q->h->returned;
    uint32_t near;

    if (count > AHEAD)
        shmq_fetch_to_write(&q->slots[ring[RING(head + AHEAD)] & SHMQ_RECEIPT_SLOT]);
    if (count > AHEAD / 2) {
        near = ring[RING(head + AHEAD / 2)] & SHMQ_RECEIPT_SLOT;
        if (is_slot(q, near))
            shmq_fetch_to_write(q->arena + (uint64_t)q->slots[near].block * SHMQ_UNIT);
    }
}

static void push_spare(struct shmq_queue *q, uint32_t entry)
{
    uint32_t class = (entry >> CLASS_SHIFT) % SHMQ_CLASSES, at = entry & SHMQ_RECEIPT_SLOT;

    if (!is_slot(q, at))
        return; /* damaged: the slot is lost to the puts until the next rebuild */
    SET(q->slots[at].next, q->h->spare[class]);
    SET(q->h->spare[class], at);
}

void shmq_collect_returned(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;
    uint32_t tail = GET_ACQUIRE(h->returned_tail), head = GET_ACQUIRE(h->returned_head);

    if (tail - head > SHMQ_RING)
        q->damaged = true;
    for (; head != tail && !q->damaged; head++) {
        push_spare(q, h->returned[RING(head)]);
        SET_RELEASE(h->returned_head, head + 1);
    }
    SET(h->returned_seen, tail); /* never behind the head: its distance would never be small */
}

/* The next free slot of that class for a put, or SHMQ_NIL. */
static uint32_t next_spare(struct shmq_queue *q, uint32_t class)
{
    struct shmq_header *h = q->h;
    uint32_t count = returned_count(h);
    uint32_t distance = h->slots_made < ENOUGH && h->slots_made < shmq_capacity(q) ? DISTANCE : 0;

    while (count > distance && count <= SHMQ_RING) {
        uint32_t head = GET_RELAXED(h->returned_head);
        uint32_t entry = h->returned[RING(head)];

        if (entry >> CLASS_SHIFT == class) {
            fetch_ahead(q, head, count);
            SET_RELEASE(h->returned_head, head + 1);
            return entry & SHMQ_RECEIPT_SLOT;
        }
        push_spare(q, entry);
        SET_RELEASE(h->returned_head, head + 1);
        count--;
    }
    uint32_t at = h->spare[class];

    if (!is_slot(q, at))
        return SHMQ_NIL;
    SET(h->spare[class], q->slots[at].next);
    if (is_slot(q, q->slots[at].next))
        shmq_fetch_to_write(&q->slots[q->slots[at].next]);
    return at;
}

int shmq_quick_put(struct shmq_queue *q, const struct shmq_put *put, int64_t now, uint64_t *seq)
{
    struct shmq_header *h = q->h;
    uint32_t tail = GET_RELAXED(h->inbox_tail);
    uint32_t units = shmq_units_for(q, put->body_bytes + put->meta_bytes), class, at;
    int64_t ttl = shmq_ttl_of(q, put);
    struct shmq_slot *s;
    unsigned char *bytes;
    uint64_t word;

    if (!shmq_is_plain(q, put) || !units || !(class = shmq_class_of(units)))
        return SHMQ_BUSY;
    if (tail - h->inbox_seen >= SHMQ_RING) {
        SET(h->inbox_seen, GET_ACQUIRE(h->inbox_head));
        if (tail - h->inbox_seen >= SHMQ_RING)
            return SHMQ_BUSY;
    }
    at = next_spare(q, class);
    if (!is_slot(q, at))
        return SHMQ_BUSY;
    s = &q->slots[at];
    word = shmq_word(s);
    if (shmq_state_of(word) != SHMQ_FREE || s->units != units || s->block > q->geo.units - units)
        return SHMQ_BUSY; /* damaged: the next rebuild finds it */
    bytes = q->arena + (uint64_t)s->block * SHMQ_UNIT;
    if (put->body)
        memcpy(bytes, put->body, put->body_bytes - put->tail_bytes);
    if (put->tail_bytes)
        memcpy(bytes + put->body_bytes - put->tail_bytes, put->tail, put->tail_bytes);
    if (put->meta_bytes)
        memcpy(bytes + (uint64_t)units * SHMQ_UNIT - put->meta_bytes, put->meta, put->meta_bytes);
    SET(s->body_bytes, (uint32_t)put->body_bytes);
    SET(s->meta_bytes, put->meta_bytes);
    SET(s->lane, put->priority & 0xF);
    SET(s->codec, put->codec);
    SET(s->put_at, now);
    if (ttl > 0)
        SET(s->expires, now + ttl);
    *seq = h->last_seq + 1;
    SET_ATOMIC(h->last_seq, *seq);
    SET_ATOMIC(s->seq, *seq);
    shmq_commit(s, shmq_make_word(SHMQ_READY, ttl > 0 ? SHMQ_F_TTL : 0, 0, shmq_serial_of(word)));
    shmq_hint_fresh(q, *seq, at);
    SET(h->inbox[RING(tail)], at);
    SET_RELEASE(h->inbox_tail, tail + 1);
    return SHMQ_OK;
}

/* ---- the get side ---- */

static void enter_order(struct shmq_queue *q, uint32_t at)
{
    struct shmq_slot *s = shmq_slot_at(q, at);
    uint64_t word = shmq_word(s);

    if (shmq_state_of(word) != SHMQ_READY || shmq_where_of(s) != SHMQ_NOWHERE) {
        q->damaged = true;
        return;
    }
    SET(q->h->units_cached, q->h->units_cached - s->units);
    SET_ATOMIC(q->h->live, q->h->live + 1);
    SET(q->h->visible, q->h->visible + 1);
    if (word & SHMQ_F_TTL)
        shmq_timer_set(q, s);
    shmq_order_insert(q, s);
}

void shmq_inbox_take(struct shmq_queue *q, uint32_t most)
{
    struct shmq_header *h = q->h;
    uint32_t head = GET_RELAXED(h->inbox_head);
    uint32_t count = GET_ACQUIRE(h->inbox_tail) - head;

    if (!count)
        return;
    if (count > SHMQ_RING) {
        q->damaged = true;
        return;
    }
    if (count > most)
        count = most;
    for (uint32_t i = 0; i < count && i < AHEAD; i++)
        shmq_fetch_to_write(&q->slots[h->inbox[RING(head + i)]]);
    for (uint32_t i = 0; i < count && !q->damaged; i++, head++) {
        if (i + AHEAD < count)
            shmq_fetch_to_write(&q->slots[h->inbox[RING(head + AHEAD)]]);
        enter_order(q, h->inbox[RING(head)]);
    }
    SET_RELEASE(h->inbox_head, head);
}

bool shmq_return_slot(struct shmq_queue *q, const struct shmq_slot *s, uint32_t class)
{
    struct shmq_header *h = q->h;
    uint32_t tail = GET_RELAXED(h->returned_tail);

    if (tail - h->returned_out >= SHMQ_RING) {
        SET(h->returned_out, GET_ACQUIRE(h->returned_head));
        if (tail - h->returned_out >= SHMQ_RING)
            return false;
    }
    SET(h->returned[RING(tail)], class << CLASS_SHIFT | shmq_index_of(q, s));
    SET_RELEASE(h->returned_tail, tail + 1);
    return true;
}

void shmq_put_ring_clear(struct shmq_header *h)
{
    SET_RELEASE(h->inbox_head, 0);
    SET_RELEASE(h->inbox_tail, 0);
    SET_RELEASE(h->returned_head, 0);
    SET_RELEASE(h->returned_tail, 0);
    SET(h->inbox_seen, 0);
    SET(h->returned_seen, 0);
    SET(h->returned_out, 0);
    for (int c = 0; c < SHMQ_CLASSES; c++)
        SET(h->spare[c], SHMQ_NIL);
}
