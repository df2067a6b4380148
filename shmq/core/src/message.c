#include "message.h"

#include <string.h>

#include "clock.h"
#include "dedupe.h"
#include "group.h"
#include "arena.h"
#include "list.h"
#include "memory.h"
#include "move.h"
#include "order.h"
#include "recover.h"
#include "slot.h"
#include "timer.h"

static inline void tick_if_due(struct shmq_queue *q, int64_t now)
{
    if (__builtin_expect(now >= q->h->next_tick, 0))
        shmq_tick(q, now);
}

/* Ensures: no lease, of any slot, has this serial yet. */
static uint64_t next_serial(struct shmq_header *h)
{
    SET(h->serial, (h->serial + 1) & SHMQ_SERIAL_MAX);
    return h->serial;
}

static void count_lease(struct shmq_queue *q, const struct shmq_slot *s, int by)
{
    SET(q->h->leased, q->h->leased + (uint32_t)by);
    if (s->owner && s->owner <= q->h->attachments_made) {
        struct shmq_attachment *a = &q->attachments[s->owner - 1];

        SET(a->leases, a->leases + (uint32_t)by);
    }
}

void shmq_look(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view)
{
    view->word = shmq_word(s);
    view->at = shmq_index_of(q, s);
    view->receipt = shmq_receipt_of(view->word, view->at);
    view->seq = s->seq;
    view->body = shmq_body_of(q, s);
    view->meta = s->meta_bytes ? shmq_meta_of(q, s) : NULL;
    view->body_bytes = s->body_bytes;
    view->meta_bytes = s->meta_bytes;
    view->deliveries = shmq_deliveries_of(view->word);
    view->priority = (uint8_t)shmq_priority_of(s);
    view->codec = s->codec;
    view->put_at = s->put_at;
    view->deadline = s->deadline;
    view->group = view->word & SHMQ_F_GROUPED ? s->group : 0;
    view->expires = view->word & SHMQ_F_TTL ? s->expires : 0;
    view->reason = s->reason;
    view->dead_at = s->dead_at;
}

/* The slot that a receipt names, if it is in that state under that serial. */
static struct shmq_slot *slot_of(struct shmq_queue *q, uint64_t receipt, enum shmq_state state)
{
    struct shmq_slot *s = shmq_slot_named(q, receipt);
    uint64_t word = s ? shmq_word(s) : 0;

    if (!s || shmq_state_of(word) != state ||
        shmq_serial_of(word) != receipt >> SHMQ_SERIAL_SHIFT)
        return NULL;
    return s;
}

/* ---- into and out of READY and DELAYED ---- */

/* Commits READY and puts the slot where gets find it. */
static void make_ready(struct shmq_queue *q, struct shmq_slot *s, uint64_t word)
{
    shmq_commit(s, word);
    SET(q->h->visible, q->h->visible + 1);
    if (word & SHMQ_F_TTL)
        shmq_timer_set(q, s);
    if (word & SHMQ_F_GROUPED)
        shmq_group_ready(q, s);
    else
        shmq_order_insert(q, s);
}

static void make_delayed(struct shmq_queue *q, struct shmq_slot *s, uint64_t word, int64_t until)
{
    SET(s->deadline, until);
    shmq_commit(s, word);
    SET(q->h->delayed, q->h->delayed + 1);
    shmq_timer_set(q, s);
}

/* Ensures: the READY or DELAYED slot is in no list, heap or timer; it stays in its group. */
static void withdraw(struct shmq_queue *q, struct shmq_slot *s)
{
    uint64_t word = shmq_word(s);

    if (shmq_state_of(word) == SHMQ_DELAYED) {
        shmq_timer_unset(q, s);
        SET(q->h->delayed, q->h->delayed - 1);
        return;
    }
    if (word & SHMQ_F_TTL)
        shmq_timer_unset(q, s);
    if (word & SHMQ_F_GROUPED)
        shmq_group_unready(q, s);
    else
        shmq_order_remove(q, s);
    SET(q->h->visible, q->h->visible - 1);
}

