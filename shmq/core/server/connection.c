#include "server/engine.h"

#include <stdlib.h>

#include "server/server.h"
#include "server/requests.h"

#define LEAST_RECEIVED (64u << 10)
#define MOST_PREFIX 4096u /* of a large PRODUCE, header to properties: more is gathered    */

/* ---- the end of a session ---- */

static void drop_received(struct shmq_session *session)
{
    free(session->received);
    session->received = NULL;
    session->received_used = session->received_room = 0;
}

/* Carries out nothing more: waiting requests end unanswered, and leased messages return. */
static void finish(struct shmq_session *session)
{
    session->finished = true;
    session->parked = false;
    shmq_settle_anew(session);
    shmq_large_body_drop(session);
    session->delayed = 0;
    shmq_waiters_leave(session, SHMQ_S_OK);
    shmq_held_leases_return(session);
    session->partial_at = 0;
    if (session->engine->current != session)
        drop_received(session); /* else it may be what is being carried out */
}

void shmq_refuse(struct shmq_session *session, uint32_t id, uint16_t status, const char *why)
{
    struct shmq_durable_reply last = {.id = id, .status = status};

    if (status >= SHMQ_S_BAD_MAGIC && session->durable_reply_count)
        shmq_durable_reply(session, &last, why); /* what is fatal is said last */
    else
        shmq_refuse_request(session, id, status, why);
    if (status >= SHMQ_S_BAD_MAGIC)
        finish(session);
}

/* ---- what is fatal ---- */

static const char *why_fatal(uint16_t status)
{
    switch (status) {
    case SHMQ_S_BAD_MAGIC: return "a frame begins with DE AD BE EF";
    case SHMQ_S_BAD_VERSION: return "this server speaks version 1";
    case SHMQ_S_FRAME_TOO_LARGE: return "the frame is longer than max_frame";
    default:
        return "the first frame must be a HELLO with a token that is known here, of at "
               "most 4096 bytes";
    }
}

/* Carries out the whole frame at `frames`, and following ones that can be carried out together with
 * it. A frame that is put back begins there again. */
static void carry_out(struct shmq_session *session, const struct shmq_frame *frame,
                      struct shmq_frames *frames)
{
    const unsigned char *start = frames->at;

    shmq_dispatch(session, frame, frames);
    if (!session->unread)
        return;
    frames->at = session->unread_at ? session->unread_at : start;
    session->unread = false;
}

/* ---- frames ---- */

static bool is_stopped(struct shmq_session *session)
{
    session->held = !session->finished &&
                    (session->parked || shmq_pending(&session->out) >= SHMQ_OUT_HIGH ||
                     session->durable_reply_count >= SHMQ_DURABLE_REPLIES);
    return session->held || session->finished || session->broken;
}

/* Carries out all whole frames, unless too much output is pending; returns where the rest
 * begins. */
static const unsigned char *carry_out_all(struct shmq_session *session, const unsigned char *at,
                                          const unsigned char *end)
{
    struct shmq_frames frames = {at, end};
    struct shmq_frame frame;

    while ((size_t)(frames.end - frames.at) >= SHMQ_FRAME_HEADER && !is_stopped(session)) {
        uint16_t status = shmq_fatal_status(session, frames.at, &frame);

        if (status) {
            shmq_refuse(session, status == SHMQ_S_BAD_MAGIC ? 0 : frame.id, status,
                        why_fatal(status));
            break;
        }
        if (frame.length > (size_t)(frames.end - frames.at) - SHMQ_FRAME_HEADER) {
            (void)shmq_large_body_begin(session, &frame, &frames);
            session->unread = false;
            break;
        }
        carry_out(session, &frame, &frames);
        session->heard_at = shmq_coarse_now();
        session->partial_at = 0;
    }
    return frames.at;
}

/* Keeps what could not be carried out yet. `at` may point into `received`. */
static void keep_received(struct shmq_session *session, const unsigned char *at, size_t size)
{
    unsigned char *received;

    if (session->finished || !size) {
        drop_received(session);
        return;
    }
    if (session->received && at >= session->received &&
        at <= session->received + session->received_used) {
        memmove(session->received, at, size);
        session->received_used = size;
        return;
    }
    if (!(received = realloc(session->received, size))) {
        shmq_session_break(session);
        return;
    }
    memcpy(received, at, size);
    session->received = received;
    session->received_used = session->received_room = size;
}

/* The size of the frame that is received in part, with its header; 0 if even that is incomplete. */
static size_t bytes_needed(const struct shmq_session *session)
{
    if (session->received_used < SHMQ_FRAME_HEADER)
        return 0;
    return SHMQ_FRAME_HEADER + (size_t)shmq_load32(session->received + 4);
}

/* Room behind what was received of a frame that is larger than the scratch. It grows as bytes
 * come, so that a length costs nothing. */
static unsigned char *grow_received(struct shmq_session *session, size_t *size)
{
    size_t most = bytes_needed(session), room = session->received_room;
    unsigned char *received;

    if (session->received_used == room) {
        room = room * 2 < LEAST_RECEIVED ? LEAST_RECEIVED : room * 2;
        room = room < most ? room : most;
        if (!(received = realloc(session->received, room))) {
            shmq_session_break(session);
            return NULL;
        }
        session->received = received;
        session->received_room = room;
    }
    *size = room - session->received_used;
    return session->received + session->received_used;
}

