#include "server/requests.h"

#include <stdlib.h>

#include "queue/snapshot_read.h"
#include "queue/index.h"
#include "queue/transition.h"
#include "server/server.h"

#define HEAD 8u       /* u32 next | u32 slots                                           */
#define NONE UINT32_MAX
#define PAIR 12u      /* u64 sequence | u32 slot                                        */
#define WHY_LARGE "a message is longer than max_frame: take it by CONSUME, or raise the limit"

/* One request, and where it stands. */
struct request {
    struct shmq_session *session;
    struct shmq_attached_queue *queue;
    uint32_t id;
    uint32_t max_bytes;
    uint32_t start, end;        /* COLUMNS: slots                                       */
    const unsigned char *pairs; /* READ_RUN                                             */
    uint32_t count;
};

/* Reads the payload: NULL, or what is wrong with its form. */
static const char *read_request(const struct shmq_frame *frame, const unsigned char *payload,
                                struct shmq_name *name, struct request *request)
{
    struct shmq_reader r = {payload, payload + frame->length, false};

    if (!shmq_read_name(&r, name))
        return SHMQ_WHY_NAME;
    if (frame->type == SHMQ_T_COLUMNS) {
        request->start = shmq_read32(&r);
        request->end = shmq_read32(&r);
        request->max_bytes = shmq_read32(&r);
        return r.bad || shmq_left(&r) ? "behind the name are u32 start, u32 end and u32 bytes"
                                      : NULL;
    }
    request->max_bytes = shmq_read32(&r);
    request->pairs = r.at;
    request->count = (uint32_t)(shmq_left(&r) / PAIR);
    return r.bad || shmq_left(&r) % PAIR
               ? "behind the name are u32 bytes, and of each message u64 sequence and u32 slot"
               : NULL;
}

/* Writes what was chosen as a REPLY, u32 next | u32 slots | block: whether all of it was still
 * there. */
static bool write_block(const struct request *request, const struct shmq_snapshot_read *e,
                        uint32_t next)
{
    struct shmq_session *session = request->session;
    struct shmq_queue *q = request->queue->q;
    struct shmq_columns_layout layout;
    struct shmq_columns columns;
    unsigned char *at;
    uint32_t size;

    (void)shmq_columns_lay_out(&layout, e->count, e->body_bytes, e->meta_bytes);
    at = shmq_session_room(session, SHMQ_FRAME_HEADER + HEAD + layout.size);
    if (!at)
        return true;
    shmq_columns_begin(&columns, at + SHMQ_FRAME_HEADER + HEAD, &layout);
    shmq_snapshot_read_copy(q, e, shmq_wall_offset(), &columns);
    size = HEAD + (uint32_t)shmq_columns_end(&columns);
    at = shmq_frame_write(at, SHMQ_T_REPLY, SHMQ_S_OK, request->id, size);
    at = shmq_store32(at, next);
    (void)shmq_store32(at, GET_ATOMIC(q->h->slots_made));
    session->out.used += SHMQ_FRAME_HEADER + size;
    return columns.count == e->count;
}

static void refuse(const struct request *request, int status)
{
    shmq_refuse_request(request->session, request->id,
                        shmq_attached_queue_status(request->queue, status),
                        status == SHMQ_TOO_LARGE ? WHY_LARGE : NULL);
}

static void begin(const struct request *request, struct shmq_snapshot_read *e, uint32_t messages)
{
    uint32_t most = request->session->engine->limits.max_frame;

    shmq_snapshot_read_begin(e, messages, request->max_bytes < most ? request->max_bytes : most,
                             most);
    if (!e->picks)
        shmq_session_break(request->session);
}

/* Does what is due, so that the current state is shown. */
static int tick(struct shmq_attached_queue *queue)
{
    int status;

    if (GET_ATOMIC(queue->q->h->next_tick) > shmq_now())
        return SHMQ_OK;
    if ((status = shmq_attached_queue_lock(queue, true)) == SHMQ_OK) {
        shmq_tick(queue->q, shmq_now());
        shmq_attached_queue_unlock(queue);
    }
    return status;
}

