/* Putting, at once or in steps, and staging. */
#include "actions.h"
#include "queue/put_ring.h"
#include "ledger.h"

static uint64_t random_size(struct actor *a)
{
    return one_in(a, 4) ? below(a, a->most_bytes + 1) : below(a, a->most_bytes / 4 + 2);
}

static struct actor_receipt random_bytes(struct actor *a)
{
    return (struct actor_receipt){.state = SHMQ_FILLING,
                                  .salt = (uint8_t)below(a, 256),
                                  .body_bytes = random_size(a),
                                  .meta_bytes = one_in(a, 3) ? (uint32_t)below(a, 100) : 0};
}

static struct shmq_put random_put(struct actor *a, const struct actor_receipt *r)
{
    struct shmq_put put = {.body_bytes = r->body_bytes, .meta_bytes = r->meta_bytes};

    put.priority = (uint8_t)below(a, a->q->h->options.priorities);
    put.delay = one_in(a, 6) ? (int64_t)below(a, 15) * SECOND : 0;
    if (one_in(a, 6))
        put.ttl = one_in(a, 10) ? -1 : (int64_t)below(a, 20) * SECOND;
    if (a->groups && !one_in(a, 4))
        put.group = 1 + below(a, a->groups);
    a->id[0] = a->id[1] = 1 + below(a, DEDUPE_IDS);
    put.dedupe = one_in(a, 3) ? a->id : NULL;
    return put;
}

/* Whether the ledger says that the put's id was taken before. */
static bool is_duplicate(struct actor *a, const uint64_t *id)
{
    return id && a->q->geo.dedupe_max && a->ids[*id % DEDUPE_IDS].until > now;
}

static void remember(struct actor *a, const uint64_t *id, uint64_t seq)
{
    if (!id || is_duplicate(a, id))
        return;
    a->ids[*id % DEDUPE_IDS].seq = seq;
    a->ids[*id % DEDUPE_IDS].until = now + a->q->h->options.dedupe_window;
}

/* Checks a put's outcome; true if it is a message now. */
static bool was_put(struct actor *a, const struct shmq_put *put, int status, uint64_t seq)
{
    if (is_duplicate(a, put->dedupe)) {
        MUST_BE(status, SHMQ_DUPLICATE);
        MUST_BE(seq, a->ids[*put->dedupe % DEDUPE_IDS].seq);
        return false;
    }
    MUST(status == SHMQ_OK || status == SHMQ_FULL || status == SHMQ_NO_SPACE);
    MUST(status != SHMQ_NO_SPACE || a->q->fd < 0);
    if (status != SHMQ_OK)
        return false;
    remember(a, put->dedupe, seq);
    return true;
}

void do_put(struct actor *a)
{
    static unsigned char body[200000], meta[100];
    struct actor_receipt r = random_bytes(a);
    struct shmq_put put = random_put(a, &r);
    uint64_t seq = 0;
    int status;

    put.body = body;
    put.meta = meta;
    write_pattern(body, r.body_bytes, r.salt);
    write_pattern(meta, r.meta_bytes, (uint8_t)(r.salt ^ 0xFF));
    status = shmq_put(a->q, &put, now, &seq);
    if (was_put(a, &put, status, seq))
        enter(a, seq, &r);
}

/* One put in so many is not plain, and to be refused. */
static struct shmq_put random_quick_put(struct actor *a, const struct actor_receipt *r)
{
    struct shmq_put put = random_put(a, r);

    if (one_in(a, 10))
        return put;
    put.priority = (uint8_t)(a->q->h->options.priorities / 2);
    put.delay = 0;
    put.group = 0;
    put.dedupe = NULL;
    return put;
}

static bool is_plain(struct actor *a, const struct shmq_put *put)
{
    return put->priority == a->q->h->options.priorities / 2 && !put->delay && !put->group &&
           !put->dedupe && put->body_bytes + put->meta_bytes;
}

void do_quick_put(struct actor *a)
{
    static unsigned char body[200000], meta[100];
    struct actor_receipt r = random_bytes(a);
    struct shmq_put put = random_quick_put(a, &r);
    uint64_t seq = 0, last = a->q->h->last_seq;
    int status;

    put.body = body;
    put.meta = meta;
    put.tail_bytes = put.body_bytes ? (uint32_t)below(a, put.body_bytes) : 0;
    put.tail = body + put.body_bytes - put.tail_bytes;
    write_pattern(body, r.body_bytes, r.salt);
    write_pattern(meta, r.meta_bytes, (uint8_t)(r.salt ^ 0xFF));
    status = shmq_quick_put(a->q, &put, now, &seq);
    MUST(status == SHMQ_BUSY || (status == SHMQ_OK && is_plain(a, &put)));
    if (status == SHMQ_OK)
        enter(a, seq, &r);
    else
        MUST_BE(a->q->h->last_seq, last);
}

void do_reserve(struct actor *a)
{
    struct actor_receipt r = random_bytes(a);
    struct shmq_put put = random_put(a, &r);
    struct shmq_view view;
    uint64_t seq = 0;
    int status = shmq_reserve(a->q, r.body_bytes, r.meta_bytes, now, put.dedupe, &view, &seq);

    if (is_duplicate(a, put.dedupe))
        MUST_BE(status, SHMQ_DUPLICATE);
    if (status != SHMQ_OK)
        return;
    MUST(view.body && view.body_bytes == r.body_bytes);
    write_pattern(view.body, view.body_bytes, r.salt);
    write_pattern(view.meta, view.meta_bytes, (uint8_t)(r.salt ^ 0xFF));
    r.receipt = view.receipt;
    keep(a, r);
}

void do_fill(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_FILLING);
    struct shmq_put put = random_put(a, &r);
    bool good = is_good(a, r.receipt, SHMQ_FILLING);
    uint64_t seq = 0;
    int status;

    if (r.body_bytes && one_in(a, 4))
        r.body_bytes = put.body_bytes = below(a, r.body_bytes);
    status = shmq_fill(a->q, r.receipt, &put, now, &seq);
    if (!good)
        MUST_BE(status, SHMQ_STALE);
    else if (was_put(a, &put, status, seq))
        enter(a, seq, &r);
}

void do_stage(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_FILLING);
    struct shmq_put put = random_put(a, &r);
    bool good = is_good(a, r.receipt, SHMQ_FILLING);
    int status;

    put.origin_queue = below(a, 2);
    put.origin_seq = below(a, 4);
    status = shmq_stage(a->q, r.receipt, &put, now);
    if (!good)
        MUST_BE(status, SHMQ_STALE);
    if (status != SHMQ_OK)
        return;
    r.state = SHMQ_STAGED;
    keep(a, r);
}

void do_commit_staged(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_STAGED);
    bool good = is_good(a, r.receipt, SHMQ_STAGED);
    int status = shmq_commit_staged(a->q, r.receipt, now);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    if (good)
        enter(a, a->q->h->last_seq, &r);
}

void do_abandon(struct actor *a)
{
    struct actor_receipt r = pick(a, one_in(a, 2) ? SHMQ_FILLING : SHMQ_STAGED);
    bool good = is_good(a, r.receipt, SHMQ_FILLING) || is_good(a, r.receipt, SHMQ_STAGED);
    int status = shmq_abandon(a->q, r.receipt);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
}
