#include "queue/amend.h"
#include "queue/failures.h"
#include "queue/holder.h"
#include "queue/index.h"
#include "queue/last_error.h"
#include "queue/put_ring.h"
#include "queue/slot.h"
#include "queue/transition.h"

#include <string.h>

/* A get takes messages from the inbox when it must, and now and then, so that the inbox does not
 * fill up and the puts need not empty it. */
#define OFTEN 32u
#define FROM_INBOX 64u

/* Prefetches what the next lease will read; the lease before has prefetched its slot. Of a message
 * with a group that is more: the second line of its slot, its properties and the group's record. */
static inline void fetch_ahead(struct shmq_queue *q, uint32_t next)
{
    const struct shmq_slot *s;
    bool grouped;

    if (next >= q->h->slots_made)
        return;
    s = &q->slots[next];
    grouped = shmq_word(s) & SHMQ_F_GROUPED;
    shmq_fetch(q->arena + (uint64_t)s->block * SHMQ_UNIT);
    if (grouped) {
        shmq_fetch(q->arena + ((uint64_t)s->block + s->units - 1) * SHMQ_UNIT);
        if (s->group_at < q->h->groups_made)
            shmq_fetch_to_write(&q->groups[s->group_at]);
    }
    if (s->next < q->h->slots_made) {
        shmq_fetch_to_write(&q->slots[s->next]);
        if (grouped)
            shmq_fetch(&q->slots[s->next].expires);
    }
}

/* Leases a READY message, by this attachment or by name. `flies`: it joins what its run has in flight
 * of its group. */
static inline void grant_to(struct shmq_queue *q, struct shmq_slot *s, bool by_name, bool flies,
                            int64_t now, int64_t ns, bool handed, struct shmq_view *view)
{
    struct shmq_header *h = q->h;
    uint64_t word = shmq_word(s), keep = word & (SHMQ_F_GROUPED | SHMQ_F_TTL);

    fetch_ahead(q, s->next);
    if (word & SHMQ_F_TTL)
        shmq_timer_unset(q, s);
    if (flies)
        shmq_group_fly(q, s);
    else if (word & SHMQ_F_GROUPED)
        shmq_group_leased(q, s);
    else
        shmq_order_remove(q, s);
    SET(h->visible, h->visible - 1);
    if (by_name)
        SET(s->owner, SHMQ_BY_NAME);
    else
        shmq_own(q, s);
    SET_ATOMIC(s->deadline, now + ns + shmq_lag(q));
    shmq_commit(s, shmq_make_word(SHMQ_LEASED, keep | (handed ? SHMQ_F_HANDED : 0),
                                  shmq_deliveries_of(word), shmq_next_serial(h)));
    shmq_count_lease(q, s, 1);
    if (ns == shmq_policies_now(h)->visibility && !flies)
        shmq_timer_lease(q, s);
    else
        shmq_timer_set(q, s);
    if (shmq_deliveries_of(word))
        SET(h->redelivered, h->redelivered + 1);
    shmq_look(q, s, view);
    view->deliveries++;
}

void shmq_grant(struct shmq_queue *q, struct shmq_slot *s, bool by_name, int64_t now, int64_t ns,
                struct shmq_view *view)
{
    grant_to(q, s, by_name, shmq_word(s) & SHMQ_F_GROUPED, now, ns, true, view);
}

/* The message that is served first, or SHMQ_NIL. Expired ones end here. */
uint32_t shmq_next_ready(struct shmq_queue *q, int64_t now)
{
    uint32_t at, guard = q->geo.slots_max;

    shmq_tick_if_due(q, now);
    while (guard-- && !q->damaged) {
        struct shmq_slot *s;

        if (q->h->fifo[q->middle].head == SHMQ_NIL || !(++q->leases % OFTEN))
            shmq_inbox_take(q, FROM_INBOX);
        at = shmq_order_first(q);
        if (at == SHMQ_NIL && q->h->next_tick <= now) {
            shmq_tick(q, now); /* one tick does only a limited amount */
            continue;
        }
        if (at == SHMQ_NIL)
            return SHMQ_NIL;
        s = shmq_slot_at(q, at);
        if (!shmq_has_expired(s, shmq_word(s), now))
            return at;
        shmq_message_due(q, s, now);
    }
    return SHMQ_NIL;
}

int shmq_lease(struct shmq_queue *q, int64_t now, bool handed, struct shmq_view *view)
{
    uint32_t at = shmq_next_ready(q, now);

    if (at == SHMQ_NIL)
        return shmq_outcome(q, SHMQ_EMPTY);
    shmq_lease_this(q, shmq_slot_at(q, at), now, handed, view);
    return shmq_outcome(q, SHMQ_OK);
}

void shmq_lease_this(struct shmq_queue *q, struct shmq_slot *s, int64_t now, bool handed,
                     struct shmq_view *view)
{
    grant_to(q, s, false, false, now, shmq_policies_now(q->h)->visibility, handed, view);
}

