#include "server/durable_reply.h"

#include <stdlib.h>

#include "server/attached_queue.h"
#include "queue/change_hints.h"
#include "server/connection.h"

#define LEAST_ROOM 16u

/* ---- the session's, in the order in which they were made ---- */

static struct shmq_promise *promise_at(const struct shmq_session *session, uint32_t i)
{
    return &session->promises[(session->promise_first + i) & (session->promise_room - 1)];
}

/* A power of two: bounded, as a session with SHMQ_PROMISES of them is held. */
static bool make_room(struct shmq_session *session)
{
    uint32_t room = session->promise_room ? session->promise_room * 2 : LEAST_ROOM;
    struct shmq_promise *promises;

    if (session->promise_count < session->promise_room)
        return true;
    if (!(promises = malloc(room * sizeof *promises)))
        return false;
    for (uint32_t i = 0; i < session->promise_count; i++)
        promises[i] = *promise_at(session, i);
    free(session->promises);
    session->promises = promises;
    session->promise_first = 0;
    session->promise_room = room;
    return true;
}

/* ---- the front's sessions that have any ---- */

static void enlist(struct shmq_session *session)
{
    struct shmq_front *front = session->front;

    if (session->promising)
        return;
    session->promising = true;
    session->promising_before = NULL;
    session->promising_next = front->promising;
    if (front->promising)
        front->promising->promising_before = session;
    front->promising = session;
}

static void delist(struct shmq_session *session)
{
    if (!session->promising)
        return;
    session->promising = false;
    if (session->promising_before)
        session->promising_before->promising_next = session->promising_next;
    else
        session->front->promising = session->promising_next;
    if (session->promising_next)
        session->promising_next->promising_before = session->promising_before;
}

/* ---- keeping them ---- */

static void let_go(struct shmq_promise *promise)
{
    struct shmq_desk *desk = promise->desk;

    promise->desk = NULL;
    if (!desk)
        return;
    desk->promises--;
    shmq_desk_release(desk);
}

static bool is_due(const struct shmq_promise *promise)
{
    if (promise->ticket)
        return false;
    return !promise->desk || shmq_synced(promise->desk->q) >= promise->seq;
}

static void answer(struct shmq_session *session, struct shmq_promise *promise)
{
    if (promise->why)
        shmq_reply(session, promise->id, promise->status, promise->why, promise->why_bytes);
    else
        shmq_reply(session, promise->id, promise->status, promise->payload, promise->bytes);
    free(promise->why);
}

/* Answers those that are due, up to one that is not: whether there were any. */
static bool keep_some(struct shmq_session *session)
{
    bool any = false;

    while (session->promise_count && is_due(promise_at(session, 0))) {
        struct shmq_promise promise = *promise_at(session, 0);

        session->promise_first++;
        session->promise_count--;
        let_go(&promise);
        answer(session, &promise);
        any = true;
    }
    return any;
}

static void keep(struct shmq_session *session)
{
    if (keep_some(session)) {
        shmq_session_go_on(session);
        shmq_stir(session);
    }
    if (!session->promise_count)
        delist(session);
}

void shmq_promise(struct shmq_session *session, const struct shmq_promise *promise, const char *why)
{
    struct shmq_desk *desk = promise->desk;
    struct shmq_promise *made;

    if (session->unread)
        return;
    if (!make_room(session)) {
        shmq_session_break(session);
        return;
    }
    made = promise_at(session, session->promise_count);
    *made = *promise;
    made->why = why ? strdup(why) : NULL;
    made->why_bytes = made->why ? (uint32_t)strlen(made->why) : 0;
    session->promise_count++;
    if (desk) {
        desk->users++;
        desk->promises++;
        if (promise->seq > desk->wanted)
            desk->wanted = promise->seq;
        shmq_desk_touch(desk);
    }
    (void)keep_some(session);
    if (session->promise_count)
        enlist(session);
}

uint64_t shmq_promise_later(struct shmq_session *session, uint32_t id)
{
    struct shmq_promise promise = {.id = id, .ticket = ++session->tickets};

    shmq_promise(session, &promise, NULL);
    return promise.ticket;
}

static struct shmq_promise *find(struct shmq_session *session, uint64_t ticket)
{
    for (uint32_t i = 0; i < session->promise_count; i++)
        if (promise_at(session, i)->ticket == ticket)
            return promise_at(session, i);
    return NULL;
}

void shmq_promise_settle(struct shmq_session *session, uint64_t ticket, uint16_t status,
                         const char *payload, uint32_t bytes)
{
    struct shmq_promise *promise = find(session, ticket);

    if (!promise) /* its peer has not waited for it */
        return;
    if (bytes && !(promise->why = malloc(bytes))) {
        shmq_session_break(session);
        return;
    }
    if (bytes)
        memcpy(promise->why, payload, bytes);
    promise->why_bytes = bytes;
    promise->status = status;
    promise->ticket = 0;
    keep(session);
}

void shmq_promises_ask(struct shmq_desk *desk)
{
    if (!desk->promises)
        return;
    shmq_want_synced(desk->q, desk->wanted);
    if (!desk->confirming) {
        desk->confirming = true;
        desk->front->hooks->confirm(desk);
    }
}

bool shmq_desk_confirm(struct shmq_desk *desk)
{
    struct shmq_session *session = desk->front->promising, *next;

    for (; session; session = next) {
        next = session->promising_next;
        keep(session);
    }
    return desk->promises > 0;
}

/* ---- the ends ---- */

static void fail(struct shmq_promise *promise, uint16_t status)
{
    promise->status = status;
    memset(promise->payload, 0, sizeof promise->payload);
    if (promise->bytes == 8)
        promise->bytes = 0; /* a batch's has the form that it always has */
}

void shmq_promises_end(struct shmq_desk *desk, uint16_t status)
{
    struct shmq_session *session = desk->front->promising, *next;

    for (; session; session = next) {
        next = session->promising_next;
        for (uint32_t i = 0; i < session->promise_count; i++) {
            struct shmq_promise *promise = promise_at(session, i);

            if (promise->desk != desk)
                continue;
            if (!is_due(promise))
                fail(promise, status);
            let_go(promise);
        }
        keep(session);
    }
}

void shmq_promises_drop(struct shmq_session *session)
{
    for (uint32_t i = 0; i < session->promise_count; i++) {
        struct shmq_promise *promise = promise_at(session, i);

        let_go(promise);
        free(promise->why);
    }
    free(session->promises);
    session->promises = NULL;
    session->promise_first = session->promise_count = session->promise_room = 0;
    delist(session);
}
