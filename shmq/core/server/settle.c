#include "server/requests.h"

#include <stdlib.h>

#include "server/server.h"

#define MS 1000000ll
#define RECEIPT 8u

/* One request: what to do with which receipts. */
struct order {
    struct shmq_name name;
    const unsigned char *receipts;
    uint32_t count;
    uint32_t id;
    uint32_t ms;
    uint8_t type;
    struct shmq_text error; /* that the messages keep */
};

/* A RETURN may have a delay: what is left is then no multiple of a receipt's size. */
static bool has_time(uint8_t type, size_t left)
{
    return type == SHMQ_T_NACK || type == SHMQ_T_EXTEND ||
           (type == SHMQ_T_RETURN && left % RECEIPT == sizeof(uint32_t));
}

/* Of a FAIL: the settlement, its time and its error. NULL, or what is wrong with them. */
static const char *read_failure(struct shmq_reader *r, struct order *order)
{
    uint8_t what = shmq_read8(r);

    order->type = what ? SHMQ_T_REJECT : SHMQ_T_NACK;
    order->ms = shmq_read32(r);
    order->error.bytes = shmq_read16(r);
    order->error.at = shmq_read_bytes(r, order->error.bytes);
    if (r->bad || what > 1)
        return "behind the name are u8 0 or 1, u32 ms, u16 and as many bytes";
    return shmq_msgpack_is_map(order->error.at, order->error.bytes)
               ? NULL
               : "the error is not one msgpack map";
}

/* Reads the payload: NULL, or what is wrong with its form. */
static const char *read_order(const struct shmq_frame *frame, const unsigned char *payload,
                              struct order *order)
{
    struct shmq_reader r = {payload, payload + frame->length, false};

    order->id = frame->id;
    order->type = frame->type;
    order->ms = 0;
    order->error = (struct shmq_text){NULL, 0};
    if (!shmq_read_name(&r, &order->name))
        return SHMQ_WHY_NAME;
    if (order->type == SHMQ_T_FAIL) {
        const char *why = read_failure(&r, order);

        if (why)
            return why;
    } else if (has_time(order->type, shmq_left(&r)))
        order->ms = shmq_read32(&r);
    if (r.bad)
        return "behind the name is u32 ms";
    order->receipts = r.at;
    order->count = (uint32_t)(shmq_left(&r) / RECEIPT);
    return shmq_left(&r) % RECEIPT ? "receipts have 8 bytes each" : NULL;
}

static int settle_one(struct shmq_queue *q, const struct order *order, uint64_t receipt,
                      int64_t now)
{
    if (order->error.bytes)
        (void)shmq_keep_error(q, receipt, order->error, now);
    switch (order->type) {
    case SHMQ_T_ACK: return shmq_ack(q, receipt, now);
    case SHMQ_T_NACK:
        return shmq_nack(q, receipt, order->ms == SHMQ_FRAME_FOREVER ? -1 : order->ms * MS, now);
    case SHMQ_T_REJECT: return shmq_reject(q, receipt, now);
    case SHMQ_T_EXTEND: return shmq_extend(q, receipt, order->ms * MS, now);
    default: return shmq_return_unseen(q, receipt, order->ms * MS, now);
    }
}

/* The time; for an ack, which sets no timer, that of the last tick suffices. */
static int64_t time_of(const struct shmq_queue *q, const struct order *order)
{
    return order->type == SHMQ_T_ACK ? shmq_time(q) : shmq_now();
}

/* Settles up to SHMQ_RUN receipts from order->receipts on, which moves on, under the lock;
 * the refused ones are set in `refused`, bit by bit. The outcome is that of the lock, or of
 * damage. */
