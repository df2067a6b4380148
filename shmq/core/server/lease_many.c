#include "server/requests.h"

#include <stdlib.h>

#include "queue/snapshot_read.h"
#include "queue/put_ring.h"
#include "queue/run.h"
#include "server/server.h"

#define MS 1000000ll
#define ROW 20u /* u64 sequence | u64 receipt | u32 slot */

/* One request, and how far it has come. */
struct run {
    struct shmq_session *session;
    struct shmq_queue_session *queue_session;
    uint32_t id;
    uint32_t ms;
    uint32_t most;               /* messages, of either type */
    uint64_t max_bytes;          /* LEASE_RUN */
    const unsigned char *sought; /* LEASE_AGAIN: sequence numbers, */
    uint32_t *at;                /*   and their slots */
    int64_t until;               /* the end of its leases */
    uint32_t next;               /* LEASE_AGAIN: of the sought ones */
    struct shmq_run leases;      /* LEASE_RUN */
    uint32_t leased;
    uint64_t bytes;
    size_t answer;               /* where its header stands */
};

/* Reads the payload: NULL, or what is wrong with its form. */
static const char *read_run(const struct shmq_frame *frame, const unsigned char *payload,
                            struct shmq_name *name, struct run *run)
{
    struct shmq_reader r = {payload, payload + frame->length, false};

    if (!shmq_read_name(&r, name))
        return SHMQ_WHY_NAME;
    if (frame->type == SHMQ_T_LEASE_RUN) {
        run->most = shmq_read32(&r);
        run->max_bytes = shmq_read64(&r);
        run->ms = shmq_read32(&r);
        return r.bad || shmq_left(&r) ? "behind the name are u32 most, u64 bytes and u32 ms" : NULL;
    }
    run->ms = shmq_read32(&r);
    run->sought = r.at;
    run->most = (uint32_t)(shmq_left(&r) / 8);
    run->max_bytes = UINT64_MAX;
    return r.bad || shmq_left(&r) % 8 ? "behind the name are u32 ms, and u64 sequence numbers"
                                      : NULL;
}

static bool is_over(const struct run *run)
{
    uint64_t bytes;

    return run->session->broken || run->bytes >= run->max_bytes ||
           (run->sought ? run->next : run->leased) >= run->most ||
           !shmq_lease_room(run->session, &bytes);
}

/* Leases the next one. SHMQ_STALE: that one cannot be had. */
static int lease_next(struct run *run, int64_t now, struct shmq_view *view)
{
    struct shmq_queue *q = run->queue_session->queue->q;
    uint32_t next;

    if (!run->sought)
        return shmq_run_lease(q, &run->leases, now, run->until - now, view);
    next = run->next++;
    if (run->at[next] == SHMQ_NIL)
        return SHMQ_STALE;
    return shmq_lease_at(q, run->at[next], shmq_load64(run->sought + 8ull * next), now,
                         run->until - now, view);
}

static void write_row(struct run *run, const struct shmq_view *view)
{
    unsigned char *to = shmq_session_room(run->session, ROW);

    shmq_held_lease_begin(run->queue_session, view, NULL);
    run->leased++;
    run->bytes += (uint64_t)view->body_bytes + view->meta_bytes;
    if (!to)
        return; /* the session ends, and it goes back with it */
    to = shmq_store64(to, view->seq);
    to = shmq_store64(to, shmq_seal(&run->queue_session->queue->q->seal, view->receipt));
    (void)shmq_store32(to, view->at);
    run->session->out.used += ROW;
}

/* Leases up to SHMQ_RUN in one critical section; `whole`: so that SHMQ_EMPTY is a verdict. */
static int lease_some(struct run *run, bool whole)
{
    int status = shmq_attached_queue_lock(run->queue_session->queue, whole);
    struct shmq_view view;
    int64_t now;

    if (status != SHMQ_OK)
        return status;
    now = shmq_now();
    for (uint32_t i = 0; i < SHMQ_RUN && !is_over(run); i++) {
        status = lease_next(run, now, &view);
        if (status == SHMQ_OK)
            write_row(run, &view);
        else if (status != SHMQ_STALE)
            break;
    }
    shmq_attached_queue_unlock(run->queue_session->queue);
    return status == SHMQ_STALE ? SHMQ_OK : status;
}

/* Where the sought ones stand: false without memory. */
static bool find(struct run *run)
{
    uint64_t room = shmq_search_room(run->most);
    uint64_t *seqs = malloc((run->most + 1ull) * sizeof *seqs);
    uint32_t *table = malloc(room * sizeof *table);

    run->at = malloc((run->most + 1ull) * sizeof *run->at);
    if (seqs && table && run->at) {
        for (uint32_t i = 0; i < run->most; i++)
            seqs[i] = shmq_load64(run->sought + 8ull * i);
        shmq_search(run->queue_session->queue->q, seqs, run->most, run->at, table, room);
    }
    free(table);
    free(seqs);
    return seqs && table && run->at;
}

static void end_answer(const struct run *run, int status)
{
    struct shmq_session *session = run->session;
    uint16_t wire;

    if (session->broken)
        return;
    if (status == SHMQ_OK || status == SHMQ_EMPTY || run->leased) {
        (void)shmq_frame_write(session->out.bytes + run->answer, SHMQ_T_REPLY, SHMQ_S_OK, run->id,
                               run->leased * ROW);
        if (status != SHMQ_OK && status != SHMQ_EMPTY)
            (void)shmq_attached_queue_status(run->queue_session->queue, status);
        return;
    }
    session->out.used = run->answer;
    wire = shmq_attached_queue_status(run->queue_session->queue, status);
    shmq_reply(session, run->id, wire, NULL, 0);
}

static void carry_out(struct run *run)
{
    struct shmq_attached_queue *queue = run->queue_session->queue;
    bool again = run->sought != NULL;
    int status = SHMQ_OK;

    if (again)
        (void)shmq_attached_queue_tend(queue); /* what dead processes held is there again */
    if (again && !find(run)) {
        shmq_session_break(run->session);
        return;
    }
    run->answer = run->session->out.used;
    shmq_reply(run->session, run->id, SHMQ_S_OK, NULL, 0);
    while (status == SHMQ_OK && !is_over(run))
        status = lease_some(run, again || !run->leased);
    if (status == SHMQ_EMPTY && !run->leased && shmq_attached_queue_tend(queue))
        do
            status = lease_some(run, true);
        while (status == SHMQ_OK && !is_over(run));
    if (status == SHMQ_BUSY && !run->leased && !run->session->broken &&
        shmq_park_at(run->session, queue, NULL))
        run->session->out.used = run->answer;
    else
        end_answer(run, status);
}

void shmq_carry_out_lease_many(struct shmq_session *session, const struct shmq_frame *frame,
                               const unsigned char *payload)
{
    struct run run = {.session = session, .id = frame->id};
    struct shmq_name name;
    const char *why = read_run(frame, payload, &name, &run);
    uint16_t status;

    if (why) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST, why);
    } else if (!(run.queue_session = shmq_queue_session_at(session, name, SHMQ_MAY_CONSUME,
                                                           &status))) {
        shmq_refuse_request(session, frame->id, status, session->engine->why);
    } else if (!run.ms || !run.max_bytes || (!run.sought && !run.most)) {
        shmq_refuse_request(session, frame->id, SHMQ_S_BAD_REQUEST,
                            "most, bytes and ms have to be 1 or more");
    } else {
        run.until = shmq_now() + run.ms * MS;
        shmq_run_begin(&run.leases, NULL, 0);
        carry_out(&run);
        shmq_run_end(&run.leases);
        free(run.at);
    }
}
