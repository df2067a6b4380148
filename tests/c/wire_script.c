#include "wire_script.h"

#include <string.h>

#include "queue/lock.h"
#include "wire_answers.h"
#include "wire_host.h"

#define CONNECTIONS 4 /* the last one has weak rights */
#define MOST_SENT (192u << 10)
#define MOST_PIECES 16
#define MOST_CUTS 64 /* of what is sent at a time */
#define MS 1000000ll
#define RECEIPTS 256

struct connection {
    struct shmq_session *session;
    struct answers answers;
    unsigned char *later; /* frames that wait for what is sent next                        */
    size_t later_used;
    bool stalled;
    bool sending; /* the last frame is not whole yet                                       */
};

struct script {
    const unsigned char *at, *end;
};

static struct connection connections[CONNECTIONS];
static unsigned char later_room[CONNECTIONS][MOST_SENT];
static unsigned char answer_room[CONNECTIONS][MOST_PENDING];
static uint64_t receipts[RECEIPTS];
static uint32_t receipt_count;
static uint32_t last_id;
static bool starved[HOST_QUEUES];

/* ---- reading ---- */

static uint8_t next8(struct script *s) { return s->at < s->end ? *s->at++ : 0; }

static uint32_t next_bytes(struct script *s, const unsigned char **bytes)
{
    uint32_t count = next8(s);

    count = count < (size_t)(s->end - s->at) ? count : (uint32_t)(s->end - s->at);
    *bytes = s->at;
    s->at += count;
    return count;
}

static const uint8_t ARGUMENTS[STEPS] = {0, 2, 4, 4, 1, 1, 0, 1, 0, 0, 2, 2, 3, 1, 2, 1};

size_t script_step(const unsigned char *script, size_t size)
{
    uint8_t kind = script[0] % 32 % STEPS;
    size_t length = 1 + ARGUMENTS[kind];

    if ((kind == STEP_BYTES || kind == STEP_FRAME || kind == STEP_SETTLE) && length < size)
        length += 1u + script[length];
    return length < size ? length : size;
}

/* ---- receiving ---- */

static void note_receipt(uint64_t receipt) { receipts[receipt_count++ % RECEIPTS] = receipt; }

static size_t take(struct connection *c, size_t most)
{
    struct iovec pieces[MOST_PIECES];
    uint32_t count = shmq_outbox_pieces(&c->session->out, pieces, MOST_PIECES);
    size_t taken = 0;

    for (uint32_t i = 0; i < count && taken < most; i++) {
        size_t bytes = pieces[i].iov_len < most - taken ? pieces[i].iov_len : most - taken;

        answers_read(&c->answers, pieces[i].iov_base, bytes, note_receipt);
        taken += bytes;
    }
    shmq_session_sent(c->session, taken);
    return taken;
}

static void close_connection(struct connection *c)
{
    if (c->session)
        shmq_session_end(c->session);
    c->session = NULL;
    c->later_used = 0;
    c->stalled = false;
}

/* All that goes by itself: what there is to send is sent, whoever waits is served. */
static void settle(void)
{
    bool moved = true;

    while (moved) {
        moved = false;
        host_settle();
        for (int i = 0; i < CONNECTIONS; i++) {
            struct connection *c = &connections[i];

            if (c->session && !c->stalled && take(c, SIZE_MAX))
                moved = true;
        }
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &connections[i];

        if (!c->session)
            continue;
        if (!c->stalled && !c->sending && !c->later_used)
            answers_check_settled(&c->answers);
        if (c->session->broken || (c->session->finished && !shmq_pending(&c->session->out)))
            close_connection(c);
    }
}

/* ---- sending ---- */

static struct connection *connection_of(uint8_t step)
{
    struct connection *c = &connections[step >> 6];

    if (!c->session) {
        c->session = host_session(step >> 6 == CONNECTIONS - 1);
        answers_begin(&c->answers, answer_room[step >> 6]);
    }
    return c;
}

/* Whether it was taken. */
static bool feed_piece(struct connection *c, const unsigned char *bytes, size_t size)
{
    while (size) {
        size_t room;
        unsigned char *space = shmq_session_space(c->session, &room);

        if (!space)
            return false;
        CHECK(room);
        room = room < size ? room : size;
        memcpy(space, bytes, room);
        shmq_session_received(c->session, room);
        bytes += room;
        size -= room;
    }
    return true;
}

