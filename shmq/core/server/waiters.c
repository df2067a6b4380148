#include "server/waiters.h"

#include <stdlib.h>

#include "server/deliver.h"
#include "server/attached_queue.h"
#include "server/connection.h"
#include "server/lease_table.h"

#define SHARE 256u /* messages that one subscription gets before it is the next one's turn */

/* ---- the attached queue's queue ---- */

/* The ends of the queue that it stands in. */
static struct shmq_waiter **first_of(const struct shmq_waiter *w)
{
    struct shmq_attached_queue *attached_queue = w->queue_session->attached_queue;

    return w->filtered ? &attached_queue->filtered_first : &attached_queue->first;
}

static struct shmq_waiter **last_of(const struct shmq_waiter *w)
{
    struct shmq_attached_queue *attached_queue = w->queue_session->attached_queue;

    return w->filtered ? &attached_queue->filtered_last : &attached_queue->last;
}

static void enqueue(struct shmq_waiter *w)
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
    shmq_attached_queue_touch(w->queue_session->attached_queue);
}

static void dequeue(struct shmq_waiter *w)
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

static bool has_credit(const struct shmq_waiter *w)
{
    return !w->subscribes || w->settled || w->used < w->most;
}

/* ---- beginning and ending ---- */

static struct shmq_waiter *begin(struct shmq_queue_session *queue_session,
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

static void end(struct shmq_waiter *w)
{
    dequeue(w);
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

static void end_with(struct shmq_waiter *w, uint16_t status)
{
    if (status) {
        shmq_reply(w->session, w->id, status, NULL, 0);
        shmq_mark_pending(w->session);
    }
    end(w);
}

/* What it wants is refused: a queue that is gone ends all its waiters. */
static void fail(struct shmq_waiter *w, int outcome)
{
    struct shmq_attached_queue *attached_queue = w->queue_session->attached_queue;
    uint16_t status = shmq_attached_queue_status(attached_queue, outcome);

    if (!attached_queue->gone)
        end_with(w, status);
}

struct shmq_waiter *shmq_subscription(struct shmq_session *session, uint32_t id)
{
    struct shmq_waiter *w = session->waiters;

    while (w && !(w->subscribes && w->id == id))
        w = w->peer;
    return w;
}

void shmq_unsubscribe(struct shmq_waiter *subscription)
{
    subscription->tells = false; /* nothing can be told of it any more: all of it counts */
    end(subscription);
}

void shmq_waiter_handed(struct shmq_waiter *subscription, uint32_t count)
{
    if ((int32_t)(count - subscription->handed) > 0)
        subscription->handed = count;
}

void shmq_waiter_credit(struct shmq_waiter *subscription)
{
    subscription->used--;
    if (!subscription->ended && has_credit(subscription))
        enqueue(subscription);
    else if (subscription->ended && !subscription->used)
        discard(subscription);
}

/* ---- a CONSUME at once ---- */

static bool searches(const struct shmq_waiter *w) { return w->filtered && w->filtered->searches; }

/* What there is, for one who does not stand in the queue yet: how many. */
static uint32_t try_at_once(struct shmq_waiter *w, int *outcome)
{
    uint32_t count = shmq_deliver(w, w->most, w->filtered != NULL, outcome);

    if (!count && *outcome == SHMQ_EMPTY && !w->filtered)
        count = shmq_deliver(w, w->most, true, outcome);
    if (!count && *outcome == SHMQ_EMPTY && !searches(w) &&
        shmq_attached_queue_tend(w->queue_session->attached_queue))
        count = shmq_deliver(w, w->most, true, outcome);
    return count;
}

static void begin_to_wait(struct shmq_waiter *w)
{
    struct shmq_engine *engine = w->session->engine;

    if (w->until < engine->expire_at)
        engine->expire_at = w->until;
    enqueue(w);
}

/* One that does not wait, and whose search is not over: its session goes on behind it. */
static void search_on(struct shmq_waiter *w)
{
    w->until = INT64_MAX;
    w->last_look = w->parks = true;
    shmq_park(w->session);
    enqueue(w);
}

static void consume(struct shmq_queue_session *queue_session,
                    const struct shmq_consume_request *request)
{
    struct shmq_session *session = queue_session->session;
    struct shmq_waiter *w = begin(queue_session, request);
    int outcome;

    if (!w) {
        shmq_reply(session, request->id, SHMQ_S_INTERNAL, NULL, 0);
        return;
    }
    if (try_at_once(w, &outcome))
        end(w);
    else if (searches(w) && !request->until)
        search_on(w);
    else if (outcome == SHMQ_BUSY && !request->until &&
             shmq_park_at(session, queue_session->attached_queue, NULL))
        end(w);
    else if (outcome != SHMQ_EMPTY && outcome != SHMQ_OK &&
             !(outcome == SHMQ_BUSY && request->until))
        fail(w, outcome);
    else if (!request->until)
        end_with(w, SHMQ_S_QUEUE_EMPTY);
    else
        begin_to_wait(w);
}

void shmq_wait(struct shmq_queue_session *queue_session, const struct shmq_consume_request *request)
{
    struct shmq_waiter *w;

    if (!request->subscribes) {
        consume(queue_session, request);
        return;
    }
    if (!(w = begin(queue_session, request))) {
        shmq_reply(queue_session->session, request->id, SHMQ_S_INTERNAL, NULL, 0);
        return;
    }
    shmq_reply(queue_session->session, request->id, SHMQ_S_OK, NULL, 0);
    enqueue(w);
}

/* ---- serving ---- */

/* Gives the first one its share. The outcome: SHMQ_OK to go on, or why not. */
static int serve_first(struct shmq_waiter *w, bool whole)
{
    uint32_t most = w->subscribes && !w->settled ? w->most - w->used : w->most, count;
    int outcome;

    if (!shmq_may_deliver(w->session)) {
        w->session->blocked = true;
        dequeue(w);
        return SHMQ_OK;
    }
    if (w->subscribes && (w->settled || most > SHARE))
        most = SHARE;
    count = shmq_deliver(w, most, whole, &outcome);
    if (!count)
        return outcome;
    shmq_mark_pending(w->session);
    dequeue(w);
    if (!w->subscribes)
        end(w);
    else if (has_credit(w))
        enqueue(w);
    return SHMQ_OK;
}

bool shmq_attached_queue_serve(struct shmq_attached_queue *attached_queue)
{
    bool whole = false;

    while (attached_queue->first) {
        int outcome = serve_first(attached_queue->first, whole);

        if (outcome == SHMQ_EMPTY && !whole) {
            whole = true;
            continue;
        }
        if (outcome == SHMQ_OK)
            continue;
        if (outcome != SHMQ_EMPTY)
            (void)shmq_attached_queue_status(attached_queue, outcome);
        break;
    }
    return attached_queue->first != NULL;
}

/* It has looked, and got nothing: whether it is to look again at once. */
static bool conclude_look(struct shmq_waiter *w)
{
    struct shmq_filter_request *filtered = w->filtered;
    bool again = filtered->again && !filtered->searches;

    filtered->looks = filtered->searches || again;
    if (filtered->searches)
        return false;
    filtered->again = false;
    if (!w->last_look)
        return again;
    end_with(w, SHMQ_S_QUEUE_EMPTY);
    return false;
}

/* A round of those who are to look: whether anybody got something, so that there may be more
 * for them. */
static bool choose_round(struct shmq_attached_queue *attached_queue)
{
    struct shmq_waiter *w = attached_queue->filtered_first, *next;
    bool served = false;

    for (; w; w = next) {
        struct shmq_filter_request *filtered = w->filtered;
        int outcome;

        next = w->next;
        if (!filtered->looks)
            continue;
        filtered->looks = false;
        outcome = serve_first(w, true);
        if (outcome == SHMQ_BUSY)
            filtered->looks = true;
        if (outcome != SHMQ_OK && outcome != SHMQ_EMPTY) {
            (void)shmq_attached_queue_status(attached_queue, outcome);
            return false;
        }
        served |= outcome == SHMQ_OK || conclude_look(w);
    }
    return served;
}

bool shmq_attached_queue_serve_filtered(struct shmq_attached_queue *attached_queue, bool arrived)
{
    for (struct shmq_waiter *w = attached_queue->filtered_first; arrived && w; w = w->next) {
        w->filtered->looks = true;
        w->filtered->again = w->filtered->searches;
    }
    while (choose_round(attached_queue))
        continue;
    return attached_queue->filtered_first != NULL;
}

void shmq_waiters_unblock(struct shmq_session *session)
{
    session->blocked = false;
    for (struct shmq_waiter *w = session->waiters; w; w = w->peer)
        if (has_credit(w))
            enqueue(w);
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
        if (w->until <= now && searches(w)) {
            w->last_look = true;
            w->until = INT64_MAX;
        } else if (w->until <= now)
            end_with(w, w->queue_session->attached_queue->held_since ? SHMQ_S_BUSY
                                                                     : SHMQ_S_QUEUE_EMPTY);
        else if (w->until < earliest)
            earliest = w->until;
    }
    return earliest;
}

void shmq_waiters_refuse(struct shmq_attached_queue *attached_queue)
{
    struct shmq_waiter *w = attached_queue->filtered_first, *next;

    for (; w; w = next) {
        next = w->next;
        if (w->last_look)
            end_with(w, SHMQ_S_BUSY);
    }
}

void shmq_waiters_leave(struct shmq_session *session, uint16_t status)
{
    while (session->waiters)
        end_with(session->waiters, status);
}

void shmq_waiters_end(struct shmq_attached_queue *attached_queue, uint16_t status)
{
    for (struct shmq_session *s = attached_queue->engine->sessions; s; s = s->next) {
        struct shmq_waiter *w = s->waiters, *peer;

        for (; w; w = peer) {
            peer = w->peer;
            if (w->queue_session->attached_queue == attached_queue)
                end_with(w, status);
        }
    }
}
