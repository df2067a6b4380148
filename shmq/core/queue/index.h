/* The indexes of a queue, through which messages are found. All are derived from the slots, and
 * recovery rebuilds them (recover.c); only the ring of dedupe ids is a truth of its own. */
#pragma once

#include "queue/queue.h"

/* ---- lists ---- */

/* A doubly linked list through the slots' next and prev. The head's prev is undefined, so that
 * taking the head does not touch the slot behind it. */

static inline void shmq_list_clear(struct shmq_list *list)
{
    SET(list->head, SHMQ_NIL);
    SET(list->tail, SHMQ_NIL);
}

static inline void shmq_list_append(struct shmq_queue *q, struct shmq_list *list,
                                    struct shmq_slot *s)
{
    uint32_t at = shmq_index_of(q, s);

    SET(s->next, SHMQ_NIL);
    if (list->tail == SHMQ_NIL) {
        SET(list->head, at);
    } else {
        SET(s->prev, list->tail);
        SET(shmq_slot_at(q, list->tail)->next, at);
    }
    SET(list->tail, at);
}

static inline void shmq_list_prepend(struct shmq_queue *q, struct shmq_list *list,
                                     struct shmq_slot *s)
{
    uint32_t at = shmq_index_of(q, s);

    SET(s->next, list->head);
    if (list->head == SHMQ_NIL)
        SET(list->tail, at);
    else
        SET(shmq_slot_at(q, list->head)->prev, at);
    SET(list->head, at);
}

static inline void shmq_list_remove(struct shmq_queue *q, struct shmq_list *list,
                                    struct shmq_slot *s)
{
    uint32_t at = shmq_index_of(q, s);
    bool first = at == list->head, last = at == list->tail;

    if (first)
        SET(list->head, s->next);
    else
        SET(shmq_slot_at(q, s->prev)->next, s->next);
    if (last)
        SET(list->tail, first ? SHMQ_NIL : s->prev);
    else if (!first)
        SET(shmq_slot_at(q, s->next)->prev, s->prev);
}

/* ---- heap.c ---- */

/* A 4-ary min-heap of slots by a 64-bit key; the keys are adjacent, for the cache. Each slot knows
 * its position, so that any slot can be removed. Derived: recovery rebuilds it. */

struct shmq_heap {
    struct shmq_queue *q;
    uint64_t *keys;
    uint32_t *slots;
    uint32_t *len;        /* in the header                            */
    size_t position;      /* offset of the slot's field for its position */
};

struct shmq_heap shmq_timer_heap(struct shmq_queue *q);
struct shmq_heap shmq_order_heap(struct shmq_queue *q);

void shmq_heap_push(const struct shmq_heap *heap, uint32_t slot, uint64_t key);

/* Removes the slot. SHMQ_NIL keys and positions out of range mark the handle as damaged. */
void shmq_heap_remove(const struct shmq_heap *heap, uint32_t slot);

/* Appends without keeping the order; must be followed by shmq_heap_build. */
void shmq_heap_append(const struct shmq_heap *heap, uint32_t slot, uint64_t key);

/* Orders all entries, in linear time. */
void shmq_heap_build(const struct shmq_heap *heap);

/* The length, limited to the slots that exist. */
static inline uint32_t shmq_heap_len(const struct shmq_heap *heap)
{
    uint32_t len = *heap->len;

    if (__builtin_expect(len > heap->q->h->slots_made, 0)) {
        heap->q->damaged = true;
        return 0;
    }
    return len;
}

/* ---- ready_order.c ---- */

/* The order of service: highest priority first, then lowest sequence number.
 *
 * A message that comes in this order, as every fresh put of its priority does, is appended to a
 * list; one that does not, because it was returned, delayed, or waited behind its group, goes into
 * a heap. The next message is the better of the two heads. */

/* Ensures: the READY slot is in the order, and counted in header.ready. */
void shmq_order_insert(struct shmq_queue *q, struct shmq_slot *s);
void shmq_order_remove(struct shmq_queue *q, struct shmq_slot *s);

/* The next message, or SHMQ_NIL. */
uint32_t shmq_order_first(struct shmq_queue *q);

/* The message with the lowest sequence number of all priorities, or SHMQ_NIL. */
uint32_t shmq_order_oldest(struct shmq_queue *q);

/* ---- group.c ---- */

/* Message groups: at most one message of a group is in flight, or those of one run; the others wait
 * behind it.
 *
 * Only a group's front is in the order or in flight. The group's other READY messages wait behind
 * it: in its run if they came in the order of service, else in its heap (a pairing heap through the
 * slots). So a blocked group costs the other groups nothing. */

/* Prefetches the group's record for shmq_group_join. */
void shmq_group_fetch(struct shmq_queue *q, uint64_t hash);

/* Ensures: there is a record for the group, or memory for one. SHMQ_NO_SPACE. */
int shmq_group_reserve(struct shmq_queue *q, uint64_t hash);