static void send_bytes(struct connection *c, const unsigned char *bytes, size_t size, size_t piece)
{
    while (size && c->session) {
        size_t count = piece < size ? piece : size;

        if (!feed_piece(c, bytes, count)) {
            c->answers.unknown = true; /* what is left is never sent */
            break;
        }
        bytes += count;
        size -= count;
        c->sending = size != 0;
        settle();
    }
    c->sending = false;
}

static void send_later(struct connection *c, size_t piece)
{
    size_t size = c->later_used;

    c->later_used = 0;
    send_bytes(c, c->later, size, piece);
}

/* ---- requests ---- */

struct request {
    const unsigned char *payload;
    uint32_t bytes;
    uint32_t target;
    uint32_t receipts; /* of a settlement */
    uint8_t type;
    uint8_t how;
};

static bool may_wait(const struct request *request)
{
    struct shmq_reader r = {request->payload, request->payload + request->bytes, false};

    if (request->type != SHMQ_T_CONSUME)
        return false;
    (void)shmq_read_bytes(&r, shmq_read16(&r));
    (void)shmq_read32(&r);
    return shmq_read32(&r) != 0;
}

/* Whether the last answer says that nothing at all was done. A queue that drops its oldest
 * message may have done so before it found that there is no memory for a group. */
static bool was_refused(const struct answers *a, const struct request *request)
{
    if (a->last_status == SHMQ_S_OK || a->last_status == SHMQ_FRAME_MORE ||
        a->last_status == SHMQ_S_NO_SPACE)
        return false;
    if (a->last_status == SHMQ_S_LEASE_EXPIRED)
        return a->last_bytes == 8 * request->receipts;
    if (request->type == SHMQ_T_PRODUCE_BATCH && a->last_bytes == 12)
        return !shmq_load32(a->last);
    return true;
}

static void send_and_compare(struct connection *c, const struct request *request, size_t piece)
{
    uint32_t count = c->answers.count;
    uint64_t digest;

    host_tick_queues();
    settle();
    digest = host_digest();
    send_later(c, piece);
    if (c->session && c->answers.count == count + 1 && was_refused(&c->answers, request))
        CHECK(host_digest() == digest);
}

static void expect(struct connection *c, const struct request *request, uint32_t id)
{
    answers_expect(&c->answers, &(struct due){.id = id,
                                              .target = request->target,
                                              .type = request->type,
                                              .may_wait = may_wait(request)});
}

static void send_request(struct connection *c, const struct request *request)
{
    uint32_t id = request->how & HOW_SILENT ? 0 : ++last_id;
    size_t size = SHMQ_FRAME_HEADER + request->bytes, piece;
    bool alone = !c->later_used && !c->answers.unknown && !c->stalled;
    unsigned char *at = c->later + c->later_used;

    if (size > MOST_SENT - c->later_used)
        return;
    at = shmq_frame_write(at, request->type, 0, id, request->bytes);
    if (request->bytes)
        memmove(at, request->payload, request->bytes);
    if (request->how & HOW_SHORT) {
        c->answers.unknown = true;
        size--;
    } else if (id) {
        expect(c, request, id);
    }
    c->later_used += size;
    if (request->how & HOW_LATER)
        return;
    piece = request->how & HOW_CUT ? (1u << (request->how >> 4)) + c->later_used / MOST_CUTS
                                   : MOST_SENT;
    if (alone && id && !(request->how & HOW_SHORT))
        send_and_compare(c, request, piece);
    else
        send_later(c, piece);
}

static void step_frame(struct connection *c, struct script *s)
{
    struct request request = {.type = next8(s), .how = next8(s)};

    request.bytes = next_bytes(s, &request.payload);
    send_request(c, &request);
}

static const char *const NAMES[] = {"a", "b", "c", "absent"};

static unsigned char *write_name(unsigned char *at, uint8_t queue)
{
    const char *name = NAMES[queue % 4];
    uint16_t bytes = (uint16_t)strlen(name);

    at = shmq_store16(at, bytes);
    memcpy(at, name, bytes);
    return at + bytes;
}

#define MAP(text) {sizeof text - 1, text}

