#include "server/engine.h"

#include <stdlib.h>

#include "server/server.h"
#include "server/requests.h"

#define MS 1000000ll
#define REVIEW_EVERY (50 * MS)   /* leases that ran out                                  */
#define PATROL_MOST (250 * MS)   /* limits of time                                       */
#define PATROL_LEAST (10 * MS)
#define PATROL_IDLE (1000 * MS)
#define UNUSED_FOR (10000 * MS)  /* then an unused queue is left                         */

bool shmq_engine_begin(struct shmq_engine *engine, const struct shmq_hooks *hooks, void *data,
                       const struct shmq_limits *limits)
{
    memset(engine, 0, sizeof *engine);
    engine->hooks = hooks;
    engine->data = data;
    engine->limits = *limits;
    engine->expire_at = engine->retry_at = INT64_MAX;
    return (engine->scratch = malloc(SHMQ_SCRATCH)) != NULL;
}

/* ---- attached queues whose lock was not free ---- */

static void unpark_all(struct shmq_attached_queue *queue)
{
    for (struct shmq_session *s = queue->engine->sessions; s; s = s->next)
        if (s->parked && s->parked_at == queue)
            shmq_unpark(s);
}

/* Continues what waited for the lock, and the waiters. Requests that have waited long enough are
 * carried out, too: they are refused. */
static void retry(struct shmq_attached_queue *queue)
{
    bool free = shmq_attached_queue_do_owed(queue);

    if (free)
        shmq_attached_queue_touch(queue);
    else
        shmq_attached_queue_later(queue);
    if (shmq_attached_queue_is_awaited(queue))
        return;
    unpark_all(queue);
    if (!free)
        shmq_waiters_refuse(queue);
}

static void retry_all(struct shmq_engine *engine)
{
    struct shmq_attached_queue *queue = engine->pending, *next;

    engine->pending = NULL;
    engine->retry_at = INT64_MAX;
    for (; queue; queue = next) {
        next = queue->next_pending;
        queue->pending = false;
        retry(queue);
        shmq_attached_queue_release(queue);
    }
}

static void give_up_all(struct shmq_engine *engine)
{
    while (engine->pending) {
        struct shmq_attached_queue *queue = engine->pending;

        engine->pending = queue->next_pending;
        queue->pending = false;
        shmq_attached_queue_release(queue);
    }
}

/* ---- the end ---- */

static void leave_all(struct shmq_engine *engine)
{
    for (int i = 0; i < SHMQ_BUCKETS; i++)
        while (engine->buckets[i]) {
            struct shmq_attached_queue *queue = engine->buckets[i];

            queue->users++;
            shmq_attached_queue_forget(queue, SHMQ_S_NO_QUEUE);
            shmq_attached_queue_release(queue);
        }
}

void shmq_engine_end(struct shmq_engine *engine)
{
    while (engine->sessions)
        shmq_session_end(engine->sessions);
    shmq_engine_settle(engine);
    retry_all(engine);
    shmq_engine_settle(engine);
    leave_all(engine);
    give_up_all(engine);
    free(engine->scratch);
    engine->scratch = NULL;
}

/* ---- after each call ---- */

static void look_after(struct shmq_attached_queue *queue)
{
    if (!queue->gone && (queue->q->look_for_dead || queue->q->h->dying.head != SHMQ_NIL))
        queue->engine->hooks->tend(queue);
    if (!queue->gone && queue->first && shmq_looks_ready(queue->q->h))
        (void)shmq_attached_queue_serve(queue);
    if (!queue->gone && queue->filtered_first)
        (void)shmq_attached_queue_serve_filtered(queue, false);
    if (!queue->gone && queue->first && !queue->awaited) {
        queue->awaited = true;
        queue->engine->hooks->wait(queue, false);
    }
    if (!queue->gone && queue->filtered_first && !queue->filtered_awaited) {
        queue->filtered_awaited = true;
        queue->engine->hooks->wait(queue, true);
    }
    if (!queue->gone)
        shmq_durable_replies_ask(queue);
}

void shmq_engine_settle(struct shmq_engine *engine)
{
    struct shmq_attached_queue *queue;

    while ((queue = engine->touched)) {
        engine->touched = queue->next_touched;
        look_after(queue);
        queue->touched = false;
        shmq_attached_queue_release(queue);
    }
}

struct shmq_session *shmq_engine_next_pending(struct shmq_engine *engine)
{
    struct shmq_session *session = engine->output_pending;

    if (!session)
        return NULL;
    engine->output_pending = session->next_pending;
    session->output_pending = false;
    if (session->held && !session->parked)
        shmq_session_go_on(session);
    return session;
}

/* ---- time ---- */

static int64_t expire_all(struct shmq_engine *engine, int64_t now)
{
    int64_t earliest = INT64_MAX;

    for (struct shmq_session *s = engine->sessions; s; s = s->next) {
        int64_t next = s->waiters ? shmq_waiters_expire(s, now) : INT64_MAX;

        earliest = next < earliest ? next : earliest;
    }
    return earliest;
}

