#include "queue/change_hints.h"

#include <sched.h>

#include "base/clock.h"
#include "base/futex.h"

#define MOST_PATIENCE 400000ll /* ns: longer than a sync of a quick disk                 */
#define MARGIN 50000ll
#define SLICE 50000000ll /* ns: the cost of a lost wakeup       */

/* ---- hints ---- */

/* The message in slot `at`, which may have been logged, is settled or has changed. Holds the
 * get-side lock. */
static void hint_spent(struct shmq_queue *q, uint32_t at)
{
    uint64_t tail = GET_RELAXED(q->h->spent_tail);

    SET_ATOMIC(q->spent[shmq_hint_of(q, tail)], at);
    SET_RELEASE(q->h->spent_tail, tail + 1);
    q->hinted = true;
}

static uint64_t logged_seq(const struct shmq_queue *q, const struct shmq_slot *s)
{
    return s == &q->nowhere ? 0 : shmq_logged_seq(&q->logged[s - q->slots]);
}

void shmq_hint_changed(struct shmq_queue *q, const struct shmq_slot *s)
{
    if (__builtin_expect(!q->journaled, 1))
        return;
    /* The writer that claims it right now may have read its old state: one of them sees the
     * other. */
    shmq_fence();
    if (logged_seq(q, s) == s->seq)
        hint_spent(q, shmq_index_of(q, s));
}

static bool is_message(enum shmq_state state)
{
    return state == SHMQ_READY || state == SHMQ_DELAYED || state == SHMQ_LEASED ||
           state == SHMQ_ACKED || state == SHMQ_DEAD || state == SHMQ_MOVING;
}

/* Whether the journal has, or may have, the message of a SPENT slot; or must still record it,
 * because the message was moved and there is a writer, or a put waits for one. */
static bool is_owed(const struct shmq_queue *q, const struct shmq_slot *s)
{
    const struct shmq_journal *j = &q->h->journal;

    if (logged_seq(q, s) == s->seq)
        return true;
    return shmq_word(s) & SHMQ_F_MOVED &&
           (GET_ATOMIC(j->writer) || GET_RELAXED(j->awaited) >= s->seq);
}

/* Commits SPENT; true if it must stay SPENT. */
static bool commit_spent(struct shmq_queue *q, struct shmq_slot *s)
{
    uint64_t word = shmq_word(s), flags = 0;

    if (!q->journaled)
        return false;
    if (shmq_state_of(word) == SHMQ_SPENT)
        return is_owed(q, s);
    if (!is_message(shmq_state_of(word)))
        return false;
    if (shmq_state_of(word) == SHMQ_MOVING)
        flags = SHMQ_F_MOVED;
    shmq_commit(s,
                shmq_make_word(SHMQ_SPENT, flags, shmq_deliveries_of(word), shmq_serial_of(word)));
    shmq_fence();
    return is_owed(q, s);
}

bool shmq_spend(struct shmq_queue *q, struct shmq_slot *s)
{
    if (!commit_spent(q, s))
        return false;
    SET(q->h->spent, q->h->spent + 1);
    hint_spent(q, shmq_index_of(q, s));
    return true;
}

void shmq_conclude(struct shmq_queue *q, struct shmq_slot *s)
{
    if (!commit_spent(q, s))
        shmq_commit(s, shmq_make_word(s->pins ? SHMQ_ZOMBIE : SHMQ_FREE, 0, 0,
                                      shmq_serial_of(shmq_word(s))));
}

void shmq_lose_hints(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;

    if (!q->journaled)
        return;
    /* The epoch first: it tells a reader why puts have no hint. */
    atomic_fetch_add_explicit(&h->journal_epoch, 1, memory_order_acq_rel);
    shmq_mark();
    SET_RELEASE(h->fresh_tail, h->last_seq);
    q->hinted = true;
}

/* ---- waking the writer ---- */

void shmq_wake_writer(struct shmq_queue *q)
{
    if (atomic_exchange_explicit(&q->h->journal_asleep, SHMQ_AWAKE, memory_order_acq_rel))
        shmq_futex_wake(&q->h->journal_asleep);
}

