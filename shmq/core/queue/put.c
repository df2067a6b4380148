#include <string.h>

#include "queue/change_hints.h"
#include "queue/index.h"
#include "queue/slot.h"
#include "queue/transition.h"

int shmq_fits(const struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes)
{
    if (body_bytes > shmq_policies_now(q->h)->max_message_bytes || body_bytes > UINT32_MAX)
        return SHMQ_TOO_LARGE;
    return shmq_units_of(body_bytes + meta_bytes) > shmq_units(q) ? SHMQ_TOO_LARGE : SHMQ_OK;
}

/* ---- room, by dropping the oldest messages ---- */

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
    shmq_count_drop(q->h, SHMQ_ALIVE);
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

/* As shmq_slot_take, but with overflow="drop-oldest" it drops visible messages to make room. */
static int take_or_drop(struct shmq_queue *q, uint64_t bytes, uint32_t *at)
{
    int status = shmq_slot_take(q, bytes, at);

    if (status == SHMQ_FULL && shmq_policies_now(q->h)->overflow == SHMQ_DROP_OLDEST)
        return drop_and_take(q, bytes, at);
    return status;
}

/* ---- a put ---- */

/* Ensures: the slot has everything from the put except its bytes, and is in its group. */
static int fill_slot(struct shmq_queue *q, struct shmq_slot *s, const struct shmq_put *put,
                     int64_t now, uint64_t *flags)
{
    int64_t ttl = shmq_ttl_of(q, put);

    *flags = 0;
    SET(s->body_bytes, (uint32_t)put->body_bytes);
    SET(s->meta_bytes, put->meta_bytes);
    SET(s->lane, put->priority & 0xF);
    SET(s->codec, put->codec);
    SET(s->put_at, now);
    if (ttl > 0) {
        *flags |= SHMQ_F_TTL;
        SET(s->expires, now + ttl);
    }
    if (put->group) {
        *flags |= SHMQ_F_GROUPED;
        SET(s->group, put->group);
        return shmq_group_join(q, s);
    }
    return SHMQ_OK;
}

/* Whether the put's id must be remembered: without a window it has no meaning. */
static bool has_dedupe(const struct shmq_queue *q, const uint64_t *hash)
{
    return hash && q->geo.dedupe_max;
}

/* Commits a filled slot as a message: stores everything before the word, the indexes after it. */
static void commit_put(struct shmq_queue *q, struct shmq_slot *s, int64_t delay,
                       const uint64_t *hash, uint64_t flags, int64_t now, uint64_t *seq)
{
    uint64_t serial = shmq_serial_of(shmq_word(s));

    *seq = q->h->last_seq + 1;
    SET(q->h->last_seq, *seq);
    SET_ATOMIC(s->seq, *seq);
    if (has_dedupe(q, hash))
        shmq_dedupe_write(q, hash, now, *seq);
    if (delay > 0)
        shmq_make_delayed(q, s, shmq_make_word(SHMQ_DELAYED, flags, 0, serial), now + delay);
    else
        shmq_make_ready(q, s, shmq_make_word(SHMQ_READY, flags, 0, serial));
    if (has_dedupe(q, hash))
        shmq_dedupe_accept(q);
    shmq_hint_fresh(q, *seq, shmq_index_of(q, s));
    q->hinted = q->journaled;
}

static int dedupe(struct shmq_queue *q, const uint64_t *hash, int64_t now, uint64_t *seq)
{
    int status;

    if (!has_dedupe(q, hash))
        return SHMQ_OK;
    if ((status = shmq_dedupe_find(q, hash, now, seq))) {
        SET(q->h->deduped, q->h->deduped + 1);
        return status;
    }
    return shmq_dedupe_reserve(q, now);
}

/* Before a message is dropped for this one, everything else that the put needs is reserved. */
static int reserve_group(struct shmq_queue *q, const struct shmq_put *put)
{
    if (!put->group || shmq_policies_now(q->h)->overflow != SHMQ_DROP_OLDEST)
        return SHMQ_OK;
    return shmq_group_reserve(q, put->group);
}

static void write_bytes(struct shmq_queue *q, struct shmq_slot *s, const struct shmq_put *put)
{
    unsigned char *body = shmq_body_of(q, s), *meta = shmq_put_meta_of(q, s);

    if (!body || !meta)
        return;
    if (put->body && put->body_bytes)
        memcpy(body, put->body, put->body_bytes - put->tail_bytes);
    if (put->tail_bytes)
        memcpy(body + put->body_bytes - put->tail_bytes, put->tail, put->tail_bytes);
    if (put->meta_bytes)
        memcpy(meta, put->meta, put->meta_bytes);
    shmq_mark();
}