static const struct {
    uint32_t bytes;
    const char *map;
} PROPERTIES[] = {
    MAP("\x80"),
    MAP("\x81\xa3pri\x00"),
    MAP("\x81\xa3pri\x0F"),
    MAP("\x81\xa5group\xa1g"),
    MAP("\x81\xa5group\xa1h"),
    MAP("\x81\xa6"
        "dedupe\xa1"
        "1"),
    MAP("\x81\xa6"
        "dedupe\xa1"
        "2"),
    MAP("\x81\xa5"
        "delay\xcd\x03\xe8"),
    MAP("\x81\xa3ttl\xcd\x03\xe8"),
    MAP("\x82\xa3ttl\x01\xa5group\xa1g"),
    MAP("\x81\xa5"
        "codec\xa7msgpack"),
    MAP("\x82\xa1x\x93\x01\xa1y\xc0\xa5"
        "codec\xa3odd"),
    MAP("\x81\xa3ttl\xff"),
    MAP("\x81\xa5group\x05"),
};

/* A PRODUCE whose body may be larger than any script. */
static void step_produce(struct connection *c, struct script *s)
{
    static unsigned char payload[MOST_SENT];
    uint8_t queue = next8(s), how = next8(s), properties = next8(s), size = next8(s);
    uint32_t body = size < 0x80 ? size : (uint32_t)(size - 0x7F) << 10;
    unsigned char *at = write_name(payload, queue);
    struct request request = {.payload = payload, .type = SHMQ_T_PRODUCE, .how = how};

    *at++ = properties ? SHMQ_FLAG_PROPERTIES : 0;
    if (properties) {
        uint32_t which = properties % (sizeof PROPERTIES / sizeof *PROPERTIES);

        at = shmq_store32(at, PROPERTIES[which].bytes);
        memcpy(at, PROPERTIES[which].map, PROPERTIES[which].bytes);
        at += PROPERTIES[which].bytes;
    }
    memset(at, size, body);
    request.bytes = (uint32_t)(at - payload) + body;
    send_request(c, &request);
}

static const uint32_t TIMES[] = {0, 1, 50, 400, 600, 1500, 6000, 31000, SHMQ_FRAME_FOREVER};

static uint32_t ms_of(uint8_t which) { return TIMES[which % (sizeof TIMES / sizeof *TIMES)]; }

static void step_settle(struct connection *c, struct script *s)
{
    static const uint8_t kinds[] = {SHMQ_T_ACK, SHMQ_T_NACK, SHMQ_T_REJECT, SHMQ_T_EXTEND,
                                    SHMQ_T_RETURN};
    uint8_t type = kinds[next8(s) % 5], queue = next8(s), how = next8(s), ms = next8(s);
    unsigned char payload[16 + 8 * 256], *at = write_name(payload, queue);
    const unsigned char *which;
    uint32_t count = next_bytes(s, &which);
    struct request request = {.payload = payload, .type = type, .how = how, .receipts = count};

    if (type == SHMQ_T_NACK || type == SHMQ_T_EXTEND)
        at = shmq_store32(at, ms_of(ms));
    for (uint32_t i = 0; i < count; i++) /* counted from the newest one */
        at = shmq_store64(at, receipts[(receipt_count - 1 - which[i]) % RECEIPTS]);
    request.bytes = (uint32_t)(at - payload);
    send_request(c, &request);
}

static void step_leave(struct connection *c, struct script *s)
{
    const struct answers *a = &c->answers;
    uint8_t which = next8(s);
    unsigned char payload[4];
    struct request request = {.payload = payload, .bytes = 4, .type = SHMQ_T_UNSUBSCRIBE};

    if (a->subscription_count)
        request.target = a->subscriptions[which % a->subscription_count];
    shmq_store32(payload, request.target);
    send_request(c, &request);
}

/* ---- others ---- */

static void step_time(struct script *s)
{
    shmq_clock_set = now += ms_of(next8(s)) % (1u << 20) * MS;
    (void)shmq_engine_tick(&host.engine, now);
}

/* Another process's handle, its lock held; NULL if no such queue exists any more. */
static struct shmq_queue *other(uint8_t queue)
{
    struct shmq_queue *q = host.others[queue % HOST_QUEUES];

    return shmq_lock(q) == SHMQ_OK ? q : NULL;
}

static void leave(struct shmq_queue *q)
{
    uint32_t post[2];

    shmq_unlock(q, post);
}