bool shmq_holds(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_LEASED);

    return s && GET_ATOMIC(s->deadline) > now;
}

uint64_t shmq_held_by_us(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_LEASED);
    uint64_t seq;

    if (!s || q->attachment == SHMQ_NIL || GET_RELAXED(q->h->state) != SHMQ_OPEN ||
        GET_ATOMIC(s->owner) != q->attachment + 1)
        return 0;
    seq = GET_ATOMIC(s->seq);
    return shmq_holds(q, receipt, now) ? seq : 0;
}

/* Swaps the word of a leased slot, unless its lease is over or being ended. */
static int swap_leased(struct shmq_queue *q, uint64_t receipt, int64_t now, bool acked)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_LEASED);
    uint64_t word, next;

    if (!s || GET_ATOMIC(s->deadline) <= now || GET_ATOMIC(s->owner) == SHMQ_BY_NAME)
        return SHMQ_STALE; /* who acts for a name is known only under the lock */
    word = shmq_word(s);
    do {
        if (shmq_state_of(word) != SHMQ_LEASED || word & SHMQ_F_CLOSED ||
            shmq_serial_of(word) != receipt >> SHMQ_SERIAL_SHIFT)
            return SHMQ_STALE;
        next = word | SHMQ_F_HANDED;
        if (acked)
            next = (next & ~SHMQ_STATE_MASK) | SHMQ_ACKED;
    } while (!atomic_compare_exchange_weak_explicit(&s->word, &word, next, memory_order_acq_rel,
                                                    memory_order_acquire));
    shmq_mark();
    return SHMQ_OK;
}

int shmq_hand(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    return swap_leased(q, receipt, now, false);
}

int shmq_mark_acked(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    return swap_leased(q, receipt, now, true);
}

int shmq_finish(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_ACKED);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_set_free(q, s);
    return shmq_outcome(q, SHMQ_OK);
}

/* ---- settlements ---- */

