/* Leasing and settling. */
#include "actions.h"
#include "ledger.h"
#include "queue/run.h"

static bool blocks(const struct shmq_slot *s)
{
    uint64_t word = shmq_word(s);

    return shmq_state_of(word) == SHMQ_LEASED || shmq_state_of(word) == SHMQ_ACKED ||
           (shmq_state_of(word) == SHMQ_DELAYED && word & SHMQ_F_HOLDS);
}

static bool is_blocked(struct shmq_queue *q, const struct shmq_slot *s)
{
    if (!(shmq_word(s) & SHMQ_F_GROUPED))
        return false;
    for (uint32_t at = 0; at < q->h->slots_made; at++)
        if (shmq_word(&q->slots[at]) & SHMQ_F_GROUPED && q->slots[at].group == s->group &&
            blocks(&q->slots[at]))
            return true;
    return false;
}

/* What is to be served next, from the slots alone. */
static uint32_t naive_next(struct shmq_queue *q)
{
    uint32_t best = SHMQ_NIL;

    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];

        if (shmq_state_of(shmq_word(s)) != SHMQ_READY || is_blocked(q, s))
            continue;
        if (best == SHMQ_NIL || shmq_key_of(s) < shmq_key_of(&q->slots[best]))
            best = at;
    }
    return best;
}

void do_lease(struct actor *a)
{
    struct actor_receipt r = {.state = SHMQ_LEASED};
    struct shmq_view view;
    uint32_t next = SHMQ_NIL;
    int status;

    if (a->strict) {
        settle_time(a);
        next = naive_next(a->q);
    }
    status = shmq_lease(a->q, now, one_in(a, 2), &view);
    MUST_BE(status, next == SHMQ_NIL ? SHMQ_EMPTY : SHMQ_OK);
    if (status != SHMQ_OK)
        return;
    MUST_BE(view.at, next);
    MUST(view.seq <= a->q->h->last_seq && !a->puts[view.seq % MOST_PUTS].settled);
    check_view(a, &view, view.seq);
    r.receipt = view.receipt;
    keep(a, r);
}

/* Whether the run, of which these are the messages, holds the slot's group. */
static bool is_of_group(const struct shmq_view *views, uint32_t count, const struct shmq_slot *s)
{
    for (uint32_t i = 0; i < count; i++)
        if (views[i].group && shmq_word(s) & SHMQ_F_GROUPED && views[i].group == s->group)
            return true;
    return false;
}

/* The same for a run: the groups that it holds are not blocked for it. */
static uint32_t naive_next_of_run(struct shmq_queue *q, const struct shmq_view *views,
                                  uint32_t count)
{
    uint32_t best = naive_next(q);

    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];

        if (shmq_state_of(shmq_word(s)) == SHMQ_READY && is_of_group(views, count, s) &&
            (best == SHMQ_NIL || shmq_key_of(s) < shmq_key_of(&q->slots[best])))
            best = at;
    }
    return best;
}

void do_run(struct actor *a)
{
    struct shmq_view views[6];
    struct shmq_claim claim = {1, 0};
    struct shmq_run run;
    uint32_t count = 0, next = SHMQ_NIL, most = (uint32_t)below(a, 6) + 1;
    bool named = a->side == ACTOR_WHOLE && one_in(a, 2) &&
                 shmq_claim_name(a->q, 1 + below(a, 3), "name", 4, &claim) == SHMQ_OK;
    int status = SHMQ_OK;

    shmq_run_begin(&run, named ? &claim : NULL, 1);
    while (status == SHMQ_OK && count < most) {
        if (a->strict) {
            settle_time(a);
            next = naive_next_of_run(a->q, views, count);
        }
        status = shmq_run_lease(a->q, &run, now, 10 * SECOND, &views[count]);
        MUST_BE(status, next == SHMQ_NIL ? SHMQ_EMPTY : SHMQ_OK);
        if (status != SHMQ_OK)
            break;
        MUST_BE(views[count].at, next);
        check_view(a, &views[count], views[count].seq);
        count++;
    }
    shmq_run_end(&run);
    while (count-- && !named)
        keep(a, (struct actor_receipt){.receipt = views[count].receipt, .state = SHMQ_LEASED});
}

void do_hand(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_LEASED);
    bool good = is_good(a, r.receipt, SHMQ_LEASED);
    int status = shmq_hand(a->q, r.receipt, now);

    MUST(good || status == SHMQ_STALE);
    MUST_BE(shmq_holds(a->q, r.receipt, now), status == SHMQ_OK);
    if (status == SHMQ_OK)
        keep(a, r);
}

void do_mark_acked(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_LEASED);
    bool good = is_good(a, r.receipt, SHMQ_LEASED) && shmq_holds(a->q, r.receipt, now);
    int status = shmq_mark_acked(a->q, r.receipt, now);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    if (status != SHMQ_OK)
        return;
    if (good)
        a->puts[a->q->slots[r.receipt & SHMQ_RECEIPT_SLOT].seq].settled = true;
    r.state = SHMQ_ACKED;
    keep(a, r);
}

void do_finish(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_ACKED);
    bool good = is_good(a, r.receipt, SHMQ_ACKED);
    int status = shmq_finish(a->q, r.receipt);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
}

void do_settle(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_LEASED);
    uint32_t at = (uint32_t)(r.receipt & SHMQ_RECEIPT_SLOT);
    uint64_t how = below(a, 12), seq;
    bool good;
    int status;

    settle_time(a);
    good = is_good(a, r.receipt, SHMQ_LEASED);
    seq = good ? a->q->slots[at].seq : 0;
    if (how >= 5 && how < 9 && below(a, 2)) {
        /* {"type": a str of 250 bytes}, of one of 80 types */
        unsigned char error[ERROR_BYTES] = "\x81\xa4type\xda\x00\xfa";
        struct shmq_text kept = {error, sizeof error};

        error[ERROR_BYTES - 1] = (unsigned char)below(a, 80);

        MUST_BE(shmq_keep_error(a->q, r.receipt, kept, now), good ? SHMQ_OK : SHMQ_STALE);
    }
    if (how < 5)
        status = shmq_ack(a->q, r.receipt, now);
    else if (how < 8)
        status = shmq_nack(a->q, r.receipt, (int64_t)below(a, 4) * SECOND - 1, now);
    else if (how == 8)
        status = shmq_reject(a->q, r.receipt, now);
    else if (how == 9)
        status = shmq_return(a->q, r.receipt, now);
    else
        status = shmq_extend(a->q, r.receipt, (int64_t)below(a, 40) * SECOND, now);
    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    if (a->strict && good && how < 5)
        a->puts[seq].settled = true;
    if (status == SHMQ_OK && how >= 10)
        keep(a, r);
}
