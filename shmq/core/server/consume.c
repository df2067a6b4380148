#include "server/requests.h"

#include "server/server.h"

#define MS 1000000ll
#define SHARE 256u /* messages for one subscription before the next one's turn             */

/* ---- messages at once, or a wait ---- */

/* Refuses the waiter's request; a queue that is gone ends all its waiters. */
static void fail(struct shmq_waiter *w, int outcome)
{
    struct shmq_attached_queue *queue = w->queue_session->queue;
    uint16_t status = shmq_attached_queue_status(queue, outcome);

    if (!queue->gone)
        shmq_waiter_answer(w, status);
}

/* Delivers at once to a waiter that is not in the list yet; returns how many messages. */
static uint32_t try_at_once(struct shmq_waiter *w, int *outcome)
{
    uint32_t count = shmq_deliver(w, w->most, w->filtered != NULL, outcome);

    if (!count && *outcome == SHMQ_EMPTY && !w->filtered)
        count = shmq_deliver(w, w->most, true, outcome);
    if (!count && *outcome == SHMQ_EMPTY && !shmq_waiter_searches(w) &&
        shmq_attached_queue_tend(w->queue_session->queue))
        count = shmq_deliver(w, w->most, true, outcome);
    return count;
}

static void begin_to_wait(struct shmq_waiter *w)
{
    struct shmq_engine *engine = w->session->engine;

    if (w->until < engine->expire_at)
        engine->expire_at = w->until;
    shmq_waiter_enqueue(w);
}

/* For a waiter that does not wait, and whose search is not over: its session continues behind
 * it. */
static void search_on(struct shmq_waiter *w)
{
    w->until = INT64_MAX;
    w->last_look = w->parks = true;
    shmq_park(w->session);
    shmq_waiter_enqueue(w);
}

static void consume(struct shmq_queue_session *queue_session,
                    const struct shmq_consume_request *request)
{
    struct shmq_session *session = queue_session->session;
    struct shmq_waiter *w = shmq_waiter_begin(queue_session, request);
    int outcome;

    if (!w) {
        shmq_reply(session, request->id, SHMQ_S_INTERNAL, NULL, 0);
        return;
    }
    if (try_at_once(w, &outcome))
        shmq_waiter_end(w);
    else if (shmq_waiter_searches(w) && !request->until)
        search_on(w);
    else if (outcome == SHMQ_BUSY && !request->until &&
             shmq_park_at(session, queue_session->queue, NULL))
        shmq_waiter_end(w);
    else if (outcome != SHMQ_EMPTY && outcome != SHMQ_OK &&
             !(outcome == SHMQ_BUSY && request->until))
        fail(w, outcome);
    else if (!request->until)
        shmq_waiter_answer(w, SHMQ_S_QUEUE_EMPTY);
    else
        begin_to_wait(w);
}

static void wait_for_messages(struct shmq_queue_session *queue_session,
                              const struct shmq_consume_request *request)
{
    struct shmq_waiter *w;

    if (!request->subscribes) {
        consume(queue_session, request);
        return;
    }
    if (!(w = shmq_waiter_begin(queue_session, request))) {
        shmq_reply(queue_session->session, request->id, SHMQ_S_INTERNAL, NULL, 0);
        return;
    }
    shmq_reply(queue_session->session, request->id, SHMQ_S_OK, NULL, 0);
    shmq_waiter_enqueue(w);
}

/* ---- the requests ---- */

/* The end of a wait of `wait` ms; 0: it does not wait. */
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
    request->looks = frame->type == SHMQ_T_READY;
    *flags = 0;
    if (!shmq_read_name(&r, name))
        return SHMQ_WHY_NAME;
    if (request->looks) {
        request->most = 1;
        request->until = end_of(shmq_read32(&r));
        return r.bad || shmq_left(&r) ? "behind the name is u32 wait" : NULL;
    }
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