static int settle_some(struct shmq_queue *q, struct order *order, int64_t now, uint32_t most,
                       uint64_t *refused, uint64_t *opened)
{
    uint32_t count = order->count < most ? order->count : most;

    *refused = 0;
    for (uint32_t i = 0; i < count; i++) {
        int status;

        opened[i] = shmq_unseal(&q->seal, shmq_load64(order->receipts + RECEIPT * i));
        status = settle_one(q, order, opened[i], now);
        if (status == SHMQ_DAMAGED)
            return status;
        if (status != SHMQ_OK)
            *refused |= 1ull << i;
    }
    return SHMQ_OK;
}

/* A REPLY that grows by the receipts that were refused. */
struct answer {
    struct shmq_session *session;
    size_t at; /* its header */
    uint32_t id;
    uint32_t bytes;
};

static void begin_answer(struct answer *answer, struct shmq_session *session, uint32_t id)
{
    *answer = (struct answer){.session = session, .at = session->out.used, .id = id};
    if (id)
        shmq_reply(session, id, SHMQ_S_OK, NULL, 0);
}

static void add_refused(struct answer *answer, const unsigned char *receipt)
{
    unsigned char *to = answer->id ? shmq_session_room(answer->session, RECEIPT) : NULL;

    if (!to)
        return;
    memcpy(to, receipt, RECEIPT);
    answer->session->out.used += RECEIPT;
    answer->bytes += RECEIPT;
}

static void end_answer(const struct answer *answer)
{
    if (answer->bytes && !answer->session->broken)
        (void)shmq_frame_write(answer->session->out.bytes + answer->at, SHMQ_T_REPLY,
                               SHMQ_S_LEASE_EXPIRED, answer->id, answer->bytes);
}

/* Concludes the receipts: their held leases end, except those of an EXTEND, and the refused ones
 * are answered. */
static void conclude(struct shmq_attached_queue *queue, const struct order *order, uint32_t count,
                     uint64_t refused, const uint64_t *opened, struct answer *answer)
{
    for (uint32_t i = 0; i < count; i++) {
        bool is_refused = refused >> i & 1;

        if (is_refused || order->type != SHMQ_T_EXTEND || !order->ms)
            shmq_held_lease_end(queue, opened[i]);
        if (is_refused)
            add_refused(answer, order->receipts + RECEIPT * i);
    }
}

/* The queue failed: what was begun of the answer is taken back first, as the waiters of a
 * queue that is gone are answered, too. */
static void fail_answer(const struct answer *answer, struct shmq_attached_queue *queue, int outcome)
{
    uint16_t status;

    answer->session->out.used = answer->at;
    status = shmq_attached_queue_status(queue, outcome);
    if (answer->id)
        shmq_reply(answer->session, answer->id, status, NULL, 0);
}

void shmq_settle_anew(struct shmq_session *session)
{
    free(session->refused);
    session->refused = NULL;
    session->refused_bytes = session->settled = 0;
}

/* Continues behind the receipts that were settled before the request was put back. */
static void resume(struct answer *answer, struct order *order)
{
    struct shmq_session *session = answer->session;

    for (uint32_t at = 0; at < session->refused_bytes; at += RECEIPT)
        add_refused(answer, session->refused + at);
    order->receipts += RECEIPT * session->settled;
    order->count -= session->settled;
    shmq_settle_anew(session);
}

/* The request waits for the lock, with so many receipts done: false if it has waited enough. */
static bool put_off(const struct answer *answer, struct shmq_attached_queue *queue, uint32_t done)
{
    struct shmq_session *session = answer->session;

    if (session->broken || !shmq_park_at(session, queue, NULL))
        return false;
    session->settled = done;
    if (answer->bytes && !(session->refused = malloc(answer->bytes))) {
        shmq_session_break(session);
    } else if (answer->bytes) {
        memcpy(session->refused, session->out.bytes + answer->at + SHMQ_FRAME_HEADER,
               answer->bytes);
        session->refused_bytes = answer->bytes;
    }
    session->out.used = answer->at;
    return true;
}

/* One request, however many receipts it has, SHMQ_RUN in a critical section. */
static void carry_out_long(struct shmq_session *session, struct shmq_attached_queue *queue,
                           struct order *order)
{
    uint64_t refused, opened[SHMQ_RUN];
    uint32_t all = order->count;
    struct answer answer;