/* Ensures: the group has a record, which counts one more message; s->group_at names it.
 * SHMQ_NO_SPACE. The slot's `group` must be set. */
int shmq_group_join(struct shmq_queue *q, struct shmq_slot *s);

/* A message of the group became READY: it goes into the order, or behind the front. If it was the
 * last one in flight, the group's best message becomes the front. */
void shmq_group_ready(struct shmq_queue *q, struct shmq_slot *s);

/* Takes a READY message out of the order, or from behind the front, but not out of the group. */
void shmq_group_unready(struct shmq_queue *q, struct shmq_slot *s);

/* Makes the READY message its group's front, whatever is before it. Returns false and changes
 * nothing if another message of the group is in flight. */
bool shmq_group_bring_forward(struct shmq_queue *q, struct shmq_slot *s);

/* The message is leased: it stays the front. */
void shmq_group_leased(struct shmq_queue *q, struct shmq_slot *s);

/* A run leases the READY message: it leaves the order, or its place behind the front, and is in
 * flight. The group must have nothing in flight, or messages of that run only. */
void shmq_group_fly(struct shmq_queue *q, struct shmq_slot *s);

/* The message that is served first of those behind the front of the slot's group, or SHMQ_NIL. */
uint32_t shmq_group_behind(struct shmq_queue *q, const struct shmq_slot *s);

/* The message, which is in no list, leaves the group for good. If it was the last one in flight, the
 * next one becomes the front. */
void shmq_group_leave(struct shmq_queue *q, struct shmq_slot *s);

/* Ensures: there is a bucket for each of `capacity` groups, if there is any group. The records move to
 * their buckets, which a rebuild does, too, after a death in between. SHMQ_NO_SPACE. */
int shmq_group_spread(struct shmq_queue *q, uint32_t capacity);

/* Recovery, for slots that have joined: first the message is put in flight, or READY behind the
 * front; then each group with nothing in flight gets its front. */
void shmq_group_rebuild_flight(struct shmq_queue *q, struct shmq_slot *s);
void shmq_group_rebuild_behind(struct shmq_queue *q, struct shmq_slot *s);
void shmq_group_rebuild_done(struct shmq_queue *q);

/* ---- timer.c ---- */

/* Everything that happens at a time: the ends of leases, delays and ttls.
 *
 * Leases that were begun in the order of their ends are in a list, all other times in a heap. No
 * process keeps the time: each operation on the queue does what is due, after one look at
 * header.next_tick. */

/* When a slot in the timer heap is due, by its state. */
int64_t shmq_due_of(const struct shmq_slot *s);

/* A lease of the usual length runs until s->deadline. */
void shmq_timer_lease(struct shmq_queue *q, struct shmq_slot *s);
void shmq_timer_unlease(struct shmq_queue *q, struct shmq_slot *s);

/* Sets or removes the timer of a DELAYED slot, of a READY one with a ttl, or of a lease of another
 * length than the usual: that is not in the list, because one long lease at its end would keep all
 * later leases out of the list's order. */
void shmq_timer_set(struct shmq_queue *q, struct shmq_slot *s);
void shmq_timer_unset(struct shmq_queue *q, struct shmq_slot *s);

/* The slot that is due first, and when; SHMQ_NIL. */
uint32_t shmq_first_due(struct shmq_queue *q, int64_t *due);

/* The earliest time at which something is due. */
int64_t shmq_next_due(struct shmq_queue *q);

/* ---- dedupe.c ---- */

/* The dedupe ids of the puts within the dedupe window, oldest first in a ring, and indexed by hash.
 *
 * The ring is a truth of its own, because messages are forgotten before their ids. Ids are stored
 * as 128-bit hashes. A put writes its entry behind the tail before its commit, and makes it part of
 * the ring afterwards; recovery settles an entry in between. */

/* The most ids that a queue of so many messages remembers. */
static inline uint32_t shmq_most_ids(uint64_t capacity)
{
    uint32_t ids = shmq_power_up(capacity * 4);

    return ids < 1u << 20 ? 1u << 20 : ids;
}

/* SHMQ_DUPLICATE and the first put's sequence number, or SHMQ_OK. */
int shmq_dedupe_find(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t *seq);

/* Ensures: there is room for one more entry. SHMQ_FULL, SHMQ_NO_SPACE. */
int shmq_dedupe_reserve(struct shmq_queue *q, int64_t now);

/* Writes the entry behind the tail; call it before the put's commit. Needs a reservation. */
void shmq_dedupe_write(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t seq);

/* Makes the entry part of the ring; call it after the put's commit. */
void shmq_dedupe_accept(struct shmq_queue *q);

/* Recovery: rebuilds the chains of all entries. */
void shmq_dedupe_rebuild(struct shmq_queue *q);

/* The sequence number of the entry behind the tail, 0 if there is none. */
uint64_t shmq_dedupe_pending(struct shmq_queue *q);