static void leave_group(struct shmq_queue *q, struct shmq_slot *s)
{
    if (shmq_word(s) & SHMQ_F_GROUPED)
        shmq_group_leave(q, s);
}

/* The end of a message that is in no list: to the dead letters, or dropped. */
static void die(struct shmq_queue *q, struct shmq_slot *s, enum shmq_reason reason,
                uint32_t deliveries)
{
    struct shmq_header *h = q->h;
    uint64_t serial = shmq_serial_of(shmq_word(s));

    leave_group(q, s);
    if (!h->options.dead_letters || (reason == SHMQ_EXPIRED_TTL && h->options.drop_expired)) {
        SET(h->dropped, h->dropped + 1);
        shmq_slot_free(q, s);
        return;
    }
    SET(s->reason, (uint8_t)reason);
    SET(s->dead_at, shmq_wall());
    shmq_set_where(s, SHMQ_IN_DYING);
    shmq_commit(s, shmq_make_word(SHMQ_DEAD, 0, deliveries, serial));
    shmq_list_append(q, &h->dying, s);
    SET(h->dead, h->dead + 1);
}

/* The deliveries of a leased message that comes back: this one counts if it was handed
 * out. */
static uint32_t deliveries_with_this(uint64_t word)
{
    uint32_t deliveries = shmq_deliveries_of(word);

    return word & SHMQ_F_HANDED && deliveries < SHMQ_DELIVERIES_MAX ? deliveries + 1 : deliveries;
}

/* A leased message, in no timer any more, comes back; a delivery that was handed out
 * counts, and the last one allowed is its end. */
static void come_back(struct shmq_queue *q, struct shmq_slot *s, int64_t delay, int64_t now)
{
    uint64_t word = shmq_word(s), keep = word & (SHMQ_F_GROUPED | SHMQ_F_TTL);
    uint32_t deliveries = deliveries_with_this(word), limit = q->h->options.max_deliveries;
    bool handed = word & SHMQ_F_HANDED;

    if (word & SHMQ_F_TTL && s->expires <= now)
        die(q, s, SHMQ_EXPIRED_TTL, deliveries);
    else if (handed && limit && deliveries >= limit)
        die(q, s, SHMQ_EXHAUSTED, deliveries);
    else if (delay > 0)
        make_delayed(q, s,
                     shmq_make_word(SHMQ_DELAYED, keep | (keep & SHMQ_F_GROUPED ? SHMQ_F_HOLDS : 0),
                                    deliveries, shmq_serial_of(word)),
                     now + delay);
    else
        make_ready(q, s, shmq_make_word(SHMQ_READY, keep, deliveries, shmq_serial_of(word)));
}

/* The lease is over. From here on shmq_hand, which takes no lock, cannot mark the slot as
 * handed out, so the flag as it stands now is the truth. */
static void unlease(struct shmq_queue *q, struct shmq_slot *s)
{
    if (!(shmq_word(s) & SHMQ_F_HANDED)) {
        atomic_fetch_or_explicit(&s->word, SHMQ_F_CLOSED, memory_order_acq_rel);
        shmq_mark();
    }
    shmq_timer_unlease(q, s);
    count_lease(q, s, -1);
}

static void lease_ends(struct shmq_queue *q, struct shmq_slot *s, int64_t now)
{
    unlease(q, s);
    SET(q->h->expired, q->h->expired + 1);
    come_back(q, s, 0, now);
}

void shmq_message_due(struct shmq_queue *q, struct shmq_slot *s, int64_t now)
{
    uint64_t word = shmq_word(s), keep = word & (SHMQ_F_GROUPED | SHMQ_F_TTL);

    switch (shmq_state_of(word)) {
    case SHMQ_LEASED:
        lease_ends(q, s, now);
        break;
    case SHMQ_DELAYED:
        withdraw(q, s);
        if (word & SHMQ_F_TTL && s->expires <= now)
            die(q, s, SHMQ_EXPIRED_TTL, shmq_deliveries_of(word));
        else
            make_ready(q, s, shmq_make_word(SHMQ_READY, keep, shmq_deliveries_of(word),
                                            shmq_serial_of(word)));
        break;
    case SHMQ_READY:
        withdraw(q, s);
        die(q, s, SHMQ_EXPIRED_TTL, shmq_deliveries_of(word));
        break;
    default:
        q->damaged = true;
    }
}

