#include "queue/transition.h"
#include "queue/slot.h"

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
    view->reason = is_dead ? s->reason : 0;
    view->dead_at = is_dead ? s->dead_at : 0;
}

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