/* A flag without its argument counts as unknown. */
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
            shmq_refuse_request(queue_session->session, request->id, SHMQ_S_BAD_REQUEST, why);
            return;
        }
    }
    wait_for_messages(queue_session, request);
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
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST, why);
    else if (flags & ~known_flags(&request))
        shmq_refuse_request(session, frame->id, SHMQ_S_UNSUPPORTED, "no such flag exists");
    else if (!(queue_session = (request.looks ? shmq_looking_session_at : shmq_queue_session_at)(
                   session, name, SHMQ_MAY_CONSUME, &status)))
        shmq_refuse_request(session, frame->id, status, session->engine->why);
    else if (!request.most)
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST,
                            "of no messages none can be sent: "
                            "1 or more");
    else if ((request.subscribes || request.looks) && shmq_subscription(session, frame->id))
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST,
                            "this message id is a subscription's: unsubscribe, or take another");
    else if (session->waiter_count + session->delayed >= SHMQ_WAITERS)
        shmq_refuse_request(
            session, frame->id, SHMQ_S_BAD_REQUEST,
            "4096 CONSUMEs, READYs and subscriptions of this connection wait: end some");
    else
        begin(queue_session, &request);
}

void shmq_carry_out_unsubscribe(struct shmq_session *session, const struct shmq_frame *frame,
                                const unsigned char *payload)
{
    struct shmq_waiter *subscription;

    if (frame->length != 4) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST,
                            "an UNSUBSCRIBE carries one u32");
        return;
    }
    subscription = shmq_subscription(session, shmq_load32(payload));
    if (!subscription) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST,
                            "this message id belongs to no subscription and no waiting READY");
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
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST, "a HANDED carries one u32");
    else if (subscription)
        shmq_waiter_handed(subscription, shmq_load32(payload));
}

/* ---- serving ---- */

/* Gives the first waiter its share: SHMQ_OK to go on, or the reason not to. */
static int serve_first(struct shmq_waiter *w, bool whole)
{
    uint32_t most = w->subscribes && !w->settled ? w->most - w->used : w->most, count;
    int outcome;

    if (!shmq_may_deliver(w->session)) {
        w->session->blocked = true;
        shmq_waiter_dequeue(w);
        return SHMQ_OK;
    }
    if (w->subscribes && (w->settled || most > SHARE))
        most = SHARE;
    count = shmq_deliver(w, most, whole, &outcome);
    if (!count)
        return outcome;
    shmq_mark_pending(w->session);
    shmq_waiter_dequeue(w);
    if (!w->subscribes)
        shmq_waiter_end(w);
    else if (shmq_waiter_has_credit(w))
        shmq_waiter_enqueue(w);
    return SHMQ_OK;
}

bool shmq_attached_queue_serve(struct shmq_attached_queue *queue)
{
    bool whole = false;

    while (queue->first) {
        int outcome = serve_first(queue->first, whole);

        if (outcome == SHMQ_EMPTY && !whole) {
            whole = true;
            continue;
        }
        if (outcome == SHMQ_OK)
            continue;
        if (outcome != SHMQ_EMPTY)
            (void)shmq_attached_queue_status(queue, outcome);
        break;
    }
    return queue->first != NULL;
}

/* The waiter has looked and got nothing: whether it must look again at once. */
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
    shmq_waiter_answer(w, SHMQ_S_QUEUE_EMPTY);
    return false;
}

/* One round of the waiters that must look: whether any got something, so that there may be more for
 * them. */
static bool serve_filtered_round(struct shmq_attached_queue *queue)
{
    struct shmq_waiter *w = queue->filtered_first, *next;
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
            (void)shmq_attached_queue_status(queue, outcome);
            return false;
        }
        served |= outcome == SHMQ_OK || conclude_look(w);
    }
    return served;
}

bool shmq_attached_queue_serve_filtered(struct shmq_attached_queue *queue, bool arrived)
{
    for (struct shmq_waiter *w = queue->filtered_first; arrived && w; w = w->next) {
        w->filtered->looks = true;
        w->filtered->again = w->filtered->searches;
    }
    while (serve_filtered_round(queue))
        continue;
    return queue->filtered_first != NULL;
}
