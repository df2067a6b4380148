#define _GNU_SOURCE
#include "wire_host.h"

#include <stdlib.h>
#include <string.h>

#include "server/server.h"
#include "queue/lock.h"
#include "queue/transfer.h"
#include "queue/index.h"
#include "queue/transition.h"
#include "server/requests.h"

#define KIB 1024u
#define MOST_SAVED (16 * KIB) /* of a region: no input comes so far */
#define REGIONS 15

/* A part of a segment, as it was when the queue was new. */
struct saved {
    char *at;
    uint32_t bytes;
    char was[MOST_SAVED];
};

struct host host;

static struct saved saved[HOST_QUEUES][REGIONS];
static struct shmq_queue handles[HOST_QUEUES][2];
static sem_t semaphores[2];
static int weak_one; /* its address is a weak session's data */

/* ---- queues ---- */

static void save(struct saved *part, char *base, uint64_t from, uint64_t to)
{
    uint64_t bytes = to - from < MOST_SAVED ? to - from : MOST_SAVED;

    part->at = base + from;
    part->bytes = (uint32_t)bytes;
    memcpy(part->was, part->at, bytes);
}

/* All but the arena, whose bytes nobody sees that did not write them. */
static void save_all(uint32_t at)
{
    const struct shmq_queue *q = host.queues[at];
    const struct shmq_geometry *g = &q->geo;
    const uint64_t ends[REGIONS + 1] = {0,
                                        g->attachments,
                                        g->slots,
                                        g->timer_keys,
                                        g->timer_slots,
                                        g->order_keys,
                                        g->order_slots,
                                        g->groups,
                                        g->group_buckets,
                                        g->dedupe,
                                        g->dedupe_buckets,
                                        g->logged,
                                        g->fresh,
                                        g->spent,
                                        g->bitmap,
                                        g->arena};

    for (int i = 0; i < REGIONS; i++)
        save(&saved[at][i], q->base, ends[i], ends[i + 1]);
    handles[at][0] = *host.queues[at];
    handles[at][1] = *host.others[at];
}

static void make(uint32_t at, struct shmq_queue *q)
{
    uint32_t post[2];

    host.queues[at] = q;
    host.others[at] = another_handle(q);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body = "first", .body_bytes = 5}, &(uint64_t){0}),
             SHMQ_OK);
    shmq_unlock(q, post);
    save_all(at);
}

static void make_all(void)
{
    make(0, NEW_QUEUE(.queue_id = 11, .capacity = 16, .policies[0].max_deliveries = 3,
                      .policies[0].retry = SECOND, .policies[0].retry_max = 4 * SECOND,
                      .dedupe_window = 10 * SECOND));
    make(1, NEW_QUEUE(.queue_id = 13, .capacity = 4, .arena_bytes = 4 * KIB,
                      .policies[0].ttl = 5 * SECOND, .policies[0].visibility = SECOND / 2,
                      .policies[0].overflow = SHMQ_DROP_OLDEST, .priorities = 1));
    make(2, NEW_QUEUE(.queue_id = 17, .capacity = 32, .arena_bytes = 256 * KIB,
                      .policies[0].max_message_bytes = 128 * KIB, .priorities = 16,
                      .durability = SHMQ_JOURNAL));
}

static void restore(void)
{
    for (int at = 0; at < HOST_QUEUES; at++) {
        for (int i = 0; i < REGIONS; i++)
            memcpy(saved[at][i].at, saved[at][i].was, saved[at][i].bytes);
        *host.queues[at] = handles[at][0];
        *host.others[at] = handles[at][1];
        host.waiting[at] = host.filtered[at] = host.confirming[at] = NULL;
        host.views[at] = 0;
        host.deleted[at] = host.damaged[at] = false;
    }
}

static int index_of(const char *name)
{
    return name[0] >= 'a' && name[0] < 'a' + HOST_QUEUES && !name[1] ? name[0] - 'a' : -1;
}

void host_delete(uint32_t at)
{
    uint32_t post[2];

    if (host.deleted[at] || host.damaged[at])
        return;
    CHECK_EQ(shmq_lock(host.others[at]), SHMQ_OK);
    host.queues[at]->h->state = SHMQ_GONE;
    shmq_unlock(host.others[at], post);
    host.deleted[at] = true;
}

/* ---- hooks ---- */

static uint16_t attach(struct shmq_session *session, struct shmq_attached_queue *attached_queue)
{
    int at = index_of(attached_queue->name);

    (void)session;
    if (at < 0 || host.deleted[at])
        return SHMQ_S_NO_QUEUE;
    if (host.damaged[at])
        return SHMQ_S_INTERNAL;
    attached_queue->q = host.queues[at];
    attached_queue->views = &host.views[at];
    for (int event = 0; event < 2; event++)
        attached_queue->semaphores[event] = &semaphores[event];
    return SHMQ_S_OK;
}

