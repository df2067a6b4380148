#include "server/server.h"

/* ---- answers ---- */

void shmq_session_break(struct shmq_session *session)
{
    session->broken = true;
    shmq_mark_pending(session);
}

unsigned char *shmq_session_room(struct shmq_session *session, size_t size)
{
    unsigned char *at;

    if (session->broken)
        return NULL;
    if (!(at = shmq_outbox_room(&session->out, size)))
        shmq_session_break(session);
    return at;
}

void shmq_reply(struct shmq_session *session, uint32_t id, uint16_t status, const void *payload,
                uint32_t bytes)
{
    unsigned char *at;

    if (session->unread || !(at = shmq_session_room(session, SHMQ_FRAME_HEADER + bytes)))
        return;
    at = shmq_frame_write(at, SHMQ_T_REPLY, status, id, bytes);
    if (bytes)
        memcpy(at, payload, bytes);
    session->out.used += SHMQ_FRAME_HEADER + bytes;
}

void shmq_refuse_request(struct shmq_session *session, uint32_t id, uint16_t status,
                         const char *why)
{
    shmq_reply(session, id, status, why, why ? (uint32_t)strlen(why) : 0);
}

void shmq_mark_pending(struct shmq_session *session)
{
    struct shmq_engine *engine = session->engine;

    if (session->output_pending || session == engine->current)
        return;
    session->output_pending = true;
    session->next_pending = engine->output_pending;
    engine->output_pending = session;
}

bool shmq_answer_later(struct shmq_session *session)
{
    if (session->waiter_count + session->delayed >= SHMQ_WAITERS)
        return false;
    session->delayed++;
    return true;
}

void shmq_answer_late(struct shmq_session *session, uint32_t id, uint16_t status,
                      const void *payload, uint32_t bytes)
{
    if (session->finished || !session->delayed)
        return;
    session->delayed--;
    shmq_reply(session, id, status, payload, bytes);
    shmq_mark_pending(session);
}

/* ---- waiting with a request ---- */

void shmq_park(struct shmq_session *session) { session->parked = session->held = true; }

void shmq_put_back(struct shmq_session *session, const unsigned char *at)
{
    shmq_park(session);
    session->unread = true;
    session->unread_at = at;
}

bool shmq_park_at(struct shmq_session *session, struct shmq_attached_queue *attached_queue,
                  const unsigned char *at)
{
    if (!shmq_attached_queue_is_awaited(attached_queue))
        return false;
    shmq_put_back(session, at);
    session->parked_at = attached_queue;
    return true;
}

void shmq_unpark(struct shmq_session *session)
{
    session->parked = false;
    session->parked_at = NULL;
    shmq_mark_pending(session);
}

/* ---- frames ---- */

uint16_t shmq_fatal_status(const struct shmq_session *session, const unsigned char *header,
                           struct shmq_frame *frame)
{
    uint16_t status = shmq_frame_read(header, frame);

    if (status)
        return status;
    if (frame->length > session->engine->limits.max_frame)
        return SHMQ_S_FRAME_TOO_LARGE;
    if (!session->authorised &&
        (frame->type != SHMQ_T_HELLO || frame->length > SHMQ_FRAME_HELLO_MAX))
        return SHMQ_S_UNAUTHORIZED;
    return SHMQ_S_OK;
}

bool shmq_next_is(const struct shmq_session *session, const struct shmq_frames *frames,
                  uint8_t type, struct shmq_frame *frame)
{
    size_t left = (size_t)(frames->end - frames->at);

    return left >= SHMQ_FRAME_HEADER && !session->finished &&
           shmq_fatal_status(session, frames->at, frame) == SHMQ_S_OK && frame->type == type &&
           frame->length <= left - SHMQ_FRAME_HEADER;
}