/* Returns the number that was awaited before. */
static uint64_t await_number(struct shmq_queue *q, uint64_t seq)
{
    _Atomic uint64_t *awaited = &q->h->journal.awaited;
    uint64_t before = GET_RELAXED(*awaited);

    while (before < seq && !atomic_compare_exchange_weak_explicit(
                               awaited, &before, seq, memory_order_seq_cst, memory_order_relaxed))
        ;
    shmq_fence();
    if (GET_RELAXED(q->h->journal_asleep))
        shmq_wake_writer(q);
    return before;
}

void shmq_request_sync(struct shmq_queue *q, uint64_t seq) { (void)await_number(q, seq); }

/* ---- waiting for the disk ---- */

/* Whether no other put than `seq`, which the caller waits for, has come since the last sync. */
static bool is_alone(const struct shmq_queue *q, uint64_t seq)
{
    return GET_ACQUIRE(q->h->fresh_tail) <= seq;
}

/* A sync of a quick disk is over before a sleeper would be awake again. If the disk is slower,
 * spinning does not pay, and is soon given up; nor if others put as well, which need the cores.
 * The writer may have been woken on this very core: it runs first. */
static void spin_for_the_disk(struct shmq_queue *q, uint64_t seq, int64_t start)
{
    int64_t now = start;

    while (now - start < GET_ATOMIC(q->patience)) {
        for (int i = 0; i < 64; i++) {
            if (shmq_synced(q) >= seq) {
                __atomic_store_n(&q->patience, MOST_PATIENCE, __ATOMIC_RELAXED);
                return;
            }
            shmq_pause();
        }
        if (!is_alone(q, seq))
            return;
        (void)sched_yield();
        now = shmq_read_clock(CLOCK_MONOTONIC);
    }
    __atomic_store_n(&q->patience, GET_ATOMIC(q->patience) / 2, __ATOMIC_RELAXED);
}

uint32_t shmq_journal_error(const struct shmq_queue *q)
{
    const struct shmq_journal *j = &q->h->journal;
    uint32_t error = GET_RELAXED(j->error);

    return error && !shmq_has_died(q->self, j->writer) ? error : 0;
}

int shmq_wait_synced(struct shmq_queue *q, uint64_t seq, int64_t ns)
{
    struct shmq_journal *j = &q->h->journal;
    int64_t now = shmq_read_clock(CLOCK_MONOTONIC), end = now + ns, waited;
    uint64_t before = await_number(q, seq);
    bool alone = (before <= shmq_synced(q) || before == seq) && is_alone(q, seq);
    uint32_t wakeup;
    int status;

    if (alone) {
        spin_for_the_disk(q, seq, now);
        now = shmq_read_clock(CLOCK_MONOTONIC);
    }
    for (;;) {
        wakeup = GET_ACQUIRE(j->wakeup);
        if (shmq_synced(q) >= seq) {
            waited = now - end + ns;
            if (alone && waited < MOST_PATIENCE) /* a spin of that length would have paid */
                __atomic_store_n(&q->patience, waited + MARGIN, __ATOMIC_RELAXED);
            return SHMQ_OK;
        }
        if (GET_RELAXED(q->h->state) != SHMQ_OPEN)
            return SHMQ_DELETED;
        if (shmq_journal_error(q))
            return SHMQ_NO_SPACE;
        if (now >= end)
            return SHMQ_TIMED_OUT;
        status = shmq_futex_wait_bits(&j->wakeup, wakeup, shmq_wakeup_bit(seq),
                                      end - now < SLICE ? end - now : SLICE);
        if (status == SHMQ_INTERRUPTED)
            return status;
        now = shmq_read_clock(CLOCK_MONOTONIC);
    }
}

static void wake_bits(struct shmq_queue *q, uint32_t bits)
{
    atomic_fetch_add_explicit(&q->h->journal.wakeup, 1, memory_order_acq_rel);
    shmq_futex_wake_bits(&q->h->journal.wakeup, bits);
}

void shmq_wake_synced(struct shmq_queue *q) { wake_bits(q, UINT32_MAX); }

void shmq_wake_numbers(struct shmq_queue *q, uint64_t after, uint64_t upto)
{
    if (upto > after)
        wake_bits(q, shmq_wakeup_bits(after, upto));
}
