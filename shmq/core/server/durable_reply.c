#include "server/server.h"

#include <stdlib.h>

#include "queue/change_hints.h"

#define LEAST_ROOM 16u

/* ---- the session's, in the order in which they were made ---- */

static struct shmq_durable_reply *durable_reply_at(const struct shmq_session *session, uint32_t i)
{
    return &session->durable_replies[(session->durable_reply_first + i) &
                                     (session->durable_reply_room - 1)];
}

/* A power of two: bounded, as a session with SHMQ_DURABLE_REPLIES of them is held. */
static bool make_room(struct shmq_session *session)
{
    uint32_t room = session->durable_reply_room ? session->durable_reply_room * 2 : LEAST_ROOM;
    struct shmq_durable_reply *durable_replies;

    if (session->durable_reply_count < session->durable_reply_room)
        return true;
    if (!(durable_replies = malloc(room * sizeof *durable_replies)))
        return false;
    for (uint32_t i = 0; i < session->durable_reply_count; i++)
        durable_replies[i] = *durable_reply_at(session, i);
    free(session->durable_replies);
    session->durable_replies = durable_replies;
    session->durable_reply_first = 0;
    session->durable_reply_room = room;
    return true;
}

/* ---- the engine's sessions that have any ---- */

static void enlist(struct shmq_session *session)
{
    struct shmq_engine *engine = session->engine;

    if (session->has_durable_replies)
        return;
    session->has_durable_replies = true;
    session->prev_durable = NULL;
    session->next_durable = engine->durable_sessions;
    if (engine->durable_sessions)
        engine->durable_sessions->prev_durable = session;
    engine->durable_sessions = session;
}

static void delist(struct shmq_session *session)
{
    if (!session->has_durable_replies)
        return;
    session->has_durable_replies = false;
    if (session->prev_durable)
        session->prev_durable->next_durable = session->next_durable;
    else
        session->engine->durable_sessions = session->next_durable;
    if (session->next_durable)
        session->next_durable->prev_durable = session->prev_durable;
}

/* ---- answering them ---- */

static void let_go(struct shmq_durable_reply *durable_reply)
{
    struct shmq_attached_queue *attached_queue = durable_reply->attached_queue;

    durable_reply->attached_queue = NULL;
    if (!attached_queue)
        return;
    attached_queue->durable_replies--;
    shmq_attached_queue_release(attached_queue);
}

static bool is_due(const struct shmq_durable_reply *durable_reply)
{
    if (durable_reply->ticket)
        return false;
    return !durable_reply->attached_queue ||
           shmq_synced(durable_reply->attached_queue->q) >= durable_reply->seq;
}

static void answer(struct shmq_session *session, struct shmq_durable_reply *durable_reply)
{
    if (durable_reply->why)
        shmq_reply(session, durable_reply->id, durable_reply->status, durable_reply->why,
                   durable_reply->why_bytes);
    else
        shmq_reply(session, durable_reply->id, durable_reply->status, durable_reply->payload,
                   durable_reply->bytes);
    free(durable_reply->why);
}

/* Sends the replies that are due, up to the first that is not; whether there were any. */
static bool answer_due(struct shmq_session *session)
{
    bool any = false;

    while (session->durable_reply_count && is_due(durable_reply_at(session, 0))) {
        struct shmq_durable_reply durable_reply = *durable_reply_at(session, 0);

        session->durable_reply_first++;
        session->durable_reply_count--;
        let_go(&durable_reply);
        answer(session, &durable_reply);
        any = true;
    }
    return any;
}

static void settle(struct shmq_session *session)
{
    if (answer_due(session))
        shmq_mark_pending(session); /* frames that were held back for it go on then */
    if (!session->durable_reply_count)
        delist(session);
}