static void settle_by(struct shmq_queue *q, uint64_t receipt, uint8_t what)
{
    switch (what % 5) {
    case 0: (void)shmq_ack(q, receipt, now); break;
    case 1: (void)shmq_nack(q, receipt, 0, now); break;
    case 2: (void)shmq_reject(q, receipt, now); break;
    case 3: (void)shmq_extend(q, receipt, 400 * MS, now); break;
    default: break; /* it is kept */
    }
}

static void step_put(struct script *s)
{
    uint8_t queue = next8(s), size = next8(s);
    struct shmq_queue *q = other(queue);
    struct shmq_put put = {.body_bytes = size, .codec = size & 7};
    uint64_t seq;

    if (!q)
        return;
    if (shmq_fits(q, put.body_bytes, 0) == SHMQ_OK)
        (void)shmq_put(q, &put, now, &seq);
    leave(q);
}

static void step_get(struct script *s)
{
    uint8_t queue = next8(s), what = next8(s);
    struct shmq_queue *q = other(queue);
    struct shmq_view view;

    if (!q)
        return;
    if (shmq_lease(q, now, true, &view) == SHMQ_OK)
        settle_by(q, view.receipt, what);
    leave(q);
}

static void step_steal(struct script *s)
{
    uint8_t queue = next8(s), which = next8(s), what = next8(s);
    struct shmq_queue *q = other(queue);

    if (!q)
        return;
    settle_by(q, shmq_unseal(&q->seal, receipts[(receipt_count - 1 - which) % RECEIPTS]), what);
    leave(q);
}

static void step_starve(struct script *s)
{
    uint8_t queue = next8(s) % HOST_QUEUES;

    starved[queue] = !starved[queue];
    starve(host.queues[queue]);
    starve(host.others[queue]);
}

/* That a queue is damaged is found at the next use of it, and ends all of it. */
static void step_break(struct script *s)
{
    uint8_t queue = next8(s) % HOST_QUEUES, what = next8(s);

    if (what == 1) {
        host_delete(queue);
    } else if (what == 2 && !host.deleted[queue]) {
        host.damaged[queue] = true;
        host.queues[queue]->h->state = SHMQ_BROKEN;
    }
}

/* ---- the whole ---- */

static void carry_out(uint8_t step, struct script *s)
{
    struct connection *c = connection_of(step);
    const unsigned char *bytes;
    uint32_t count;

    switch (step % 32 % STEPS) {
    case STEP_BYTES:
        count = next_bytes(s, &bytes);
        c->answers.unknown = true;
        send_bytes(c, bytes, count, MOST_SENT);
        break;
    case STEP_FRAME: step_frame(c, s); break;
    case STEP_PRODUCE: step_produce(c, s); break;
    case STEP_SETTLE: step_settle(c, s); break;
    case STEP_LEAVE: step_leave(c, s); break;
    case STEP_TIME: step_time(s); break;
    case STEP_STALL: c->stalled = !c->stalled; break;
    case STEP_READ: (void)take(c, (size_t)next8(s) << 8); break;
    case STEP_FIN:
        send_later(c, MOST_SENT);
        if (c->session)
            shmq_session_finish(c->session);
        c->answers.unknown = true; /* who waits ends unanswered */
        break;
    case STEP_CLOSE: close_connection(c); break;
    case STEP_PUT: step_put(s); break;
    case STEP_GET: step_get(s); break;
    case STEP_STEAL: step_steal(s); break;
    case STEP_STARVE: step_starve(s); break;
    case STEP_BREAK: step_break(s); break;
    case STEP_DRAIN:
        if (next8(s) == 0x77)
            shmq_engine_drain(&host.engine);
        break;
    }
}

void script_run(const unsigned char *script, size_t size)
{
    struct script s = {script, script + size};

    receipt_count = last_id = 0;
    memset(receipts, 0, sizeof receipts);
    memset(starved, 0, sizeof starved);
    host_begin(next8(&s) & 1);
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i] = (struct connection){.later = later_room[i]};
    while (s.at < s.end) {
        uint8_t step = next8(&s);

        carry_out(step, &s);
        settle();
    }
    for (int i = 0; i < CONNECTIONS; i++)
        close_connection(&connections[i]);
    host_end();
}