static void detach(struct shmq_engine *engine, struct shmq_attached_queue *attached_queue)
{
    (void)engine;
    for (int at = 0; at < HOST_QUEUES; at++) {
        if (host.waiting[at] == attached_queue)
            host.waiting[at] = NULL;
        if (host.filtered[at] == attached_queue)
            host.filtered[at] = NULL;
        if (host.confirming[at] == attached_queue)
            host.confirming[at] = NULL;
    }
}

static uint8_t rights(struct shmq_session *session, const char *name)
{
    if (session->data != &weak_one)
        return SHMQ_MAY_PRODUCE | SHMQ_MAY_CONSUME | SHMQ_MAY_ADMIN;
    if (!strcmp(name, "a"))
        return SHMQ_MAY_PRODUCE;
    return strcmp(name, "b") ? 0 : SHMQ_MAY_CONSUME;
}

static void hello(struct shmq_session *session, const struct shmq_frame *frame,
                  const unsigned char *rest, uint32_t bytes)
{
    if (session->engine->limits.token_required && !memmem(rest, bytes, "token", 5)) {
        shmq_refuse(session, frame->id, SHMQ_S_UNAUTHORIZED, "no token");
        return;
    }
    session->authorised = true;
    shmq_session_renew_rights(session);
    shmq_reply(session, frame->id, SHMQ_S_OK, "\x80", 1);
}

static void purge(struct shmq_session *session, const struct shmq_frame *frame, uint32_t at)
{
    unsigned char removed[8];
    uint64_t count = 0;
    uint32_t post[2];
    int status = shmq_lock(host.queues[at]);

    if (status == SHMQ_OK) {
        status = shmq_purge(host.queues[at], &count);
        shmq_unlock(host.queues[at], post);
    }
    shmq_store64(removed, count);
    shmq_reply(session, frame->id, status == SHMQ_OK ? SHMQ_S_OK : SHMQ_S_INTERNAL, removed, 8);
}

static void put_off(struct shmq_session *session, const struct shmq_frame *frame)
{
    if (frame->type == SHMQ_T_STREAM_LIST)
        host.ticket = shmq_durable_reply_later(session, frame->id);
    else if (!shmq_answer_later(session))
        shmq_refuse(session, frame->id, SHMQ_S_BAD_REQUEST, "too many wait");
}

static void answer(struct shmq_session *session, const struct shmq_frame *frame, const char *name,
                   const unsigned char *rest, uint32_t bytes)
{
    int at = index_of(name);

    if (host.late && (frame->type == SHMQ_T_LIST || frame->type == SHMQ_T_STREAM_LIST))
        put_off(session, frame);
    else if (frame->type == SHMQ_T_HELLO)
        hello(session, frame, rest, bytes);
    else if (frame->type == SHMQ_T_LIST)
        shmq_reply(session, frame->id, SHMQ_S_OK, "\x90", 1);
    else if (at < 0 || host.deleted[at] || host.damaged[at])
        shmq_refuse(session, frame->id, SHMQ_S_NO_QUEUE, "there is none");
    else if (!(rights(session, name) & SHMQ_MAY_ADMIN))
        shmq_refuse(session, frame->id, SHMQ_S_FORBIDDEN, "not you");
    else if (frame->type == SHMQ_T_PURGE)
        purge(session, frame, (uint32_t)at);
    else {
        if (frame->type == SHMQ_T_DELETE)
            host_delete((uint32_t)at);
        shmq_reply(session, frame->id, SHMQ_S_OK, NULL, 0);
    }
}

static void tend(struct shmq_attached_queue *attached_queue)
{
    attached_queue->q->look_for_dead = false;
}

static void wait_for(struct shmq_attached_queue *attached_queue, bool filtered)
{
    (filtered ? host.filtered : host.waiting)[index_of(attached_queue->name)] = attached_queue;
}

/* Of an expression its bytes: as a program, if they are one. */
static struct shmq_filter_request *compile(struct shmq_engine *engine, const unsigned char *text,
                                           uint32_t bytes, char why[SHMQ_WHY_BYTES])
{
    struct shmq_filter_request *request = calloc(1, sizeof *request + bytes);

    (void)engine;
    CHECK(request);
    memcpy(request->code, text, bytes);
    request->filter = (struct shmq_filter){request->code, bytes};
    if (!shmq_filter_fault(&request->filter))
        return request;
    free(request);
    memcpy(why, "no", sizeof "no");
    return NULL;
}

/* The journal is written at once: whoever waits for it is answered in host_settle. */
static void confirm(struct shmq_attached_queue *attached_queue)
{
    host.confirming[index_of(attached_queue->name)] = attached_queue;
}

/* Nothing else than a damaged queue is a fault of the server. */
static void failed(struct shmq_attached_queue *attached_queue)
{
    CHECK(host.damaged[index_of(attached_queue->name)]);
}

static void refused(struct shmq_session *session, uint8_t type, const char *name, uint8_t right)
{
    (void)session;
    (void)right;
    CHECK(type && *name);
}

static const struct shmq_hooks hooks = {
    .attach = attach,
    .detach = detach,
    .rights = rights,
    .answer = answer,
    .refused = refused,
    .compile = compile,
    .tend = tend,
    .wait = wait_for,
    .confirm = confirm,
    .failed = failed,
};