    begin_answer(&answer, session, order->id);
    resume(&answer, order);
    while (order->count) {
        uint32_t count = order->count < SHMQ_RUN ? order->count : SHMQ_RUN;
        int outcome = shmq_attached_queue_lock(queue, order->error.bytes);

        if (outcome == SHMQ_OK) {
            outcome = settle_some(queue->q, order, time_of(queue->q, order), SHMQ_RUN, &refused,
                                  opened);
            shmq_attached_queue_unlock(queue);
        }
        if (outcome == SHMQ_BUSY && put_off(&answer, queue, all - order->count))
            return;
        if (outcome != SHMQ_OK) {
            fail_answer(&answer, queue, outcome);
            return;
        }
        conclude(queue, order, count, refused, opened, &answer);
        order->receipts += RECEIPT * count;
        order->count -= count;
    }
    end_answer(&answer);
}

/* Gathers ACKs of the same queue that follow, of up to SHMQ_RUN receipts altogether. */
static uint32_t gather(struct shmq_session *session, struct order *orders,
                       struct shmq_frames *frames)
{
    uint32_t count = 1, receipts = orders[0].count;
    struct shmq_frame frame;

    while (count < SHMQ_RUN && shmq_next_is(session, frames, SHMQ_T_ACK, &frame)) {
        const unsigned char *payload = frames->at + SHMQ_FRAME_HEADER;
        struct order *next = &orders[count];

        if (read_order(&frame, payload, next) || receipts + next->count > SHMQ_RUN ||
            !shmq_same_name(next->name, orders[0].name))
            break;
        receipts += next->count;
        frames->at = payload + frame.length;
        count++;
    }
    return count;
}

/* Several ACKs in one critical section. */
static void carry_out_run(struct shmq_session *session, struct shmq_attached_queue *queue,
                          struct order *orders, uint32_t count)
{
    uint64_t refused[SHMQ_RUN], opened[SHMQ_RUN];
    int outcome = shmq_attached_queue_lock(queue, false);
    uint32_t done = 0;

    if (outcome == SHMQ_BUSY && shmq_park_at(session, queue, NULL))
        return;
    if (outcome == SHMQ_OK) {
        int64_t now = shmq_time(queue->q);

        for (uint32_t i = 0; i < count && outcome == SHMQ_OK; i++) {
            outcome = settle_some(queue->q, &orders[i], now, SHMQ_RUN, &refused[i], opened + done);
            done += orders[i].count;
        }
        shmq_attached_queue_unlock(queue);
    }
    done = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct answer answer;

        begin_answer(&answer, session, orders[i].id);
        if (outcome != SHMQ_OK) {
            fail_answer(&answer, queue, outcome);
            continue;
        }
        conclude(queue, &orders[i], orders[i].count, refused[i], opened + done, &answer);
        end_answer(&answer);
        done += orders[i].count;
    }
}

void shmq_carry_out_settle(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload, struct shmq_frames *frames)
{
    struct order orders[SHMQ_RUN];
    const char *why = read_order(frame, payload, &orders[0]);
    struct shmq_queue_session *queue_session;
    uint16_t status;
    uint32_t count;

    if (why) {
        shmq_refuse_if_asked(session, frame->id, SHMQ_S_BAD_REQUEST, why);
        return;
    }
    if (!(queue_session = shmq_queue_session_at(session, orders[0].name, SHMQ_MAY_CONSUME,
                                                &status))) {
        shmq_refuse_if_asked(session, frame->id, status, session->engine->why);
        return;
    }
    if (frame->type != SHMQ_T_ACK || orders[0].count > SHMQ_RUN) {
        carry_out_long(session, queue_session->queue, &orders[0]);
        return;
    }
    count = gather(session, orders, frames);
    carry_out_run(session, queue_session->queue, orders, count);
}
