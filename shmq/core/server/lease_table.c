#include "server/lease_table.h"

#include "server/attached_queue.h"
#include "server/waiters.h"

/* Of one seat, at one review: those that are still held go to the end of the line. */
#define MOST_REVIEWED 1024

static uint64_t room(uint64_t limit, uint64_t used)
{
    if (!limit)
        return UINT32_MAX;
    return used < limit ? limit - used : 0;
}

uint32_t shmq_lease_room(const struct shmq_session *session, uint64_t *bytes)
{
    const struct shmq_limits *limits = &session->front->limits;

    *bytes = room(limits->unsettled_bytes, session->unsettled_bytes);
    return *bytes ? (uint32_t)room(limits->unsettled, session->unsettled) : 0;
}

static bool may_lease(const struct shmq_session *session)
{
    uint64_t bytes;

    return shmq_lease_room(session, &bytes) > 0;
}

static void append(struct shmq_seat *seat, uint32_t slot)
{
    struct shmq_tenure *tenures = seat->desk->tenures;

    tenures[slot].next = SHMQ_NIL;
    tenures[slot].prev = seat->last;
    if (seat->last == SHMQ_NIL)
        seat->first = slot;
    else
        tenures[seat->last].next = slot;
    seat->last = slot;
}

static void unlink_tenure(struct shmq_seat *seat, uint32_t slot)
{
    struct shmq_tenure *tenures = seat->desk->tenures, *t = &tenures[slot];

    if (t->prev == SHMQ_NIL)
        seat->first = t->next;
    else
        tenures[t->prev].next = t->next;
    if (t->next == SHMQ_NIL)
        seat->last = t->prev;
    else
        tenures[t->next].prev = t->prev;
}

/* The tenure is no more, and what it took up is free. */
static void end(struct shmq_desk *desk, uint32_t slot)
{
    struct shmq_tenure *t = &desk->tenures[slot];
    struct shmq_session *session = t->seat->session;
    struct shmq_waiter *of = t->of;

    unlink_tenure(t->seat, slot);
    t->seat->count--;
    session->unsettled--;
    session->front->tenure_count--;
    session->unsettled_bytes -= t->bytes;
    t->receipt = 0;
    if (of)
        shmq_waiter_credit(of);
    if (session->blocked && may_lease(session))
        shmq_waiters_unblock(session);
}

static uint32_t slot_of(uint64_t receipt) { return (uint32_t)(receipt & SHMQ_RECEIPT_SLOT); }

void shmq_tenure_begin(struct shmq_seat *seat, const struct shmq_view *view, struct shmq_waiter *of)
{
    struct shmq_desk *desk = seat->desk;
    struct shmq_tenure *t = &desk->tenures[view->at];

    if (t->receipt)
        end(desk, view->at); /* settled elsewhere, and leased again */
    t->receipt = view->receipt;
    t->seat = seat;
    t->of = of;
    t->bytes = view->body_bytes + view->meta_bytes;
    t->number = of ? of->delivered : 0;
    append(seat, view->at);
    seat->count++;
    seat->session->unsettled++;
    seat->session->front->tenure_count++;
    seat->session->unsettled_bytes += t->bytes;
    if (of)
        of->used++;
}

void shmq_tenure_end(struct shmq_desk *desk, uint64_t receipt)
{
    uint32_t slot = slot_of(receipt);

    if (receipt && slot < desk->q->capacity && desk->tenures[slot].receipt == receipt)
        end(desk, slot);
}

/* Whether the client tells what its application gets, and this it did not get. */
static bool is_unseen(const struct shmq_tenure *t)
{
    return t->of && t->of->tells && (int32_t)(t->number - t->of->handed) >= 0;
}

static void give_back(struct shmq_queue *q, const struct shmq_tenure *t, int64_t now)
{
    if (is_unseen(t))
        (void)shmq_return_unseen(q, t->receipt, now);
    else
        (void)shmq_return(q, t->receipt, now);
}

/* Ends up to SHMQ_RUN of the seat's tenures, and returns those that it still holds. */
static void return_some(struct shmq_seat *seat)
{
    struct shmq_desk *desk = seat->desk;
    int status = desk->gone ? SHMQ_DELETED : shmq_desk_lock(desk, false);
    int64_t now = shmq_now();

    for (uint32_t i = 0; i < SHMQ_RUN && seat->count; i++) {
        const struct shmq_tenure *t = &desk->tenures[seat->first];

        if (status == SHMQ_OK)
            give_back(desk->q, t, now);
        else if (status == SHMQ_BUSY)
            shmq_desk_owe(desk, is_unseen(t) ? SHMQ_RETURN_UNSEEN : SHMQ_RETURN_IT, t->receipt);
        end(desk, seat->first);
    }
    if (status == SHMQ_OK)
        shmq_desk_unlock(desk);
}

void shmq_tenures_return(struct shmq_session *session)
{
    for (struct shmq_seat *seat = session->seats; seat; seat = seat->next) {
        if (seat->count)
            shmq_desk_touch(seat->desk);
        while (seat->count)
            return_some(seat);
    }
}

void shmq_tenures_review(struct shmq_session *session, int64_t now)
{
    for (struct shmq_seat *seat = session->seats; seat; seat = seat->next) {
        uint32_t count = seat->count < MOST_REVIEWED ? seat->count : MOST_REVIEWED;

        while (count--) {
            uint32_t slot = seat->first;

            if (!shmq_holds(seat->desk->q, seat->desk->tenures[slot].receipt, now)) {
                end(seat->desk, slot);
                continue;
            }
            unlink_tenure(seat, slot);
            append(seat, slot);
        }
    }
}

void shmq_tenures_void(struct shmq_desk *desk)
{
    for (uint32_t slot = 0; slot < desk->q->capacity; slot++)
        if (desk->tenures[slot].receipt)
            end(desk, slot);
}