/* ---- beginning and ending ---- */

void host_begin(bool token)
{
    const struct shmq_limits limits = {
        .max_frame = 160 * KIB,
        .unsettled = 20,
        .unsettled_bytes = 100 * KIB,
        .handshake = 5 * SECOND,
        .frame = 30 * SECOND,
        .idle = 300 * SECOND,
        .token_required = token,
    };

    if (!shmq_clock_set) { /* none yet, or they ended with a test */
        make_all();
        for (int event = 0; event < 2; event++)
            CHECK_EQ(sem_init(&semaphores[event], 0, 0), 0);
    }
    shmq_clock_set = now = 1000 * SECOND;
    restore();
    CHECK(shmq_engine_begin(&host.engine, &hooks, NULL, &limits));
}

struct shmq_session *host_session(bool weak)
{
    struct shmq_session *session = shmq_session_begin(&host.engine, weak ? &weak_one : NULL);

    CHECK(session);
    return session;
}

static void confirm_all(void)
{
    for (int at = 0; at < HOST_QUEUES; at++) {
        struct shmq_attached_queue *attached_queue = host.confirming[at];

        if (!attached_queue)
            continue;
        atomic_store(&attached_queue->q->h->journal.synced, attached_queue->q->h->last_seq);
        host.confirming[at] = NULL;
        attached_queue->confirming = false;
        CHECK(!shmq_attached_queue_confirm(attached_queue));
    }
    shmq_engine_settle(&host.engine);
}

void host_settle(void)
{
    shmq_engine_settle(&host.engine);
    for (int at = 0; at < HOST_QUEUES; at++) {
        struct shmq_attached_queue *attached_queue = host.waiting[at];

        if (attached_queue && !shmq_attached_queue_serve(attached_queue)) {
            attached_queue->awaited = false;
            host.waiting[at] = NULL;
        }
        attached_queue = host.filtered[at];
        if (attached_queue && !shmq_attached_queue_serve_filtered(attached_queue, true)) {
            attached_queue->filtered_awaited = false;
            host.filtered[at] = NULL;
        }
    }
    shmq_engine_settle(&host.engine);
    confirm_all();
    while (shmq_engine_next_pending(&host.engine))
        continue;
}

void host_tick_queues(void)
{
    for (int at = 0; at < HOST_QUEUES; at++) {
        uint32_t post[2];

        if (shmq_lock(host.others[at]) != SHMQ_OK)
            continue;
        shmq_tick(host.others[at], now);
        shmq_unlock(host.others[at], post);
    }
}

/* A lease whose time is over may still stand in its slot: nobody has come by. */
static bool is_held(const struct shmq_slot *s)
{
    enum shmq_state state = shmq_state_of(shmq_word(s));

    return state == SHMQ_FILLING || (state == SHMQ_LEASED && s->deadline > now);
}

static void check_left(const struct shmq_queue *q)
{
    for (uint32_t i = 0; i < q->h->slots_made; i++) {
        CHECK(!is_held(&q->slots[i]) || q->slots[i].owner != q->attachment + 1);
        CHECK(!q->slots[i].pins);
    }
}

void host_end(void)
{
    shmq_engine_end(&host.engine);
    CHECK(!host.engine.session_count && !host.engine.held_lease_count && !host.engine.touched);
    for (int at = 0; at < HOST_QUEUES; at++) {
        uint32_t post[2];

        CHECK_EQ(host.views[at], 0);
        CHECK(!host.waiting[at] && !host.filtered[at] && !host.confirming[at]);
        if (host.deleted[at] || host.damaged[at])
            continue;
        CHECK_EQ(shmq_lock(host.queues[at]), SHMQ_OK);
        CHECK_WELL(host.queues[at]);
        check_left(host.queues[at]);
        shmq_unlock(host.queues[at], post);
    }
}

/* ---- what a request could change ---- */

static uint64_t mix(uint64_t digest, uint64_t value)
{
    digest = (digest ^ value) * 0x9E3779B97F4A7C15ull;
    return digest ^ digest >> 29;
}

static uint64_t digest_of(const struct shmq_queue *q)
{
    const struct shmq_header *h = q->h;
    uint64_t digest = mix(h->last_seq, h->acked);

    digest = mix(mix(digest, h->nacked), mix(h->expired, h->dropped));
    digest = mix(digest, h->state);
    for (uint32_t i = 0; i < h->slots_made; i++) {
        const struct shmq_slot *s = &q->slots[i];
        uint64_t word = shmq_word(s);

        if (shmq_state_of(word) == SHMQ_FREE)
            continue;
        digest = mix(mix(digest, word), mix(s->seq, (uint64_t)s->deadline));
        digest = mix(digest, mix(s->body_bytes, s->meta_bytes));
    }
    return digest;
}

uint64_t host_digest(void)
{
    uint64_t digest = 0;

    for (int at = 0; at < HOST_QUEUES; at++)
        digest = mix(digest, digest_of(host.queues[at]));
    return digest;
}