/* Whether the frame is gathered in `received`: it is larger than the scratch, and not a body
 * that can be received into the queue. */
static bool gathers(const struct shmq_session *session)
{
    return session->received_used >= MOST_PREFIX && bytes_needed(session) > SHMQ_SCRATCH;
}

unsigned char *shmq_session_space(struct shmq_session *session, size_t *size)
{
    struct shmq_engine *engine = session->engine;

    if (session->finished || session->broken || session->held || session->fin)
        return NULL;
    if (session->large_body.active)
        return shmq_large_body_space(session, size);
    if (gathers(session))
        return grow_received(session, size);
    if (session->received_used)
        memcpy(engine->scratch, session->received, session->received_used);
    *size = SHMQ_SCRATCH - session->received_used;
    return engine->scratch + session->received_used;
}

static void note_partial(struct shmq_session *session)
{
    bool partial = session->received_used || session->large_body.active;

    if (!partial || session->held)
        session->partial_at = 0;
    else if (!session->partial_at)
        session->partial_at = shmq_coarse_now();
}

/* Policy's answer may let another session continue meanwhile. Returns the one that must be
 * `current` again afterwards. */
static struct shmq_session *begin_to_carry_out(struct shmq_session *session)
{
    struct shmq_session *outer = session->engine->current;

    session->engine->current = session;
    return outer;
}

static void carry_out_range(struct shmq_session *session, const unsigned char *at,
                            const unsigned char *end)
{
    struct shmq_session *outer = begin_to_carry_out(session);

    session->carrying = true;
    at = carry_out_all(session, at, end);
    session->carrying = false;
    keep_received(session, at, (size_t)(end - at));
    session->engine->current = outer;
    note_partial(session);
}

static void go_on_large_body(struct shmq_session *session, size_t size)
{
    struct shmq_session *outer = begin_to_carry_out(session);

    if (shmq_large_body_received(session, size))
        session->heard_at = shmq_coarse_now();
    session->unread = false; /* the body stays where it is */
    session->engine->current = outer;
    note_partial(session);
}

void shmq_session_received(struct shmq_session *session, size_t size)
{
    unsigned char *scratch = session->engine->scratch;

    if (session->large_body.active) {
        go_on_large_body(session, size);
    } else if (gathers(session)) {
        session->received_used += size;
        if (session->received_used >= bytes_needed(session))
            carry_out_range(session, session->received, session->received + session->received_used);
    } else {
        carry_out_range(session, scratch, scratch + session->received_used + size);
    }
}

bool shmq_session_hold(struct shmq_session *session, const void *bytes, size_t size)
{
    size_t room = session->received_used + size;
    unsigned char *received;

    if (session->finished || session->fin)
        return true;
    if (room > session->received_room) {
        if (!(received = realloc(session->received, room))) {
            shmq_session_break(session);
            return false;
        }
        session->received = received;
        session->received_room = room;
    }
    memcpy(session->received + session->received_used, bytes, size);
    session->received_used += size;
    return true;
}

void shmq_session_go_on(struct shmq_session *session)
{
    bool was_held = session->held;

    if (session->finished || session->carrying || shmq_pending(&session->out) > SHMQ_OUT_LOW)
        return;
    if (session->blocked)
        shmq_waiters_unblock(session);
    if (session->held && !session->parked &&
        session->durable_reply_count <= SHMQ_DURABLE_REPLIES / 2) {
        session->held = false;
        if (session->large_body.active)
            go_on_large_body(session, 0); /* it was whole, and is to be committed */
    }
    if (was_held && !session->held && !session->finished)
        carry_out_range(session, session->received, session->received + session->received_used);
    if (session->fin && !session->held)
        finish(session);
}

void shmq_session_sent(struct shmq_session *session, size_t size)
{
    shmq_outbox_sent(&session->out, size, shmq_outgoing_body_gone);
    session->moved_at = shmq_coarse_now();
    shmq_session_go_on(session);
    if (!shmq_pending(&session->out) && session->out.room > SHMQ_OUT_LOW)
        shmq_outbox_clear(&session->out, shmq_outgoing_body_gone);
}

/* ---- the ends ---- */

struct shmq_session *shmq_session_begin(struct shmq_engine *engine, void *data)
{
    struct shmq_session *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    session->engine = engine;
    session->data = data;
    session->authorised = !engine->limits.token_required;
    session->began_at = session->heard_at = session->moved_at = shmq_coarse_now();
    session->next = engine->sessions;
    if (engine->sessions)
        engine->sessions->prev = session;
    engine->sessions = session;
    engine->session_count++;
    return session;
}

void shmq_session_finish(struct shmq_session *session)
{
    session->fin = true;
    if (!session->held && !session->finished)
        finish(session);
}

static void forget_pending(struct shmq_session *session)
{
    struct shmq_session **at = &session->engine->output_pending;

    while (session->output_pending && *at != session)
        at = &(*at)->next_pending;
    if (session->output_pending)
        *at = session->next_pending;
}

void shmq_session_end(struct shmq_session *session)
{
    struct shmq_engine *engine = session->engine;

    finish(session);
    shmq_durable_replies_drop(session);
    shmq_outbox_clear(&session->out, shmq_outgoing_body_gone);
    shmq_queue_sessions_leave(session);
    forget_pending(session);
    if (session->prev)
        session->prev->next = session->next;
    else
        engine->sessions = session->next;
    if (session->next)
        session->next->prev = session->prev;
    engine->session_count--;
    free(session);
}