int shmq_ack(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = shmq_leased(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_set_free(q, s);
    return shmq_outcome(q, SHMQ_OK);
}

static uint64_t random_below(struct shmq_queue *q, uint64_t limit)
{
    q->random ^= q->random << 13; /* xorshift64, Marsaglia 2003 */
    q->random ^= q->random >> 7;
    q->random ^= q->random << 17;
    return limit ? q->random % limit : 0;
}

/* retry * 2^(n - 1) up to retry_max, times a random factor from 1/2 to 1; n: deliveries. */
static int64_t back_off(struct shmq_queue *q, uint32_t deliveries)
{
    const struct shmq_policies *policies = shmq_policies_now(q->h);
    int64_t delay = policies->retry, most = policies->retry_max;

    while (--deliveries && delay < most)
        delay = delay > INT64_MAX / 2 ? most : delay * 2;
    if (delay > most)
        delay = most;
    return delay - (int64_t)random_below(q, (uint64_t)delay / 2 + 1);
}

int shmq_keep_error(struct shmq_queue *q, uint64_t receipt, struct shmq_text error, int64_t now)
{
    struct shmq_slot *s = shmq_leased(q, receipt, now);
    unsigned char fit[SHMQ_ERROR_BYTES];
    struct shmq_text put;
    int status;

    if (!s || !shmq_close_lease(q, s))
        return SHMQ_STALE;
    shmq_count_failure(q, error);
    error = shmq_fit_error(error, shmq_policies_now(q->h)->error_bytes, fit);
    if (!error.bytes) {
        shmq_drop_amended(q, s);
        return SHMQ_OK;
    }
    put.at = s->meta_bytes ? shmq_put_meta_of(q, s) : NULL;
    put.bytes = s->meta_bytes;
    status = shmq_amend(q, s, put, error);
    if (status == SHMQ_FULL || status == SHMQ_NO_SPACE) {
        shmq_slot_drop_cached(q);
        (void)shmq_amend(q, s, put, error);
    }
    return SHMQ_OK;
}

/* Ends the lease of a valid receipt, and returns its slot; else NULL. */
static struct shmq_slot *take_back(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = shmq_leased(q, receipt, now);

    if (!s || !shmq_close_lease(q, s))
        return NULL;
    shmq_unlease(q, s);
    return s;
}

int shmq_nack(struct shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now)
{
    struct shmq_slot *s = take_back(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    if (delay < 0)
        delay = back_off(q, shmq_deliveries_of(shmq_word(s)) + 1);
    SET(q->h->nacked, q->h->nacked + 1);
    shmq_come_back(q, s, delay, now);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_reject(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = take_back(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_die(q, s, SHMQ_REJECTED, shmq_deliveries_with_this(shmq_word(s)));
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_extend(struct shmq_queue *q, uint64_t receipt, int64_t ns, int64_t now)
{
    struct shmq_slot *s = shmq_leased(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    if (ns <= 0) {
        shmq_end_lease(q, s, now);
        return shmq_outcome(q, SHMQ_OK);
    }
    shmq_timer_unlease(q, s);
    SET_ATOMIC(s->deadline, now + ns);
    shmq_timer_set(q, s);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_return(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s = take_back(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_come_back(q, s, 0, now);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_return_unseen(struct shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now)
{
    struct shmq_slot *s = take_back(q, receipt, now);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_commit(s, shmq_word(s) & ~SHMQ_F_HANDED);
    shmq_come_back(q, s, delay, now);
    return shmq_outcome(q, SHMQ_OK);
}

/* ---- views ---- */

static inline void look_at_meta(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view)
{
    const struct shmq_amended *amended = shmq_amended_of(q, s);

    view->meta = s->meta_bytes ? shmq_put_meta_of(q, s) : NULL;
    view->meta_bytes = s->meta_bytes;
    if (__builtin_expect(amended != NULL, 0)) {
        struct shmq_text text = shmq_amended_text(q, amended);

        if (!text.bytes) {
            q->damaged = true;
            return;
        }
        view->meta = text.at;
        view->meta_bytes = text.bytes;
    }
}

/* Reads no more of the slot than necessary: its second half is another cache line. */
void shmq_look(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view)
{
    bool is_dead;

    view->word = shmq_word(s);
    is_dead = shmq_state_of(view->word) == SHMQ_DEAD || shmq_state_of(view->word) == SHMQ_MOVING;
    view->at = shmq_index_of(q, s);
    view->receipt = shmq_receipt_of(view->word, view->at);
    view->seq = s->seq;
    view->body = shmq_body_of(q, s);
    view->body_bytes = s->body_bytes;
    look_at_meta(q, s, view);
    view->deliveries = shmq_deliveries_of(view->word);
    view->priority = (uint8_t)shmq_priority_of(s);
    view->codec = s->codec;
    view->put_at = s->put_at;
    view->deadline = s->deadline;
    view->group = view->word & SHMQ_F_GROUPED ? s->group : 0;
    view->expires = view->word & SHMQ_F_TTL ? s->expires : 0;
    view->reason = is_dead ? s->reason : 0;
    view->dead_at = is_dead ? s->dead_at : 0;
}

static void look_at_holder(struct shmq_queue *q, const struct shmq_slot *s,
                           struct shmq_leased_view *held)
{
    const struct shmq_holder *holder = shmq_holder_at(q, s);
    const struct shmq_attachment *a;
    uint16_t owner = s->owner;

    held->process = 0;
    held->pid = 0;
    memset(held->name, 0, sizeof held->name);
    if (holder)
        memcpy(held->name, holder->name, sizeof holder->name);
    if (!owner || owner > q->h->attachments_made || owner > SHMQ_MAX_ATTACHMENTS)
        return;
    a = &q->attachments[owner - 1];
    held->process = a->process;
    held->pid = a->pid;
    memcpy(held->name, a->name, sizeof a->name);
}

uint32_t shmq_leases_in(struct shmq_queue *q, uint32_t from, uint32_t end, uint64_t after,
                        struct shmq_leased_view *held)
{
    uint32_t count = 0;

    for (uint32_t at = from; at < end && at < q->h->slots_made && at < q->geo.slots_max; at++) {
        struct shmq_slot *s = &q->slots[at];
        uint64_t word = shmq_word(s);

        if (shmq_state_of(word) != SHMQ_LEASED || s->seq <= after)
            continue;
        held[count].seq = s->seq;
        held[count].deadline = s->deadline;
        held[count].body_bytes = s->body_bytes;
        held[count].deliveries = shmq_deliveries_with_this(word);
        held[count].priority = (uint8_t)shmq_priority_of(s);
        look_at_holder(q, s, &held[count++]);
    }
    return count;
}

static int pin(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view)
{
    uint32_t us = q->attachment + 1;

    shmq_look(q, s, view);
    if (s->pins && (s->pins >> 16 != us || (s->pins & 0xFFFF) == 0xFFFF))
        return SHMQ_BUSY;
    q->owned = true;
    SET(s->pins, s->pins ? s->pins + 1 : us << 16 | 1);
    return SHMQ_OK;
}

int shmq_pin(struct shmq_queue *q, uint64_t receipt, int64_t now, struct shmq_view *view)
{
    struct shmq_slot *s = shmq_leased(q, receipt, now);

    if (!s)
        s = shmq_slot_in(q, receipt, SHMQ_FILLING);
    return shmq_outcome(q, s ? pin(q, s, view) : SHMQ_STALE);
}

int shmq_pin_at(struct shmq_queue *q, uint32_t at, uint64_t seq, struct shmq_view *view)
{
    struct shmq_slot *s = shmq_slot_named(q, at);
    enum shmq_state state = s ? shmq_state_of(shmq_word(s)) : SHMQ_FREE;

    if (!s || s->seq != seq || state < SHMQ_READY || state == SHMQ_ZOMBIE || state == SHMQ_SPENT)
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
