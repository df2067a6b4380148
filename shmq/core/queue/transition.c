#include "queue/transition.h"

#include "base/clock.h"
#include "queue/change_hints.h"
#include "queue/holder.h"
#include "queue/index.h"
#include "queue/slot.h"

void shmq_count_lease(struct shmq_queue *q, const struct shmq_slot *s, int by)
{
    struct shmq_holder *holder = shmq_holder_at(q, s);

    if (holder)
        SET(holder->leases, holder->leases + (uint32_t)by);
    SET(q->h->leased, q->h->leased + (uint32_t)by);
    if (s->owner && s->owner <= q->h->attachments_made) {
        struct shmq_attachment *a = &q->attachments[s->owner - 1];

        SET(a->leases, a->leases + (uint32_t)by);
    }
}

void shmq_make_ready(struct shmq_queue *q, struct shmq_slot *s, uint64_t word)
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

void shmq_make_delayed(struct shmq_queue *q, struct shmq_slot *s, uint64_t word, int64_t until)
{
    SET_ATOMIC(s->deadline, until);
    shmq_commit(s, word);
    SET(q->h->delayed, q->h->delayed + 1);
    shmq_timer_set(q, s);
}

void shmq_withdraw(struct shmq_queue *q, struct shmq_slot *s)
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

void shmq_make_dead(struct shmq_queue *q, struct shmq_slot *s, uint32_t deliveries)
{
    uint64_t word = shmq_word(s), keep = s->reason == SHMQ_ALIVE ? word & SHMQ_F_TTL : 0;

    shmq_set_where(s, SHMQ_IN_DYING);
    shmq_commit(s, shmq_make_word(SHMQ_DEAD, keep, deliveries, shmq_serial_of(word)));
    shmq_list_append(q, &q->h->dying, s);
}

void shmq_die(struct shmq_queue *q, struct shmq_slot *s, enum shmq_reason reason,
              uint32_t deliveries)
{
    struct shmq_header *h = q->h;

    shmq_leave_group(q, s);
    if (!h->options.dead_letters ||
        (reason == SHMQ_EXPIRED_TTL && shmq_policies_now(h)->drop_expired)) {
        shmq_count_drop(h, reason);
        shmq_slot_free(q, s);
        return;
    }
    SET(s->reason, (uint8_t)reason);
    SET(s->dead_at, shmq_wall());
    shmq_make_dead(q, s, deliveries);
    SET(h->dead, h->dead + 1);
    shmq_hint_changed(q, s);
}

void shmq_come_back(struct shmq_queue *q, struct shmq_slot *s, int64_t delay, int64_t now)
{
    uint64_t word = shmq_word(s), keep = word & (SHMQ_F_GROUPED | SHMQ_F_TTL);
    uint32_t deliveries = shmq_deliveries_with_this(word);
    uint32_t limit = shmq_policies_now(q->h)->max_deliveries;
    bool handed = word & SHMQ_F_HANDED;

    if (shmq_has_expired(s, word, now))
        shmq_die(q, s, SHMQ_EXPIRED_TTL, deliveries);
    else if (handed && limit && deliveries >= limit)
        shmq_die(q, s, SHMQ_EXHAUSTED, deliveries);
    else if (delay > 0)
        shmq_make_delayed(q, s,
                          shmq_make_word(SHMQ_DELAYED,
                                         keep | (keep & SHMQ_F_GROUPED ? SHMQ_F_HOLDS : 0),
                                         deliveries, shmq_serial_of(word)),
                          now + delay);
    else
        shmq_make_ready(q, s, shmq_make_word(SHMQ_READY, keep, deliveries, shmq_serial_of(word)));
    shmq_hint_changed(q, s);
}

void shmq_unlease(struct shmq_queue *q, struct shmq_slot *s)
{
    shmq_timer_unlease(q, s);
    shmq_count_lease(q, s, -1);
}

void shmq_set_free(struct shmq_queue *q, struct shmq_slot *s)
{
    shmq_unlease(q, s);
    shmq_leave_group(q, s);
    shmq_slot_free(q, s);
    SET(q->h->acked, q->h->acked + 1);
}

bool shmq_close_lease(struct shmq_queue *q, struct shmq_slot *s)
{
    uint64_t word = atomic_fetch_or_explicit(&s->word, SHMQ_F_CLOSED, memory_order_acq_rel);

    shmq_mark();
    if (shmq_state_of(word) != SHMQ_ACKED)
        return true;
    shmq_set_free(q, s);
    return false;
}

void shmq_end_lease(struct shmq_queue *q, struct shmq_slot *s, int64_t now)
{
    if (!shmq_close_lease(q, s))
        return;
    shmq_unlease(q, s);
    SET(q->h->expired, q->h->expired + 1);
    shmq_come_back(q, s, 0, now);
}

struct shmq_slot *shmq_leased(struct shmq_queue *q, uint64_t receipt, int64_t now)
{
    struct shmq_slot *s;