static void answer_columns(struct request *request)
{
    struct shmq_queue *q = request->queue->q;
    struct shmq_snapshot_read e;
    uint32_t at = request->start, end = GET_ATOMIC(q->h->slots_made);
    int status = tick(request->queue);

    if (status == SHMQ_BUSY && shmq_park_at(request->session, request->queue, NULL))
        return;
    if (status != SHMQ_OK) {
        refuse(request, status);
        return;
    }
    end = request->end < end ? request->end : end;
    begin(request, &e, at < end ? end - at : 0);
    if (!e.picks)
        return;
    status = shmq_snapshot_read_slots(q, &e, &at, end);
    if (status == SHMQ_OK)
        (void)write_block(request, &e, at < end ? at : NONE);
    else
        refuse(request, status);
    free(e.picks);
}

/* ---- READ_RUN ---- */

/* The slots and the numbers of a run, as the core takes them: NULL without memory. */
static uint64_t *unpack(const struct request *request, uint32_t **slots)
{
    uint64_t *seqs = malloc((request->count + 1ull) * (sizeof *seqs + sizeof **slots));

    if (!seqs)
        return NULL;
    *slots = (uint32_t *)(seqs + request->count + 1);
    for (uint32_t i = 0; i < request->count; i++) {
        seqs[i] = shmq_load64(request->pairs + (uint64_t)PAIR * i);
        (*slots)[i] = shmq_load32(request->pairs + (uint64_t)PAIR * i + 8);
    }
    return seqs;
}

/* Answers LEASE_EXPIRED, with the numbers of those that are gone. */
static void answer_gone(const struct request *request, const uint64_t *seqs, const uint32_t *slots)
{
    struct shmq_session *session = request->session;
    size_t before = session->out.used;
    uint32_t bytes = 0;

    shmq_reply(session, request->id, SHMQ_S_LEASE_EXPIRED, NULL, 0);
    for (uint32_t i = 0; i < request->count; i++) {
        unsigned char *to;

        if (shmq_is_there(request->queue->q, slots[i], seqs[i]))
            continue;
        if (!(to = shmq_session_room(session, sizeof *seqs)))
            return;
        (void)shmq_store64(to, seqs[i]);
        session->out.used += sizeof *seqs;
        bytes += sizeof *seqs;
    }
    if (!session->broken)
        (void)shmq_frame_write(session->out.bytes + before, SHMQ_T_REPLY, SHMQ_S_LEASE_EXPIRED,
                               request->id, bytes);
}

/* Answers with the block, or with those that are gone. */
static void answer_chosen(const struct request *request, const struct shmq_snapshot_read *e,
                          int status, uint32_t at, const uint64_t *seqs, const uint32_t *slots)
{
    size_t before = request->session->out.used;

    if (status == SHMQ_OK && write_block(request, e, at < request->count ? at : NONE))
        return;
    if (request->session->broken)
        return;
    request->session->out.used = before;
    if (status == SHMQ_OK || status == SHMQ_STALE)
        answer_gone(request, seqs, slots);
    else
        refuse(request, status);
}

static void answer_run(struct request *request)
{
    struct shmq_queue *q = request->queue->q;
    struct shmq_snapshot_read e;
    uint32_t *slots;
    uint64_t *seqs = unpack(request, &slots), at = 0;
    int status;

    begin(request, &e, request->count);
    if (!seqs || !e.picks) {
        shmq_session_break(request->session);
    } else {
        status = shmq_snapshot_read_run(q, &e, slots, seqs, &at, request->count);
        answer_chosen(request, &e, status, (uint32_t)at, seqs, slots);
    }
    free(seqs);
    free(e.picks);
}

void shmq_carry_out_read_columns(struct shmq_session *session, const struct shmq_frame *frame,
                                 const unsigned char *payload)
{
    struct request request = {.session = session, .id = frame->id};
    struct shmq_name name;
    const char *why = read_request(frame, payload, &name, &request);
    struct shmq_queue_session *queue_session;
    uint16_t status;

    if (why) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST, why);
    } else if (!(queue_session = shmq_queue_session_at(session, name, SHMQ_MAY_CONSUME, &status))) {
        shmq_refuse_request(session, frame->id, status, session->engine->why);
    } else if (!request.max_bytes) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST, "a block has 1 byte or more");
    } else {
        request.queue = queue_session->queue;
        if (GET_RELAXED(queue_session->queue->q->h->state) != SHMQ_OPEN)
            refuse(&request, SHMQ_DELETED);
        else if (frame->type == SHMQ_T_COLUMNS)
            answer_columns(&request);
        else
            answer_run(&request);
    }
}
