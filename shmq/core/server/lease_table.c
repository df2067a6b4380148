#include "server/server.h"

/* For one queue session in one review: leases that are still held go to the end of the list. */
#define MOST_REVIEWED 1024

static uint64_t room(uint64_t limit, uint64_t used)
{
    if (!limit)
        return UINT32_MAX;
    return used < limit ? limit - used : 0;
}

uint32_t shmq_lease_room(const struct shmq_session *session, uint64_t *bytes)
{
    const struct shmq_limits *limits = &session->engine->limits;

    *bytes = room(limits->unsettled_bytes, session->unsettled_bytes);
    return *bytes ? (uint32_t)room(limits->unsettled, session->unsettled) : 0;
}

static bool may_lease(const struct shmq_session *session)
{
    uint64_t bytes;

    return shmq_lease_room(session, &bytes) > 0;
}

static void append(struct shmq_queue_session *queue_session, uint32_t slot)
{
    struct shmq_held_lease *held_leases = queue_session->queue->held_leases;

    held_leases[slot].next = SHMQ_NIL;
    held_leases[slot].prev = queue_session->last;
    if (queue_session->last == SHMQ_NIL)
        queue_session->first = slot;
    else
        held_leases[queue_session->last].next = slot;
    queue_session->last = slot;
}

static void unlink_held_lease(struct shmq_queue_session *queue_session, uint32_t slot)
{
    struct shmq_held_lease *held_leases = queue_session->queue->held_leases,
                           *t = &held_leases[slot];

    if (t->prev == SHMQ_NIL)
        queue_session->first = t->next;
    else
        held_leases[t->prev].next = t->next;
    if (t->next == SHMQ_NIL)
        queue_session->last = t->prev;
    else
        held_leases[t->next].prev = t->prev;
}

/* The held lease has ended, and what it took up is free. */
static void end(struct shmq_attached_queue *queue, uint32_t slot)
{
    struct shmq_held_lease *t = &queue->held_leases[slot];
    struct shmq_session *session = t->queue_session->session;
    struct shmq_waiter *of = t->of;

    unlink_held_lease(t->queue_session, slot);
    t->queue_session->count--;
    session->unsettled--;
    session->engine->held_lease_count--;
    session->unsettled_bytes -= t->bytes;
    t->receipt = 0;
    if (of)
        shmq_waiter_credit(of);
    if (session->blocked && may_lease(session))
        shmq_waiters_unblock(session);
}

static uint32_t slot_of(uint64_t receipt) { return (uint32_t)(receipt & SHMQ_RECEIPT_SLOT); }

void shmq_held_lease_begin(struct shmq_queue_session *queue_session, const struct shmq_view *view,
                           struct shmq_waiter *of)
{
    struct shmq_attached_queue *queue = queue_session->queue;
    struct shmq_held_lease *t = &queue->held_leases[view->at];

    if (t->receipt)
        end(queue, view->at); /* settled elsewhere, and leased again */
    t->receipt = view->receipt;
    t->queue_session = queue_session;
    t->of = of;
    t->bytes = view->body_bytes + view->meta_bytes;
    t->number = of ? of->delivered : 0;
    append(queue_session, view->at);
    queue_session->count++;
    queue_session->session->unsettled++;
    queue_session->session->engine->held_lease_count++;
    queue_session->session->unsettled_bytes += t->bytes;
    if (of)
        of->used++;
}

void shmq_held_lease_end(struct shmq_attached_queue *queue, uint64_t receipt)
{
    uint32_t slot = slot_of(receipt);

    if (receipt && slot < queue->q->geo.slots_max && queue->held_leases[slot].receipt == receipt)
        end(queue, slot);
}

/* Whether the client reports hand-outs, and has not reported this message. */
static bool is_unseen(const struct shmq_held_lease *t)
{
    return t->of && t->of->tells && (int32_t)(t->number - t->of->handed) >= 0;
}

/* How the lease ends with its session. */
static struct shmq_owed end_of(const struct shmq_held_lease *t)
{
    bool soon = t->queue_session->session->supervised;

    return (struct shmq_owed){
        .kind = is_unseen(t) ? SHMQ_RETURN_UNSEEN
                : soon       ? SHMQ_RETURN_SOON
                             : SHMQ_RETURN_IT,
        .what = t->receipt,
    };
}

/* Ends up to SHMQ_RUN of the queue session's held leases, and returns those that it still holds. */
static void return_some(struct shmq_queue_session *queue_session)
{
    struct shmq_attached_queue *queue = queue_session->queue;
    int status = queue->gone ? SHMQ_DELETED : shmq_attached_queue_lock(queue, false);
    int64_t now = shmq_now();

    for (uint32_t i = 0; i < SHMQ_RUN && queue_session->count; i++) {
        struct shmq_owed owed = end_of(&queue->held_leases[queue_session->first]);

        if (status == SHMQ_OK)
            shmq_attached_queue_do(queue, &owed, now);
        else if (status == SHMQ_BUSY)
            shmq_attached_queue_owe(queue, owed.kind, owed.what);
        end(queue, queue_session->first);
    }
    if (status == SHMQ_OK)
        shmq_attached_queue_unlock(queue);
}

void shmq_held_leases_return(struct shmq_session *session)
{
    for (struct shmq_queue_session *queue_session = session->queue_sessions; queue_session;
         queue_session = queue_session->next) {
        if (queue_session->count)
            shmq_attached_queue_touch(queue_session->queue);
        while (queue_session->count)
            return_some(queue_session);
    }
}

void shmq_held_leases_review(struct shmq_session *session, int64_t now)
{
    for (struct shmq_queue_session *queue_session = session->queue_sessions; queue_session;
         queue_session = queue_session->next) {
        uint32_t count = queue_session->count < MOST_REVIEWED ? queue_session->count
                                                              : MOST_REVIEWED;

        while (count--) {
            uint32_t slot = queue_session->first;

            if (!shmq_holds(queue_session->queue->q,
                            queue_session->queue->held_leases[slot].receipt, now)) {
                end(queue_session->queue, slot);
                continue;
            }
            unlink_held_lease(queue_session, slot);
            append(queue_session, slot);
        }
    }
}

void shmq_held_leases_void(struct shmq_attached_queue *queue)
{
    for (uint32_t slot = 0; slot < queue->q->geo.slots_max; slot++)
        if (queue->held_leases[slot].receipt)
            end(queue, slot);
}
