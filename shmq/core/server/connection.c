#include "server/connection.h"

#include <stdlib.h>

#include "server/consume.h"
#include "server/attached_queue.h"
#include "server/large_body.h"
#include "base/msgpack.h"
#include "server/produce.h"
#include "server/durable_reply.h"
#include "server/read_columns.h"
#include "server/lease_many.h"
#include "server/settle.h"
#include "server/lease_table.h"
#include "server/waiters.h"

#define LEAST_RECEIVED (64u << 10)
#define MOST_PREFIX 4096u /* of a large PRODUCE, header to properties: more is gathered    */

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

static void drop_received(struct shmq_session *session)
{
    free(session->received);
    session->received = NULL;
    session->received_used = session->received_room = 0;
}

/* Nothing more is carried out: who waits ends unanswered, and what is leased goes back. */
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
        shmq_reply(session, id, status, why, why ? (uint32_t)strlen(why) : 0);
    if (status >= SHMQ_S_BAD_MAGIC)
        finish(session);
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

static uint16_t fatal_status(const struct shmq_session *session, const unsigned char *header,
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
           fatal_status(session, frames->at, frame) == SHMQ_S_OK && frame->type == type &&
           frame->length <= left - SHMQ_FRAME_HEADER;
}

/* ---- one frame ---- */

static const struct shmq_operation operations[256] = {SHMQ_OPERATIONS};

static void ping(struct shmq_session *session, const struct shmq_frame *frame,
                 const unsigned char *payload)
{
    if (frame->length > SHMQ_FRAME_PING_MAX)
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, "a PING carries at most 64 bytes");
    else
        shmq_reply(session, frame->id, SHMQ_S_OK, payload, frame->length);
}

/* Whether the rest of a request that policy answers is of its type's form. */
static bool has_good_form(const struct shmq_operation *operation, const struct shmq_reader *r)
{
    size_t left = shmq_left(r);

    switch (operation->form) {
    case SHMQ_FORM_NOTHING: return !left;
    case SHMQ_FORM_MAP: return shmq_msgpack_is_map(r->at, left);
    case SHMQ_FORM_MAP_OR_NOTHING: return !left || shmq_msgpack_is_map(r->at, left);
    default: return left >= operation->least;
    }
}

/* A request for policy. A queue of which the session may not know is not there; whether it
 * may be made is for policy to say, and all rights to streams and their groups. */
static void ask(struct shmq_session *session, const struct shmq_frame *frame,
                const unsigned char *payload)
{
    const struct shmq_operation *operation = &operations[frame->type];
    struct shmq_reader r = {payload, payload + frame->length, false};
    char text[SHMQ_NAME_MAX + 1] = {0};
    struct shmq_name name = {0};

    if (operation->path != SHMQ_PATH_POLICY && !shmq_read_name(&r, &name)) {
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, SHMQ_WHY_NAME);
        return;
    }
    if (!has_good_form(operation, &r)) {
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, operation->why);
        return;
    }
    if (name.bytes)
        memcpy(text, name.at, name.bytes);
    if (operation->path == SHMQ_PATH_QUEUE && !session->engine->hooks->rights(session, text)) {
        shmq_refuse(session, frame->id, SHMQ_S_NO_QUEUE, NULL);
        return;
    }
    session->engine->hooks->answer(session, frame, text, r.at, (uint32_t)shmq_left(&r));
}

static void refuse_early(struct shmq_session *session, const struct shmq_frame *frame,
                         uint16_t status, const char *why)
{
    if (frame->id || !operations[frame->type].silent)
        shmq_refuse(session, frame->id, status, why);
}

static void carry_out_frame(struct shmq_session *session, const struct shmq_frame *frame,
                            struct shmq_frames *frames)
{
    const unsigned char *payload = frames->at + SHMQ_FRAME_HEADER;

    frames->at = payload + frame->length;
    if (!frame->id && !operations[frame->type].silent) {
        shmq_refuse(session, 0, SHMQ_S_BAD_REQUEST,
                    "message id 0 asks for no answer: this type "
                    "has one");
        return;
    }
    if (session->engine->draining && !operations[frame->type].draining) {
        if (!session->durable_reply_count || !shmq_refuse_durable(session, frame, payload))
            refuse_early(session, frame, SHMQ_S_SHUTTING_DOWN, NULL);
        return;
    }
    switch (frame->type) {
    case SHMQ_T_PRODUCE: shmq_carry_out_produce(session, frame, payload, frames); break;
    case SHMQ_T_PRODUCE_BATCH: shmq_carry_out_batch(session, frame, payload); break;
    case SHMQ_T_CONSUME:
    case SHMQ_T_SUBSCRIBE: shmq_carry_out_consume(session, frame, payload); break;
    case SHMQ_T_UNSUBSCRIBE: shmq_carry_out_unsubscribe(session, frame, payload); break;
    case SHMQ_T_HANDED: shmq_carry_out_handed(session, frame, payload); break;
    case SHMQ_T_ACK:
    case SHMQ_T_NACK:
    case SHMQ_T_REJECT:
    case SHMQ_T_EXTEND:
    case SHMQ_T_RETURN: shmq_carry_out_settle(session, frame, payload, frames); break;
    case SHMQ_T_COLUMNS:
    case SHMQ_T_READ_RUN: shmq_carry_out_reading(session, frame, payload); break;
    case SHMQ_T_LEASE_RUN:
    case SHMQ_T_LEASE_AGAIN: shmq_carry_out_run(session, frame, payload); break;
    case SHMQ_T_PING: ping(session, frame, payload); break;
    default:
        if (operations[frame->type].path >= SHMQ_PATH_POLICY)
            ask(session, frame, payload);
        else
            shmq_refuse(session, frame->id, SHMQ_S_UNSUPPORTED, "this server has no such type");
    }
}

/* Carries out the whole frame at `frames`, and such that follow it and can be carried out
 * together with it. One that is put back begins there again. */
static void carry_out(struct shmq_session *session, const struct shmq_frame *frame,
                      struct shmq_frames *frames)
{
    const unsigned char *start = frames->at;

    carry_out_frame(session, frame, frames);
    if (!session->unread)
        return;
    frames->at = session->unread_at ? session->unread_at : start;
    session->unread = false;
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

/* ---- frames ---- */

static bool is_stopped(struct shmq_session *session)
{
    session->held = !session->finished &&
                    (session->parked || shmq_pending(&session->out) >= SHMQ_OUT_HIGH ||
                     session->durable_reply_count >= SHMQ_DURABLE_REPLIES);
    return session->held || session->finished || session->broken;
}

/* Carries out all whole frames, as long as there is not too much to send: where the rest
 * begins. */
static const unsigned char *carry_out_all(struct shmq_session *session, const unsigned char *at,
                                          const unsigned char *end)
{
    struct shmq_frames frames = {at, end};
    struct shmq_frame frame;

    while ((size_t)(frames.end - frames.at) >= SHMQ_FRAME_HEADER && !is_stopped(session)) {
        uint16_t status = fatal_status(session, frames.at, &frame);

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

/* The bytes of the frame that is received in part, its header included; 0 if even that is not
 * whole. */
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

/* Whether the frame is gathered in `received`: it is larger than the scratch, and no body
 * that could go into the queue as it comes. */
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

/* What policy answers may have another session go on meanwhile: the one that is to be
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
