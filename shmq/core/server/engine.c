#include "server/engine.h"

#include <stdlib.h>

#include "server/attached_queue.h"
#include "server/durable_reply.h"
#include "server/connection.h"
#include "server/lease_table.h"
#include "server/waiters.h"

#define MS 1000000ll
#define REVIEW_EVERY (50 * MS)   /* leases that ran out                                  */
#define PATROL_MOST (250 * MS)   /* limits of time                                       */
#define PATROL_LEAST (10 * MS)
#define UNUSED_FOR (10000 * MS)  /* then a queue that nobody uses is left                */

bool shmq_front_begin(struct shmq_front *front, const struct shmq_hooks *hooks, void *data,
                      const struct shmq_limits *limits)
{
    memset(front, 0, sizeof *front);
    front->hooks = hooks;
    front->data = data;
    front->limits = *limits;
    front->expire_at = front->retry_at = INT64_MAX;
    return (front->scratch = malloc(SHMQ_SCRATCH)) != NULL;
}

static void leave_all(struct shmq_front *front)
{
    for (int i = 0; i < SHMQ_BUCKETS; i++)
        while (front->buckets[i]) {
            struct shmq_desk *desk = front->buckets[i];

            desk->users++;
            shmq_desk_forget(desk, SHMQ_S_NO_QUEUE);
            shmq_desk_release(desk);
        }
}

void shmq_front_end(struct shmq_front *front)
{
    while (front->sessions)
        shmq_session_end(front->sessions);
    shmq_front_settle(front);
    shmq_desks_retry(front);
    shmq_front_settle(front);
    leave_all(front);
    shmq_desks_give_up(front);
    free(front->scratch);
    front->scratch = NULL;
}

/* ---- after each call ---- */

static void look_after(struct shmq_desk *desk)
{
    if (!desk->gone && (desk->q->look_for_dead || desk->q->h->dying.head != SHMQ_NIL))
        desk->front->hooks->tend(desk);
    if (!desk->gone && desk->first && shmq_looks_ready(desk->q->h))
        (void)shmq_desk_serve(desk);
    if (!desk->gone && desk->choosy_first)
        (void)shmq_desk_choose(desk, false);
    if (!desk->gone && desk->first && !desk->awaited) {
        desk->awaited = true;
        desk->front->hooks->wait(desk, false);
    }
    if (!desk->gone && desk->choosy_first && !desk->choosy_awaited) {
        desk->choosy_awaited = true;
        desk->front->hooks->wait(desk, true);
    }
    if (!desk->gone)
        shmq_promises_ask(desk);
}

void shmq_front_settle(struct shmq_front *front)
{
    struct shmq_desk *desk;

    while ((desk = front->touched)) {
        front->touched = desk->next_touched;
        look_after(desk);
        desk->touched = false;
        shmq_desk_release(desk);
    }
}

struct shmq_session *shmq_front_next_stirred(struct shmq_front *front)
{
    struct shmq_session *session = front->stirred;

    if (!session)
        return NULL;
    front->stirred = session->next_stirred;
    session->stirred = false;
    if (session->held && !session->parked)
        shmq_session_go_on(session);
    return session;
}

/* ---- time ---- */

static int64_t expire_all(struct shmq_front *front, int64_t now)
{
    int64_t earliest = INT64_MAX;

    for (struct shmq_session *s = front->sessions; s; s = s->next) {
        int64_t next = s->waiters ? shmq_waiters_expire(s, now) : INT64_MAX;

        earliest = next < earliest ? next : earliest;
    }
    return earliest;
}

static void review_all(struct shmq_front *front, int64_t now)
{
    for (struct shmq_session *s = front->sessions; s; s = s->next)
        if (s->unsettled)
            shmq_tenures_review(s, now);
}

/* `since` is of the coarse clock. */
static bool is_over(int64_t since, int64_t limit, int64_t now)
{
    return limit && now - since > limit + shmq_coarse_lag();
}

