#include "server/server.h"

#include <stdlib.h>

/* ---- the attached queue's queue ---- */

/* The ends of the queue that it stands in. */
static struct shmq_waiter **first_of(const struct shmq_waiter *w)
{
    struct shmq_attached_queue *queue = w->queue_session->queue;

    return w->filtered ? &queue->filtered_first : &queue->first;
}

static struct shmq_waiter **last_of(const struct shmq_waiter *w)
{
    struct shmq_attached_queue *queue = w->queue_session->queue;

    return w->filtered ? &queue->filtered_last : &queue->last;
}

void shmq_waiter_enqueue(struct shmq_waiter *w)
{
    struct shmq_waiter **last = last_of(w);

    if (w->queued)
        return;
    w->queued = true;
    w->next = NULL;
    w->prev = *last;
    if (*last)
        (*last)->next = w;
    else
        *first_of(w) = w;
    *last = w;
    if (w->filtered)
        w->filtered->looks = true;
    shmq_attached_queue_touch(w->queue_session->queue);
}

void shmq_waiter_dequeue(struct shmq_waiter *w)
{
    if (!w->queued)
        return;
    w->queued = false;
    if (w->prev)
        w->prev->next = w->next;
    else
        *first_of(w) = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        *last_of(w) = w->prev;
}

/* ---- beginning and ending ---- */

struct shmq_waiter *shmq_waiter_begin(struct shmq_queue_session *queue_session,
                                      const struct shmq_consume_request *request)
{
    struct shmq_waiter *w = calloc(1, sizeof *w);

    if (!w) {
        free(request->filtered);
        return NULL;
    }
    w->filtered = request->filtered;
    w->session = queue_session->session;
    w->queue_session = queue_session;
    w->id = request->id;
    w->most = request->most;
    w->until = request->until;
    w->subscribes = request->subscribes;
    w->looks = request->looks;
    w->settled = request->settled;
    w->tells = request->tells;
    w->peer = queue_session->session->waiters;
    if (w->peer)
        w->peer->peer_before = w;
    queue_session->session->waiters = w;
    queue_session->session->waiter_count++;
    queue_session->waiters++;
    return w;
}

static void discard(struct shmq_waiter *w)
{
    free(w->filtered);
    free(w);
}

void shmq_waiter_end(struct shmq_waiter *w)
{
    shmq_waiter_dequeue(w);
    if (w->peer_before)
        w->peer_before->peer = w->peer;
    else
        w->session->waiters = w->peer;
    if (w->peer)
        w->peer->peer_before = w->peer_before;
    w->session->waiter_count--;
    w->queue_session->waiters--;
    w->ended = true;
    if (w->parks)
        shmq_unpark(w->session);
    if (!w->used)
        discard(w);
}

void shmq_waiter_answer(struct shmq_waiter *w, uint16_t status)
{
    if (status) {
        shmq_reply(w->session, w->id, status, NULL, 0);
        shmq_mark_pending(w->session);
    }
    shmq_waiter_end(w);
}

struct shmq_waiter *shmq_subscription(struct shmq_session *session, uint32_t id)
{
    struct shmq_waiter *w = session->waiters;

    while (w && !((w->subscribes || w->looks) && w->id == id))
        w = w->peer;
    return w;
}

void shmq_unsubscribe(struct shmq_waiter *subscription)
{
    subscription->tells = false; /* nothing can be reported of it any more: all of it counts */
    shmq_waiter_end(subscription);
}

void shmq_waiter_handed(struct shmq_waiter *subscription, uint32_t count)
{
    if ((int32_t)(count - subscription->handed) > 0)
        subscription->handed = count;
}

void shmq_waiter_credit(struct shmq_waiter *subscription)
{
    subscription->used--;
    if (!subscription->ended && shmq_waiter_has_credit(subscription))
        shmq_waiter_enqueue(subscription);
    else if (subscription->ended && !subscription->used)
        discard(subscription);
}

void shmq_waiters_unblock(struct shmq_session *session)
{
    session->blocked = false;
    for (struct shmq_waiter *w = session->waiters; w; w = w->peer)
        if (shmq_waiter_has_credit(w))
            shmq_waiter_enqueue(w);
}

/* ---- the ends ---- */

int64_t shmq_waiters_expire(struct shmq_session *session, int64_t now)
{
    struct shmq_waiter *w = session->waiters, *peer;
    int64_t earliest = INT64_MAX;

    for (; w; w = peer) {
        peer = w->peer;
        if (w->subscribes)
            continue;
        if (w->until <= now && shmq_waiter_searches(w)) {
            w->last_look = true;
            w->until = INT64_MAX;
        } else if (w->until <= now)
            shmq_waiter_answer(w, w->queue_session->queue->held_since ? SHMQ_S_BUSY
                                                                      : SHMQ_S_QUEUE_EMPTY);
        else if (w->until < earliest)
            earliest = w->until;
    }
    return earliest;
}

void shmq_waiters_refuse(struct shmq_attached_queue *queue)
{
    struct shmq_waiter *w = queue->filtered_first, *next;

    for (; w; w = next) {
        next = w->next;
        if (w->last_look)
            shmq_waiter_answer(w, SHMQ_S_BUSY);
    }
}

void shmq_waiters_leave(struct shmq_session *session, uint16_t status)
{
    while (session->waiters)
        shmq_waiter_answer(session->waiters, status);
}

void shmq_waiters_end(struct shmq_attached_queue *queue, uint16_t status)
{
    for (struct shmq_session *s = queue->engine->sessions; s; s = s->next) {
        struct shmq_waiter *w = s->waiters, *peer;

        for (; w; w = peer) {
            peer = w->peer;
            if (w->queue_session->queue == queue)
                shmq_waiter_answer(w, status);
        }
    }
}