void shmq_durable_reply(struct shmq_session *session,
                        const struct shmq_durable_reply *durable_reply, const char *why)
{
    struct shmq_attached_queue *attached_queue = durable_reply->attached_queue;
    struct shmq_durable_reply *made;

    if (session->unread)
        return;
    if (!make_room(session)) {
        shmq_session_break(session);
        return;
    }
    made = durable_reply_at(session, session->durable_reply_count);
    *made = *durable_reply;
    made->why = why ? strdup(why) : NULL;
    made->why_bytes = made->why ? (uint32_t)strlen(made->why) : 0;
    session->durable_reply_count++;
    if (attached_queue) {
        attached_queue->users++;
        attached_queue->durable_replies++;
        if (durable_reply->seq > attached_queue->awaited_seq)
            attached_queue->awaited_seq = durable_reply->seq;
        shmq_attached_queue_touch(attached_queue);
    }
    (void)answer_due(session);
    if (session->durable_reply_count)
        enlist(session);
}

uint64_t shmq_durable_reply_later(struct shmq_session *session, uint32_t id)
{
    struct shmq_durable_reply durable_reply = {.id = id, .ticket = ++session->tickets};

    shmq_durable_reply(session, &durable_reply, NULL);
    return durable_reply.ticket;
}

static struct shmq_durable_reply *find(struct shmq_session *session, uint64_t ticket)
{
    for (uint32_t i = 0; i < session->durable_reply_count; i++)
        if (durable_reply_at(session, i)->ticket == ticket)
            return durable_reply_at(session, i);
    return NULL;
}

void shmq_durable_reply_settle(struct shmq_session *session, uint64_t ticket, uint16_t status,
                               const char *payload, uint32_t bytes)
{
    struct shmq_durable_reply *durable_reply = find(session, ticket);

    if (!durable_reply) /* its peer has not waited for it */
        return;
    if (bytes && !(durable_reply->why = malloc(bytes))) {
        shmq_session_break(session);
        return;
    }
    if (bytes)
        memcpy(durable_reply->why, payload, bytes);
    durable_reply->why_bytes = bytes;
    durable_reply->status = status;
    durable_reply->ticket = 0;
    settle(session);
}

void shmq_durable_replies_ask(struct shmq_attached_queue *attached_queue)
{
    if (!attached_queue->durable_replies)
        return;
    shmq_request_sync(attached_queue->q, attached_queue->awaited_seq);
    if (!attached_queue->confirming) {
        attached_queue->confirming = true;
        attached_queue->engine->hooks->confirm(attached_queue);
    }
}

bool shmq_attached_queue_confirm(struct shmq_attached_queue *attached_queue)
{
    struct shmq_session *session = attached_queue->engine->durable_sessions, *next;

    for (; session; session = next) {
        next = session->next_durable;
        settle(session);
    }
    return attached_queue->durable_replies > 0;
}

/* ---- the ends ---- */

static void fail(struct shmq_durable_reply *durable_reply, uint16_t status)
{
    durable_reply->status = status;
    memset(durable_reply->payload, 0, sizeof durable_reply->payload);
    if (durable_reply->bytes == 8)
        durable_reply->bytes = 0; /* a batch's has the form that it always has */
}

void shmq_durable_replies_end(struct shmq_attached_queue *attached_queue, uint16_t status)
{
    struct shmq_session *session = attached_queue->engine->durable_sessions, *next;

    for (; session; session = next) {
        next = session->next_durable;
        for (uint32_t i = 0; i < session->durable_reply_count; i++) {
            struct shmq_durable_reply *durable_reply = durable_reply_at(session, i);

            if (durable_reply->attached_queue != attached_queue)
                continue;
            if (!is_due(durable_reply))
                fail(durable_reply, status);
            let_go(durable_reply);
        }
        settle(session);
    }
}

void shmq_durable_replies_drop(struct shmq_session *session)
{
    for (uint32_t i = 0; i < session->durable_reply_count; i++) {
        struct shmq_durable_reply *durable_reply = durable_reply_at(session, i);

        let_go(durable_reply);
        free(durable_reply->why);
    }
    free(session->durable_replies);
    session->durable_replies = NULL;
    session->durable_reply_first = session->durable_reply_count = session->durable_reply_room = 0;
    delist(session);
}