/* ---- put ---- */

int shmq_fits(const struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes)
{
    if (body_bytes > q->h->options.max_message_bytes || body_bytes > UINT32_MAX)
        return SHMQ_TOO_LARGE;
    return shmq_units_for(q, body_bytes + meta_bytes) > q->geo.units ? SHMQ_TOO_LARGE : SHMQ_OK;
}

/* The visible message that a queue that drops its oldest one would drop next. Dropping
 * one of which a view lives would make no room. */
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

/* Whether `units` would fit if every visible message were dropped. The bitmap is derived:
 * their units are marked free, looked at, and marked used again. */
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
    withdraw(q, s);
    leave_group(q, s);
    SET(q->h->dropped, q->h->dropped + 1);
    shmq_slot_free(q, s);
}

/* Takes a slot in a queue that drops its oldest messages to make room; one that cannot
 * fit even so drops none. */
static int drop_and_take(struct shmq_queue *q, uint64_t bytes, uint32_t *at)
{
    uint32_t units = shmq_units_for(q, bytes), oldest = oldest_visible(q);
    int status = SHMQ_FULL;

    if (oldest == SHMQ_NIL)
        return SHMQ_FULL;
    if (shmq_slot_at(q, oldest)->units < units) {
        shmq_slot_drop_cached(q);
        if (!could_fit(q, units))
            return SHMQ_FULL;
    }
    while (status == SHMQ_FULL && oldest != SHMQ_NIL && !q->damaged) {
        drop(q, shmq_slot_at(q, oldest));
        status = shmq_slot_take(q, bytes, at);
        oldest = oldest_visible(q);
    }
    return status;
}

static int take_slot(struct shmq_queue *q, uint64_t bytes, uint32_t *at)
{
    int status = shmq_slot_take(q, bytes, at);

    if (status == SHMQ_FULL && q->h->options.overflow == SHMQ_DROP_OLDEST)
        return drop_and_take(q, bytes, at);
    return status;
}

