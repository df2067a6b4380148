#include "server/consume.h"

#include "server/attached_queue.h"
#include "server/connection.h"
#include "server/waiters.h"

#define MS 1000000ll

/* When a wait of so many ms is over; 0: it does not wait. */
static int64_t end_of(uint32_t wait)
{
    if (!wait)
        return 0;
    return wait == SHMQ_FRAME_FOREVER ? INT64_MAX : shmq_now() + wait * MS;
}

/* Reads the payload: NULL, or what is wrong with its form. */
static const char *read_request(const struct shmq_frame *frame, const unsigned char *payload,
                                struct shmq_name *name, struct shmq_consume_request *request,
                                uint8_t *flags)
{
    struct shmq_reader r = {payload, payload + frame->length, false};

    memset(request, 0, sizeof *request);
    request->id = frame->id;
    request->subscribes = frame->type == SHMQ_T_SUBSCRIBE;
    if (!shmq_read_name(&r, name))
        return SHMQ_WHY_NAME;
    request->most = shmq_read32(&r);
    if (!request->subscribes)
        request->until = end_of(shmq_read32(&r));
    *flags = shmq_read8(&r);
    request->settled = *flags & SHMQ_FLAG_SETTLED;
    if (*flags & SHMQ_FLAG_WHERE && shmq_left(&r)) {
        request->where_bytes = shmq_read16(&r);
        request->where = shmq_read_bytes(&r, request->where_bytes);
    }
    if (request->subscribes && *flags & SHMQ_FLAG_TELLS && shmq_left(&r) == 1)
        request->tells = shmq_read8(&r) == 1;
    if (!r.bad && !shmq_left(&r))
        return NULL;
    if (*flags & SHMQ_FLAG_WHERE)
        return "behind the flags are u16 n and n bytes of an expression";
    return request->subscribes ? "behind the name are u32 credit and u8 flags"
                               : "behind the name are u32 most, u32 wait and u8 flags";
}

/* A flag without what is to follow it is none: so it was before there were any. */
static uint8_t known_flags(const struct shmq_consume_request *request)
{
    uint8_t known = request->tells ? SHMQ_FLAG_SETTLED | SHMQ_FLAG_TELLS : SHMQ_FLAG_SETTLED;

    return request->where ? known | SHMQ_FLAG_WHERE : known;
}

/* Begins it, once its expression is understood. */
static void begin(struct shmq_queue_session *queue_session, struct shmq_consume_request *request)
{
    struct shmq_engine *engine = queue_session->session->engine;
    char why[SHMQ_WHY_BYTES] = "";

    if (request->where) {
        request->filtered = engine->hooks->compile(engine, request->where, request->where_bytes,
                                                   why);
        if (!request->filtered) {
            shmq_refuse(queue_session->session, request->id, SHMQ_S_BAD_REQUEST, why);
            return;
        }
    }
    shmq_wait(queue_session, request);
}

void shmq_carry_out_consume(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload)
{
    struct shmq_queue_session *queue_session;
    struct shmq_consume_request request;
    struct shmq_name name;
    uint16_t status;
    uint8_t flags;
    const char *why = read_request(frame, payload, &name, &request, &flags);

    if (why)
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, why);
    else if (flags & ~known_flags(&request))
        shmq_refuse(session, frame->id, SHMQ_S_UNSUPPORTED, "there is no such flag");
    else if (!(queue_session = shmq_queue_session_at(session, name, &status)))
        shmq_refuse(session, frame->id, status, NULL);
    else if (!(queue_session->rights & SHMQ_MAY_CONSUME))
        shmq_refuse(session, frame->id, SHMQ_S_FORBIDDEN, NULL);
    else if (!request.most)
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST,
                    "of no messages none can be sent: "
                    "1 or more");
    else if (request.subscribes && shmq_subscription(session, frame->id))
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST,
                    "this message id is a subscription's: unsubscribe, or take another");
    else if (session->waiter_count + session->delayed >= SHMQ_WAITERS)
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST,
                    "4096 CONSUMEs and subscriptions of this connection wait: end some");
    else
        begin(queue_session, &request);
}

void shmq_carry_out_unsubscribe(struct shmq_session *session, const struct shmq_frame *frame,
                                const unsigned char *payload)
{
    struct shmq_waiter *subscription;

    if (frame->length != 4) {
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, "an UNSUBSCRIBE carries one u32");
        return;
    }
    subscription = shmq_subscription(session, shmq_load32(payload));
    if (!subscription) {
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, "this message id is no subscription's");
        return;
    }
    shmq_unsubscribe(subscription);
    shmq_reply(session, frame->id, SHMQ_S_OK, NULL, 0);
}

void shmq_carry_out_handed(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload)
{
    struct shmq_waiter *subscription = shmq_subscription(session, frame->id);

    if (frame->length != 4)
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, "a HANDED carries one u32");
    else if (subscription)
        shmq_waiter_handed(subscription, shmq_load32(payload));
}
