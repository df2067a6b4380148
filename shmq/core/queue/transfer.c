#include "queue/transfer.h"

#include "queue/index.h"
#include "queue/slot.h"
#include "queue/transition.h"

static void take(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view)
{
    uint64_t word = shmq_word(s);

    shmq_own(q, s);
    shmq_commit(s, shmq_make_word(SHMQ_MOVING, word & SHMQ_F_TTL, shmq_deliveries_of(word),
                                  shmq_next_serial(q->h)));
    shmq_look(q, s, view);
}

int shmq_take_dead(struct shmq_queue *q, struct shmq_view *view)
{
    struct shmq_slot *s;

    if (q->h->dying.head == SHMQ_NIL)
        return shmq_outcome(q, SHMQ_EMPTY);
    s = shmq_slot_at(q, q->h->dying.head);
    shmq_list_remove(q, &q->h->dying, s);
    shmq_set_where(s, SHMQ_NOWHERE);
    take(q, s, view);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_take(struct shmq_queue *q, uint32_t at, uint64_t seq, struct shmq_view *view)
{
    struct shmq_slot *s = shmq_slot_named(q, at);

    if (!s || s->seq != seq || shmq_state_of(shmq_word(s)) != SHMQ_READY)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_withdraw(q, s);
    shmq_leave_group(q, s);
    SET(s->reason, SHMQ_ALIVE);
    take(q, s, view);
    SET(q->h->dead, q->h->dead + 1);
    return shmq_outcome(q, SHMQ_OK);
}

static void count_dead_letter(struct shmq_header *h, uint8_t reason)
{
    SET(h->dead_lettered, h->dead_lettered + 1);
    if (reason < SHMQ_REASONS) /* another one is damage */
        SET(h->dead_lettered_by[reason], h->dead_lettered_by[reason] + 1);
}

int shmq_moved(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_MOVING);
    uint8_t reason;

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    reason = s->reason;
    shmq_slot_free(q, s);
    SET(q->h->dead, q->h->dead - 1);
    if (reason != SHMQ_ALIVE)
        count_dead_letter(q->h, reason);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_moved_rows(struct shmq_queue *q, uint64_t receipt, uint32_t rows)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_MOVING);

    if (!s || rows < shmq_rows_moved(shmq_word(s)) || rows > SHMQ_DELIVERIES_MAX)
        return shmq_outcome(q, SHMQ_STALE);
    shmq_commit(s, shmq_make_word(SHMQ_MOVING, 0, rows, shmq_serial_of(shmq_word(s))));
    return shmq_outcome(q, SHMQ_OK);
}

/* The message waits to be moved once more. */
static void wait_again(struct shmq_queue *q, struct shmq_slot *s)
{
    shmq_make_dead(q, s, shmq_deliveries_of(shmq_word(s)));
}

/* Without a group, as all dead letters are. */
static void return_to_order(struct shmq_queue *q, struct shmq_slot *s)
{
    uint64_t word = shmq_word(s);

    SET(q->h->dead, q->h->dead - 1);
    shmq_make_ready(q, s,
                    shmq_make_word(SHMQ_READY, word & SHMQ_F_TTL, shmq_deliveries_of(word),
                                   shmq_serial_of(word)));
}

int shmq_untake(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_MOVING);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    if (s->reason == SHMQ_ALIVE)
        return_to_order(q, s);
    else
        wait_again(q, s);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_give_up(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_slot *s = shmq_slot_in(q, receipt, SHMQ_MOVING);

    if (!s)
        return shmq_outcome(q, SHMQ_STALE);
    wait_again(q, s);
    return shmq_outcome(q, SHMQ_OK);
}

static bool is_copy(const struct shmq_slot *s)
{
    return shmq_state_of(shmq_word(s)) == SHMQ_STAGED;
}

/* The number of the row that a copy is. */
static uint32_t row_of(const struct shmq_slot *s)
{
    return shmq_word(s) & SHMQ_F_ROW ? (uint32_t)GET_ATOMIC(s->deadline) : SHMQ_NO_ROW;
}

void shmq_void_copies(struct shmq_queue *q, uint64_t origin_queue, uint64_t origin_seq,
                      uint32_t rows)
{
    for (uint32_t at = 0; q->h->staged && at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];

        if (!is_copy(s) || s->origin_queue != origin_queue || s->origin_seq != origin_seq ||
            row_of(s) < rows)
            continue;
        (void)shmq_abandon(q, shmq_receipt_of(shmq_word(s), at));
    }
}

int shmq_find_orphan(struct shmq_queue *q, uint32_t from, struct shmq_origin *origin)
{
    for (uint32_t at = from; q->h->staged && at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];

        if (!is_copy(s) || s->owner)
            continue;
        origin->receipt = shmq_receipt_of(shmq_word(s), at);
        origin->queue = s->origin_queue;
        origin->seq = s->origin_seq;
        origin->row = row_of(s);
        return SHMQ_OK;
    }
    return SHMQ_EMPTY;
}

void shmq_disown(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_slot *copy = shmq_slot_in(q, receipt, SHMQ_STAGED), *s = copy;
    uint16_t self = (uint16_t)(q->attachment + 1);

    if (!s && !(s = shmq_slot_in(q, receipt, SHMQ_MOVING)))
        s = shmq_slot_in(q, receipt, SHMQ_FILLING);
    if (!s || !__atomic_compare_exchange_n(&s->owner, &self, 0, false, __ATOMIC_RELEASE,
                                           __ATOMIC_RELAXED))
        return;
    shmq_mark(); /* if it dies here, shmq_reclaim finds the slot */
    if (!copy)   /* shmq_find_orphan finds that */
        SET_RELEASE(q->h->disowned, 1);
}

bool shmq_still_moves(struct shmq_queue *q, uint64_t seq, uint32_t row)
{
    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        uint64_t word = shmq_word(&q->slots[at]);
        enum shmq_state state = shmq_state_of(word);

        if ((state == SHMQ_DEAD || state == SHMQ_MOVING) && q->slots[at].seq == seq)
            return row == SHMQ_NO_ROW || row >= shmq_rows_moved(word);
    }
    return false;
}