/* Ensures: the slot carries all that the put brings but its bytes; it is in its group. */
static int dress(struct shmq_queue *q, struct shmq_slot *s, const struct shmq_put *put,
                 int64_t now, uint64_t *flags)
{
    int64_t ttl = put->ttl ? put->ttl : q->h->options.ttl;

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

/* Whether the put's id is to be remembered: without a window it means nothing. */
static bool counts(const struct shmq_queue *q, const uint64_t *hash)
{
    return hash && q->geo.dedupe_max;
}

/* Commits a dressed slot as a message: everything before the word, the indexes after. */
static void enter(struct shmq_queue *q, struct shmq_slot *s, const struct shmq_put *put,
                  uint64_t flags, int64_t now, uint64_t *seq)
{
    uint64_t serial = shmq_serial_of(shmq_word(s));

    *seq = q->h->last_seq + 1;
    SET(q->h->last_seq, *seq);
    SET(s->seq, *seq);
    if (counts(q, put->dedupe))
        shmq_dedupe_write(q, put->dedupe, now, *seq);
    if (put->delay > 0)
        make_delayed(q, s, shmq_make_word(SHMQ_DELAYED, flags, 0, serial), now + put->delay);
    else
        make_ready(q, s, shmq_make_word(SHMQ_READY, flags, 0, serial));
    if (counts(q, put->dedupe))
        shmq_dedupe_accept(q);
}

static int dedupe(struct shmq_queue *q, const uint64_t *hash, int64_t now, uint64_t *seq)
{
    int status;

    if (!counts(q, hash))
        return SHMQ_OK;
    if ((status = shmq_dedupe_find(q, hash, now, seq))) {
        SET(q->h->deduped, q->h->deduped + 1);
        return status;
    }
    return shmq_dedupe_reserve(q, now);
}

static void write_bytes(struct shmq_queue *q, struct shmq_slot *s, const struct shmq_put *put)
{
    unsigned char *body = shmq_body_of(q, s), *meta = shmq_meta_of(q, s);

    if (!body || !meta)
        return;
    if (put->body && put->body_bytes)
        memcpy(body, put->body, put->body_bytes);
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

    tick_if_due(q, now);
    if ((status = dedupe(q, put->dedupe, now, seq)) ||
        (status = take_slot(q, put->body_bytes + put->meta_bytes, &at)))
        return shmq_outcome(q, status);
    s = shmq_slot_at(q, at);
    if ((status = dress(q, s, put, now, &flags))) {
        shmq_slot_untake(q, s);
        return shmq_outcome(q, status);
    }
    write_bytes(q, s, put);
    shmq_slot_born(q);
    enter(q, s, put, flags, now, seq);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_reserve(struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes, int64_t now,
                 const uint64_t *hash, struct shmq_view *view, uint64_t *seq)
{
    struct shmq_slot *s;
    uint32_t at;
    int status;

    tick_if_due(q, now);
    if ((status = dedupe(q, hash, now, seq)) ||
        (status = take_slot(q, body_bytes + meta_bytes, &at)))
        return shmq_outcome(q, status);
    s = shmq_slot_at(q, at);
    SET(s->body_bytes, (uint32_t)body_bytes);
    SET(s->meta_bytes, meta_bytes);
    SET(s->lane, 0);
    SET(s->owner, (uint16_t)(q->attachment + 1));
    shmq_commit(s, shmq_make_word(SHMQ_FILLING, 0, 0, next_serial(q->h)));
    shmq_slot_born(q);
    shmq_look(q, s, view);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_fill(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now,
              uint64_t *seq)
{
    struct shmq_slot *s = slot_of(q, receipt, SHMQ_FILLING);
    uint64_t flags;
    int status;

    tick_if_due(q, now);
    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    status = dedupe(q, put->dedupe, now, seq);
    if (!status)
        status = dress(q, s, put, now, &flags);
    if (status) {
        shmq_slot_free(q, s);
        return shmq_outcome(q, status);
    }
    enter(q, s, put, flags, now, seq);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_stage(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now)
{
    struct shmq_slot *s = slot_of(q, receipt, SHMQ_FILLING);
    uint64_t flags;
    int status;

    tick_if_due(q, now);
    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    if ((status = dress(q, s, put, now, &flags))) {
        shmq_slot_free(q, s);
        return shmq_outcome(q, status);
    }
    SET(s->owner, (uint16_t)(q->attachment + 1));
    SET(s->origin_queue, put->origin_queue);
    SET(s->origin_seq, put->origin_seq);
    shmq_commit(s, shmq_make_word(SHMQ_STAGED, flags, 0, shmq_serial_of(shmq_word(s))));
    SET(q->h->staged, q->h->staged + 1);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_publish(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = slot_of(q, receipt, SHMQ_STAGED);
    struct shmq_put put = {0};
    uint64_t seq;

    tick_if_due(q, now);
    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    SET(s->owner, 0);
    SET(q->h->staged, q->h->staged - 1);
    enter(q, s, &put, shmq_word(s) & (SHMQ_F_GROUPED | SHMQ_F_TTL), now, &seq);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_abandon(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_slot *s = slot_of(q, receipt, SHMQ_FILLING);

    if (!s && (s = slot_of(q, receipt, SHMQ_STAGED))) {
        leave_group(q, s);
        SET(q->h->staged, q->h->staged - 1);
    }
    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_slot_free(q, s);
    return shmq_outcome(q, SHMQ_OK);
}

/* ---- lease ---- */

static void grant(struct shmq_queue *q, struct shmq_slot *s, int64_t now, bool handed)
{
    struct shmq_header *h = q->h;
    uint64_t word = shmq_word(s), keep = word & (SHMQ_F_GROUPED | SHMQ_F_TTL);

    if (word & SHMQ_F_TTL)
        shmq_timer_unset(q, s);
    if (word & SHMQ_F_GROUPED)
        shmq_group_fly(q, s);
    else
        shmq_order_remove(q, s);
    SET(h->visible, h->visible - 1);
    SET(s->owner, (uint16_t)(q->attachment + 1));
    SET(s->deadline, now + h->options.visibility);
    shmq_commit(s, shmq_make_word(SHMQ_LEASED, keep | (handed ? SHMQ_F_HANDED : 0),
                                  shmq_deliveries_of(word), next_serial(h)));
    count_lease(q, s, 1);
    shmq_timer_lease(q, s);
    if (shmq_deliveries_of(word))
        SET(h->redelivered, h->redelivered + 1);
}

int shmq_lease(struct shmq_queue *q, int64_t now, bool handed, struct shmq_view *view)
{
    uint32_t at, guard = q->h->options.capacity;

    tick_if_due(q, now);
    while (guard-- && !q->damaged) {
        struct shmq_slot *s;

        at = shmq_order_first(q);
        if (at == SHMQ_NIL && q->h->next_tick <= now) {
            shmq_tick(q, now); /* a tick does only so much at once */
            continue;
        }
        if (at == SHMQ_NIL)
            return shmq_outcome(q, SHMQ_EMPTY);
        s = shmq_slot_at(q, at);
        if (shmq_word(s) & SHMQ_F_TTL && s->expires <= now) {
            shmq_message_due(q, s, now);
            continue;
        }
        grant(q, s, now, handed);
        shmq_look(q, s, view);
        view->deliveries++;
        return shmq_outcome(q, SHMQ_OK);
    }
    return shmq_outcome(q, SHMQ_EMPTY);
}

bool shmq_holds(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = slot_of(q, receipt, SHMQ_LEASED);

    return s && s->deadline > now;
}

int shmq_hand(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = slot_of(q, receipt, SHMQ_LEASED);
    uint64_t word;

    if (!s || s->deadline <= now)
        return SHMQ_STALE;
    word = shmq_word(s);
    do {
        if (shmq_state_of(word) != SHMQ_LEASED || word & SHMQ_F_CLOSED ||
            shmq_serial_of(word) != receipt >> SHMQ_SERIAL_SHIFT)
            return SHMQ_STALE;
    } while (!atomic_compare_exchange_weak_explicit(&s->word, &word, word | SHMQ_F_HANDED,
                                                    memory_order_acq_rel, memory_order_acquire));
    shmq_mark();
    return SHMQ_OK;
}

/* ---- settlements ---- */

/* The leased slot of a receipt that is good; a lease that has run out ends here. */
static struct shmq_slot *leased(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s;

    tick_if_due(q, now);
    s = slot_of(q, receipt, SHMQ_LEASED);
    if (s && s->deadline <= now) {
        lease_ends(q, s, now);
        return NULL;
    }
    return s;
}

int shmq_ack(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = leased(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    unlease(q, s);
    leave_group(q, s);
    shmq_slot_free(q, s);
    SET(q->h->acked, q->h->acked + 1);
    return shmq_outcome(q, SHMQ_OK);
}

static uint64_t random_below(struct shmq_queue *q, uint64_t limit)
{
    q->random ^= q->random << 13; /* xorshift64, Marsaglia 2003 */
    q->random ^= q->random >> 7;
    q->random ^= q->random << 17;
    return limit ? q->random % limit : 0;
}

/* retry * 2^(n - 1) up to retry_max, of which a random half to whole; n: deliveries. */
static int64_t back_off(struct shmq_queue *q, uint32_t deliveries)
{
    int64_t delay = q->h->options.retry, most = q->h->options.retry_max;

    while (--deliveries && delay < most)
        delay = delay > INT64_MAX / 2 ? most : delay * 2;
    if (delay > most)
        delay = most;
    return delay - (int64_t)random_below(q, (uint64_t)delay / 2 + 1);
}

int shmq_nack(struct shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now)
{
    struct shmq_slot *s = leased(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    if (delay < 0)
        delay = back_off(q, shmq_deliveries_of(shmq_word(s)) + 1);
    unlease(q, s);
    SET(q->h->nacked, q->h->nacked + 1);
    come_back(q, s, delay, now);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_reject(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = leased(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    unlease(q, s);
    die(q, s, SHMQ_REJECTED, deliveries_with_this(shmq_word(s)));
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_extend(struct shmq_queue *q, uint64_t receipt, int64_t ns, int64_t now)
{
    struct shmq_slot *s = leased(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    if (ns <= 0) {
        lease_ends(q, s, now);
        return shmq_outcome(q, SHMQ_OK);
    }
    shmq_timer_unlease(q, s);
    SET(s->deadline, now + ns);
    shmq_timer_set(q, s); /* not among the others: one long lease at their end would keep
                             all that follow out of their order */
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_return(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = leased(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    unlease(q, s);
    come_back(q, s, 0, now);
    return shmq_outcome(q, SHMQ_OK);
}

void shmq_message_orphaned(struct shmq_queue *q, struct shmq_slot *s, int64_t now)
{
    uint64_t word = shmq_word(s);

    switch (shmq_state_of(word)) {
    case SHMQ_FILLING:
        shmq_slot_free(q, s);
        break;
    case SHMQ_STAGED:
        SET(s->owner, 0); /* its origin decides: see move.h */
        break;
    case SHMQ_LEASED:
        unlease(q, s);
        come_back(q, s, 0, now);
        break;
    case SHMQ_MOVING:
        shmq_move_orphaned(q, s);
        break;
    default:
        break;
    }
}

/* ---- pins ---- */

static int pin(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view)
{
    uint32_t us = q->attachment + 1;

    shmq_look(q, s, view);
    if (s->pins && (s->pins >> 16 != us || (s->pins & 0xFFFF) == 0xFFFF))
        return SHMQ_BUSY;
    SET(s->pins, s->pins ? s->pins + 1 : us << 16 | 1);
    return SHMQ_OK;
}

int shmq_pin(struct shmq_queue *q, uint64_t receipt, int64_t now, struct shmq_view *view)
{
    struct shmq_slot *s = leased(q, receipt, now);

    if (!s)
        s = slot_of(q, receipt, SHMQ_FILLING);
    return shmq_outcome(q, s ? pin(q, s, view) : SHMQ_STALE);
}

int shmq_pin_at(struct shmq_queue *q, uint32_t at, uint64_t seq, struct shmq_view *view)
{
    struct shmq_slot *s = shmq_slot_named(q, at);
    enum shmq_state state = s ? shmq_state_of(shmq_word(s)) : SHMQ_FREE;

    if (!s || s->seq != seq || state == SHMQ_FREE || state == SHMQ_FILLING || state == SHMQ_STAGED)
        return shmq_outcome(q, SHMQ_STALE);
    return shmq_outcome(q, pin(q, s, view));
}

void shmq_unpin(struct shmq_queue *q, uint32_t at)
{
    struct shmq_slot *s = shmq_slot_at(q, at);

    if (s->pins >> 16 != q->attachment + 1 || !(s->pins & 0xFFFF))
        return;
    SET(s->pins, (s->pins & 0xFFFF) > 1 ? s->pins - 1 : 0);
    if (!s->pins && shmq_state_of(shmq_word(s)) == SHMQ_ZOMBIE)
        shmq_slot_free(q, s);
}

/* ---- purge ---- */

/* Sets every visible and delayed message free and derives everything else anew, which
 * is linear, whatever the messages' groups, priorities and timers. */
int shmq_purge(struct shmq_queue *q, uint64_t *removed)
{
    int status;

    *removed = 0;
    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];
        uint64_t word = shmq_word(s);

        if (shmq_state_of(word) != SHMQ_READY && shmq_state_of(word) != SHMQ_DELAYED)
            continue;
        shmq_commit(s, shmq_make_word(s->pins ? SHMQ_ZOMBIE : SHMQ_FREE, 0, 0,
                                      shmq_serial_of(word)));
        ++*removed;
    }
    if ((status = shmq_rebuild(q)))
        return status;
    shmq_give_back(q);
    return SHMQ_OK;
}