/* Why the session is to be closed for the time it takes, or NULL. */
static const char *overtime(const struct shmq_session *s, int64_t now)
{
    const struct shmq_limits *limits = &s->front->limits;

    if (!s->authorised && is_over(s->began_at, limits->handshake, now))
        return "no HELLO with a good token came within the time for that";
    if (s->partial_at && is_over(s->partial_at, limits->frame, now))
        return "a frame did not become whole within the time for that";
    if (!s->waiters && !s->delayed && !s->promise_count && !s->parked && !shmq_pending(&s->out) &&
        is_over(s->heard_at, limits->idle, now))
        return "no frame came for too long";
    return NULL;
}

/* A peer that reads nothing is not even told. One that sends no more has its answers from the
 * disk as long as a connection may be idle. */
static void check_session(struct shmq_session *s, int64_t now)
{
    const char *why;

    if (!shmq_pending(&s->out))
        s->moved_at = now;
    else if (is_over(s->moved_at, s->front->limits.frame, now) && !s->broken)
        shmq_session_break(s);
    if (s->finished && s->promise_count && is_over(s->heard_at, s->front->limits.idle, now)) {
        shmq_promises_drop(s);
        shmq_stir(s);
    }
    if (s->finished || !(why = overtime(s, now)))
        return;
    shmq_refuse(s, 0, SHMQ_S_TIMED_OUT, why);
    shmq_stir(s);
}

/* Forgets queues that are deleted, and leaves those that nobody uses. */
static void check_desks(struct shmq_front *front, int64_t now)
{
    for (int i = 0; i < SHMQ_BUCKETS; i++) {
        struct shmq_desk *desk = front->buckets[i], *next;

        for (; desk; desk = next) {
            bool closed = desk->q->h->state != SHMQ_OPEN;

            next = desk->next;
            if (!closed && (desk->users || now - desk->unused_at < UNUSED_FOR))
                continue;
            desk->users++;
            shmq_desk_forget(desk, SHMQ_S_NO_QUEUE);
            shmq_desk_release(desk);
        }
    }
}

static int64_t patrol_interval(const struct shmq_limits *limits)
{
    const int64_t times[] = {limits->handshake, limits->frame, limits->idle};
    int64_t interval = PATROL_MOST;

    for (int i = 0; i < 3; i++)
        if (times[i] && times[i] / 8 < interval)
            interval = times[i] / 8;
    return interval < PATROL_LEAST ? PATROL_LEAST : interval;
}

static void patrol(struct shmq_front *front, int64_t now)
{
    for (struct shmq_session *s = front->sessions; s; s = s->next)
        check_session(s, now);
    check_desks(front, now);
}

int64_t shmq_front_tick(struct shmq_front *front, int64_t now)
{
    int64_t next;

    if (now >= front->retry_at)
        shmq_desks_retry(front);
    if (now >= front->expire_at)
        front->expire_at = expire_all(front, now);
    if (front->tenure_count && now >= front->review_at) {
        review_all(front, now);
        front->review_at = now + REVIEW_EVERY;
    }
    if (now >= front->patrol_at) {
        patrol(front, now);
        front->patrol_at = now + patrol_interval(&front->limits);
    }
    shmq_front_settle(front);
    next = front->patrol_at < front->expire_at ? front->patrol_at : front->expire_at;
    if (front->tenure_count && now + REVIEW_EVERY < next)
        next = now + REVIEW_EVERY;
    return front->retry_at < next ? front->retry_at : next;
}

/* ---- the rest ---- */

void shmq_front_drain(struct shmq_front *front)
{
    front->draining = true;
    for (struct shmq_session *s = front->sessions; s; s = s->next) {
        shmq_waiters_leave(s, SHMQ_S_SHUTTING_DOWN);
        shmq_stir(s);
    }
}

void shmq_session_renew_rights(struct shmq_session *session)
{
    for (struct shmq_seat *seat = session->seats; seat; seat = seat->next)
        seat->rights = SHMQ_NOT_ASKED;
}
