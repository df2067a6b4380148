#include "server/requests.h"

#include "base/msgpack.h"
#include "server/server.h"

/* The facts of each operation, from shmq/protocol/opcodes.toml. */
static const struct shmq_operation operations[256] = {SHMQ_OPERATIONS};

/* ---- operations of the engine ---- */

static void ping(struct shmq_session *session, const struct shmq_frame *frame,
                 const unsigned char *payload)
{
    if (frame->length > SHMQ_FRAME_PING_MAX)
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST,
                            "a PING carries at most 64 bytes");
    else
        shmq_reply(session, frame->id, SHMQ_S_OK, payload, frame->length);
}

/* The handler of an operation of the engine; policy handles all others. */
struct handler {
    void (*one)(struct shmq_session *session, const struct shmq_frame *frame,
                const unsigned char *payload);
    /* Takes the frames behind it, too, as long as they are for the same queue. */
    void (*run)(struct shmq_session *session, const struct shmq_frame *frame,
                const unsigned char *payload, struct shmq_frames *frames);
};

static const struct handler handlers[256] = {
    [SHMQ_T_PING] = {.one = ping},
    [SHMQ_T_PRODUCE] = {.run = shmq_carry_out_produce},
    [SHMQ_T_PRODUCE_BATCH] = {.one = shmq_carry_out_batch},
    [SHMQ_T_CONSUME] = {.one = shmq_carry_out_consume},
    [SHMQ_T_SUBSCRIBE] = {.one = shmq_carry_out_consume},
    [SHMQ_T_READY] = {.one = shmq_carry_out_consume},
    [SHMQ_T_UNSUBSCRIBE] = {.one = shmq_carry_out_unsubscribe},
    [SHMQ_T_HANDED] = {.one = shmq_carry_out_handed},
    [SHMQ_T_ACK] = {.run = shmq_carry_out_settle},
    [SHMQ_T_NACK] = {.run = shmq_carry_out_settle},
    [SHMQ_T_REJECT] = {.run = shmq_carry_out_settle},
    [SHMQ_T_FAIL] = {.run = shmq_carry_out_settle},
    [SHMQ_T_EXTEND] = {.run = shmq_carry_out_settle},
    [SHMQ_T_RETURN] = {.run = shmq_carry_out_settle},
    [SHMQ_T_COLUMNS] = {.one = shmq_carry_out_read_columns},
    [SHMQ_T_READ_RUN] = {.one = shmq_carry_out_read_columns},
    [SHMQ_T_LEASE_RUN] = {.one = shmq_carry_out_lease_many},
    [SHMQ_T_LEASE_AGAIN] = {.one = shmq_carry_out_lease_many},
};

/* ---- operations of policy ---- */

/* Whether the rest of a request for policy is well-formed for its type. */
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

/* A request for policy. A queue of which the session may not know is treated as absent; policy
 * itself decides whether it may be created, and about all rights to streams and their groups. */
static void ask(struct shmq_session *session, const struct shmq_frame *frame,
                const unsigned char *payload)
{
    const struct shmq_operation *operation = &operations[frame->type];
    struct shmq_reader r = {payload, payload + frame->length, false};
    char text[SHMQ_NAME_MAX + 1] = {0};
    struct shmq_name name = {0};

    if (operation->path != SHMQ_PATH_POLICY && !shmq_read_name(&r, &name)) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST, SHMQ_WHY_NAME);
        return;
    }
    if (!has_good_form(operation, &r)) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST, operation->why);
        return;
    }
    if (name.bytes)
        memcpy(text, name.at, name.bytes);
    if (operation->path == SHMQ_PATH_QUEUE && !session->engine->hooks->rights(session, text)) {
        shmq_refuse_request(session, frame->id, SHMQ_S_NO_QUEUE, NULL);
        session->engine->hooks->refused(session, frame->type, text, 0);
        return;
    }
    session->engine->hooks->answer(session, frame, text, r.at, (uint32_t)shmq_left(&r));
}

static void refuse_early(struct shmq_session *session, const struct shmq_frame *frame,
                         uint16_t status, const char *why)
{
    if (frame->id || !operations[frame->type].silent)
        shmq_refuse_request(session, frame->id, status, why);
}

void shmq_dispatch(struct shmq_session *session, const struct shmq_frame *frame,
                   struct shmq_frames *frames)
{
    const struct shmq_operation *operation = &operations[frame->type];
    const struct handler *handler = &handlers[frame->type];
    const unsigned char *payload = frames->at + SHMQ_FRAME_HEADER;

    frames->at = payload + frame->length;
    session->type = frame->type;
    if (!frame->id && !operation->silent) {
        shmq_refuse_request(session, 0, SHMQ_S_BAD_REQUEST,
                            "message id 0 asks for no answer: this type has one");
        return;
    }
    if (session->engine->draining && !operation->draining) {
        if (!session->durable_reply_count || !shmq_refuse_durable(session, frame, payload))
            refuse_early(session, frame, SHMQ_S_SHUTTING_DOWN, NULL);
        return;
    }
    if (handler->one)
        handler->one(session, frame, payload);
    else if (handler->run)
        handler->run(session, frame, payload, frames);
    else if (operation->path >= SHMQ_PATH_POLICY)
        ask(session, frame, payload);
    else
        shmq_refuse_request(session, frame->id, SHMQ_S_UNSUPPORTED, "this server has no such type");
}