static void review_all(struct shmq_engine *engine, int64_t now)
{
    for (struct shmq_session *s = engine->sessions; s; s = s->next)
        if (s->unsettled)
            shmq_held_leases_review(s, now);
}

/* `since` is of the coarse clock. */
static bool is_over(int64_t since, int64_t limit, int64_t now)
{
    return limit && now - since > limit + shmq_coarse_lag();
}

/* Why the session must be closed for taking too long, or NULL. */
static const char *overtime(const struct shmq_session *s, int64_t now)
{
    const struct shmq_limits *limits = &s->engine->limits;

    if (!s->authorised && is_over(s->began_at, limits->handshake, now))
        return "no HELLO with a good token came within the time for that";
    if (s->partial_at && is_over(s->partial_at, limits->frame, now))
        return "a frame did not become whole within the time for that";
    if (!s->owns && !s->waiters && !s->delayed && !s->durable_reply_count && !s->parked &&
        !shmq_pending(&s->out) && is_over(s->heard_at, limits->idle, now))
        return "no frame came for too long";
    return NULL;
}

/* A peer that reads nothing is not notified. One that sends no more gets its durable replies for as
 * long as a connection may be idle. */
static void check_session(struct shmq_session *s, int64_t now)
{
    const char *why;

    if (!shmq_pending(&s->out))
        s->moved_at = now;
    else if (is_over(s->moved_at, s->engine->limits.frame, now) && !s->broken)
        shmq_session_break(s);
    if (s->finished && s->durable_reply_count &&
        is_over(s->heard_at, s->engine->limits.idle, now)) {
        shmq_durable_replies_drop(s);
        shmq_mark_pending(s);
    }
    if (s->finished || !(why = overtime(s, now)))
        return;
    shmq_refuse(s, 0, SHMQ_S_TIMED_OUT, why);
    shmq_mark_pending(s);
}

/* Forgets deleted queues, and leaves unused ones. */
static void check_attached_queues(struct shmq_engine *engine, int64_t now)
{
    for (int i = 0; i < SHMQ_BUCKETS; i++) {
        struct shmq_attached_queue *queue = engine->buckets[i], *next;

        for (; queue; queue = next) {
            bool closed = queue->q->h->state != SHMQ_OPEN;

            next = queue->next;
            if (!closed && (queue->users || now - queue->unused_at < UNUSED_FOR))
                continue;
            queue->users++;
            shmq_attached_queue_forget(queue, SHMQ_S_NO_QUEUE);
            shmq_attached_queue_release(queue);
        }
    }
}

/* Without a session, no time of one is limited: a new one is met at the next patrol. */
static int64_t patrol_interval(const struct shmq_engine *engine)
{
    const struct shmq_limits *limits = &engine->limits;
    const int64_t times[] = {limits->handshake, limits->frame, limits->idle};
    int64_t interval = PATROL_MOST;

    if (!engine->sessions)
        return PATROL_IDLE;

    for (int i = 0; i < 3; i++)
        if (times[i] && times[i] / 8 < interval)
            interval = times[i] / 8;
    return interval < PATROL_LEAST ? PATROL_LEAST : interval;
}

static void patrol(struct shmq_engine *engine, int64_t now)
{
    for (struct shmq_session *s = engine->sessions; s; s = s->next)
        check_session(s, now);
    check_attached_queues(engine, now);
}

int64_t shmq_engine_tick(struct shmq_engine *engine, int64_t now)
{
    int64_t next;

    if (now >= engine->retry_at)
        retry_all(engine);
    if (now >= engine->expire_at)
        engine->expire_at = expire_all(engine, now);
    if (engine->held_lease_count && now >= engine->review_at) {
        review_all(engine, now);
        engine->review_at = now + REVIEW_EVERY;
    }
    if (now >= engine->patrol_at) {
        patrol(engine, now);
        engine->patrol_at = now + patrol_interval(engine);
    }
    shmq_engine_settle(engine);
    next = engine->patrol_at < engine->expire_at ? engine->patrol_at : engine->expire_at;
    if (engine->held_lease_count && now + REVIEW_EVERY < next)
        next = now + REVIEW_EVERY;
    return engine->retry_at < next ? engine->retry_at : next;
}

/* ---- the rest ---- */

void shmq_engine_drain(struct shmq_engine *engine)
{
    engine->draining = true;
    for (struct shmq_session *s = engine->sessions; s; s = s->next) {
        shmq_waiters_leave(s, SHMQ_S_SHUTTING_DOWN);
        shmq_mark_pending(s);
    }
}

void shmq_session_renew_rights(struct shmq_session *session)
{
    for (struct shmq_queue_session *queue_session = session->queue_sessions; queue_session;
         queue_session = queue_session->next)
        queue_session->rights = SHMQ_NOT_ASKED;
}