    shmq_tick_if_due(q, now);
    s = shmq_slot_in(q, receipt, SHMQ_LEASED);
    if (s && s->deadline <= now) {
        shmq_end_lease(q, s, now);
        return NULL;
    }
    return s && s->owner == SHMQ_BY_NAME && shmq_is_fenced(q, s, shmq_word(s)) ? NULL : s;
}

void shmq_message_due(struct shmq_queue *q, struct shmq_slot *s, int64_t now)
{
    uint64_t word = shmq_word(s), keep = word & (SHMQ_F_GROUPED | SHMQ_F_TTL);

    switch (shmq_state_of(word)) {
    case SHMQ_LEASED:
    case SHMQ_ACKED: shmq_end_lease(q, s, now); break;
    case SHMQ_DELAYED:
        shmq_withdraw(q, s);
        if (shmq_has_expired(s, word, now))
            shmq_die(q, s, SHMQ_EXPIRED_TTL, shmq_deliveries_of(word));
        else
            shmq_make_ready(
                q, s,
                shmq_make_word(SHMQ_READY, keep, shmq_deliveries_of(word), shmq_serial_of(word)));
        break;
    case SHMQ_READY:
        shmq_withdraw(q, s);
        shmq_die(q, s, SHMQ_EXPIRED_TTL, shmq_deliveries_of(word));
        break;
    default: q->damaged = true;
    }
}

void shmq_message_orphaned(struct shmq_queue *q, struct shmq_slot *s, int64_t now)
{
    uint64_t word = shmq_word(s);

    switch (shmq_state_of(word)) {
    case SHMQ_FILLING: shmq_slot_free(q, s); break;
    case SHMQ_STAGED:
        SET(s->owner, 0); /* its origin decides: see transfer.h */
        break;
    case SHMQ_LEASED:
    case SHMQ_ACKED:
        if (!shmq_close_lease(q, s))
            break;
        shmq_unlease(q, s);
        shmq_come_back(q, s, 0, now);
        break;
    case SHMQ_MOVING: shmq_make_dead(q, s, shmq_deliveries_of(word)); break;
    default: break;
    }
}

/* ---- what is due ---- */

#define MOST_AT_ONCE 1024
#define RATE_PERIOD 1000000000ll    /* ns */
#define LIVENESS_PERIOD 50000000ll  /* ns */
#define A_CROWD 64u                 /* attached processes, from which on the period is longer */

static void sample_rates(struct shmq_header *h, int64_t now)
{
    SET(h->samples[0], h->samples[1]);
    SET(h->samples[1].at, now);
    SET(h->samples[1].inflow, GET_ATOMIC(h->last_seq));
    SET(h->samples[1].outflow, h->acked);
}

/* The pause after a check: the kernel finds the lock of one process among those of all, so a check
 * takes the square of their number. */
static int64_t liveness_period(const struct shmq_queue *q)
{
    uint32_t made = GET_ATOMIC(q->h->attachments_made), attached = 0;

    for (uint32_t at = 0; at < made && at < SHMQ_MAX_ATTACHMENTS; at++)
        attached += GET_ATOMIC(q->attachments[at].process) != 0;
    return LIVENESS_PERIOD * (1 + attached / A_CROWD);
}

bool shmq_claim_look(struct shmq_queue *q, int64_t now, int64_t patience)
{
    int64_t *at = &q->h->liveness_at, before = GET_ATOMIC(*at), next;

    if (now < before + patience &&
        before <= now + LIVENESS_PERIOD * (1 + SHMQ_MAX_ATTACHMENTS / A_CROWD))
        return false;
    next = now + liveness_period(q);
    if (!__atomic_compare_exchange_n(at, &before, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return false;
    shmq_mark();
    return true;
}

/* Takes over the slots that their owners have left. */
static void take_over(struct shmq_queue *q, int64_t now)
{
    if (!GET_RELAXED(q->h->disowned) || !atomic_exchange(&q->h->disowned, 0))
        return;
    shmq_mark(); /* if it dies here, shmq_reclaim finds the slots */
    for (uint32_t at = 0; at < q->h->slots_made; at++)
        if (shmq_is_disowned(&q->slots[at]))
            shmq_message_orphaned(q, &q->slots[at], now);
}

void shmq_tick(struct shmq_queue *q, int64_t now)
{
    struct shmq_header *h = q->h;
    int64_t due, next;
    uint32_t first;

    for (int done = 0; done < MOST_AT_ONCE; done++) {
        first = shmq_first_due(q, &due);
        if (due > now || q->damaged)
            break;
        shmq_message_due(q, shmq_slot_at(q, first), now);
    }
    take_over(q, now);
    if ((uint64_t)now - (uint64_t)h->samples[1].at >= RATE_PERIOD) /* or from the future */
        sample_rates(h, now);
    if (shmq_claim_look(q, now, 0))
        q->look_for_dead = true;
    shmq_first_due(q, &due);
    next = h->samples[1].at + RATE_PERIOD;
    next = due < next ? due : next;
    due = GET_ATOMIC(h->liveness_at);
    SET_ATOMIC(h->next_tick, next < due ? next : due);
}