int shmq_put(struct shmq_queue *q, const struct shmq_put *put, int64_t now, uint64_t *seq)
{
    struct shmq_slot *s;
    uint64_t flags;
    uint32_t at;
    int status;

    shmq_tick_if_due(q, now);
    if (put->group)
        shmq_group_fetch(q, put->group);
    if ((status = dedupe(q, put->dedupe, now, seq)) || (status = reserve_group(q, put)) ||
        (status = take_or_drop(q, put->body_bytes + put->meta_bytes, &at)))
        return shmq_outcome(q, status);
    s = shmq_slot_at(q, at);
    if ((status = fill_slot(q, s, put, now, &flags))) {
        shmq_slot_untake(q, s);
        return shmq_outcome(q, status);
    }
    write_bytes(q, s, put);
    shmq_slot_born(q);
    commit_put(q, s, put->delay, put->dedupe, flags, now, seq);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_reserve(struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes, int64_t now,
                 const uint64_t *hash, struct shmq_view *view, uint64_t *seq)
{
    struct shmq_slot *s;
    uint32_t at;
    int status;

    shmq_tick_if_due(q, now);
    if ((status = dedupe(q, hash, now, seq)) ||
        (status = take_or_drop(q, body_bytes + meta_bytes, &at)))
        return shmq_outcome(q, status);
    s = shmq_slot_at(q, at);
    SET(s->body_bytes, (uint32_t)body_bytes);
    SET(s->meta_bytes, meta_bytes);
    SET(s->lane, 0);
    shmq_own(q, s);
    shmq_commit(s, shmq_make_word(SHMQ_FILLING, 0, 0, shmq_next_serial(q->h)));
    shmq_slot_born(q);
    shmq_look(q, s, view);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_fill(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now,
              uint64_t *seq)
{
    struct shmq_slot *s;
    uint64_t flags;
    int status;

    shmq_tick_if_due(q, now); /* first: it frees a slot that was disowned */
    if (!(s = shmq_slot_in(q, receipt, SHMQ_FILLING)))
        return shmq_outcome(q, SHMQ_STALE);
    status = dedupe(q, put->dedupe, now, seq);
    if (!status)
        status = fill_slot(q, s, put, now, &flags);
    if (status) {
        shmq_slot_free(q, s);
        return shmq_outcome(q, status);
    }
    commit_put(q, s, put->delay, put->dedupe, flags, now, seq);
    return shmq_outcome(q, SHMQ_OK);
}

/* What the commit of a row needs besides its slot. It is stored behind the body. */
struct deferred_put {
    uint64_t hash[2];
    int64_t delay;
    uint64_t has_id;
};

_Static_assert(sizeof(struct deferred_put) == SHMQ_DEFERRED_PUT_BYTES,
               "what the commit of a row needs");

uint32_t shmq_deferred_put_bytes(const struct shmq_queue *q, const struct shmq_put *put)
{
    return put->row && (put->delay > 0 || has_dedupe(q, put->dedupe)) ? SHMQ_DEFERRED_PUT_BYTES : 0;
}

/* Commits a filled slot, with its bytes, as staged. */
static void set_staged(struct shmq_queue *q, struct shmq_slot *s, const struct shmq_put *put,
                       uint64_t flags, uint64_t serial)
{
    unsigned char *body = shmq_body_of(q, s);
    struct deferred_put deferred = {{0, 0}, put->delay, has_dedupe(q, put->dedupe)};

    if (put->row) {
        flags |= SHMQ_F_ROW;
        SET_ATOMIC(s->deadline, put->row - 1);
    }
    if (shmq_deferred_put_bytes(q, put) && body) {
        flags |= SHMQ_F_DEFERRED;
        if (deferred.has_id)
            memcpy(deferred.hash, put->dedupe, sizeof deferred.hash);
        memcpy(body + put->body_bytes, &deferred, sizeof deferred);
        shmq_mark();
    }
    SET(s->owner, (uint16_t)(q->attachment + 1));
    q->staged++;
    SET(s->origin_queue, put->origin_queue);
    SET(s->origin_seq, put->origin_seq);
    shmq_commit(s, shmq_make_word(SHMQ_STAGED, flags, 0, serial));
    SET(q->h->staged, q->h->staged + 1);
}

/* Whether the ring of dedupe ids has room for that many more. */
static bool has_room_for_ids(struct shmq_queue *q, uint32_t ids, int64_t now)
{
    const struct shmq_header *h = q->h;

    return !shmq_dedupe_reserve(q, now) &&
           h->dedupe_tail - h->dedupe_head + ids <= shmq_most_ids(shmq_capacity(q));
}

int shmq_stage_row(struct shmq_queue *q, const struct shmq_put *put, uint32_t ids, int64_t now,
                   uint64_t *receipt)
{
    struct shmq_slot *s;
    uint64_t flags;
    uint32_t at;
    int status;

    shmq_tick_if_due(q, now);
    if (has_dedupe(q, put->dedupe) && !has_room_for_ids(q, ids + 1, now))
        return shmq_outcome(q, SHMQ_FULL);
    if ((status = reserve_group(q, put)) ||
        (status = take_or_drop(
             q, put->body_bytes + put->meta_bytes + shmq_deferred_put_bytes(q, put), &at)))
        return shmq_outcome(q, status);
    s = shmq_slot_at(q, at);
    if ((status = fill_slot(q, s, put, now, &flags))) {
        shmq_slot_untake(q, s);
        return shmq_outcome(q, status);
    }
    write_bytes(q, s, put);
    shmq_slot_born(q);
    set_staged(q, s, put, flags, shmq_next_serial(q->h));
    *receipt = shmq_receipt_of(shmq_word(s), at);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_stage(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now)
{
    struct shmq_slot *s;
    uint64_t flags;
    int status;

    shmq_tick_if_due(q, now); /* first: as in shmq_fill */
    if (!(s = shmq_slot_in(q, receipt, SHMQ_FILLING)))
        return shmq_outcome(q, SHMQ_STALE);
    if ((status = fill_slot(q, s, put, now, &flags))) {
        shmq_slot_free(q, s);
        return shmq_outcome(q, status);
    }
    set_staged(q, s, put, flags, shmq_serial_of(shmq_word(s)));
    return shmq_outcome(q, SHMQ_OK);
}

/* Reads the stored values for a row's commit; false if they are out of bounds. */
static bool read_deferred_put(struct shmq_queue *q, struct shmq_slot *s,
                              struct deferred_put *deferred)
{
    const unsigned char *body = shmq_body_of(q, s);

    if (!(shmq_word(s) & SHMQ_F_DEFERRED))
        return true;
    if (!body || (uint64_t)s->body_bytes + s->meta_bytes + sizeof *deferred >
                     (uint64_t)s->units * SHMQ_UNIT) {
        q->damaged = true;
        return false;
    }
    memcpy(deferred, body + s->body_bytes, sizeof *deferred);
    return true;
}

int shmq_commit_staged(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_STAGED);
    struct deferred_put deferred = {{0, 0}, 0, 0};
    const uint64_t *hash;
    uint64_t seq;
    int status;

    shmq_tick_if_due(q, now);
    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    if (!read_deferred_put(q, s, &deferred))
        return shmq_outcome(q, SHMQ_DAMAGED);
    hash = deferred.has_id ? deferred.hash : NULL;
    if ((status = dedupe(q, hash, now, &seq))) {
        if (status == SHMQ_DUPLICATE)
            (void)shmq_abandon(q, receipt);
        return shmq_outcome(q, status);
    }
    /* A chunk does not track copies of its rows: the origin is not needed any more. */
    if (shmq_word(s) & SHMQ_F_ROW)
        SET_ATOMIC(s->origin_queue, 0);
    if (s->owner == q->attachment + 1)
        q->staged--;
    SET(s->owner, 0);
    SET(q->h->staged, q->h->staged - 1);
    commit_put(q, s, deferred.delay, hash, shmq_word(s) & (SHMQ_F_GROUPED | SHMQ_F_TTL), now, &seq);
    return shmq_outcome(q, SHMQ_OK);
}

/* A staged slot becomes FILLING first: a STAGED one without its origin would be taken for a message
 * whose origin has settled it, if we died before it is free. */
static void unstage(struct shmq_queue *q, struct shmq_slot *s)
{
    shmq_own(q, s);
    shmq_leave_group(q, s);
    shmq_commit(s, shmq_make_word(SHMQ_FILLING, 0, 0, shmq_serial_of(shmq_word(s))));
    SET(s->origin_queue, 0); /* it is not a copy any more: the original is unchanged */
    SET(q->h->staged, q->h->staged - 1);
}

int shmq_abandon(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_FILLING);

    if (!s && (s = shmq_slot_in(q, receipt, SHMQ_STAGED)))
        unstage(q, s);
    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_slot_free(q, s);
    return shmq_outcome(q, SHMQ_OK);
}
