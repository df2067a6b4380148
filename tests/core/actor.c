#include "actor.h"

#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "lock.h"
#include "recover.h"
#include "sleep.h"
#include "timer.h"

/* In what follows, what only a strict actor can know. */
#define MUST(condition)         \
    do {                        \
        if (a->strict)          \
            CHECK(condition);   \
    } while (0)

#define MUST_BE(got, wanted)          \
    do {                              \
        if (a->strict)                \
            CHECK_EQ(got, wanted);    \
    } while (0)

static uint64_t below(struct actor *a, uint64_t limit) { return chance_below(&a->chance, limit); }

static bool one_in(struct actor *a, uint64_t count) { return below(a, count) == 0; }

struct actor *actor_new(struct shmq_queue *q, struct chance chance, uint64_t most_bytes,
                        uint64_t groups)
{
    struct actor *a = calloc(1, sizeof *a);

    CHECK(a);
    a->handles[0] = a->q = q;
    for (int i = 1; i < ACTOR_HANDLES; i++)
        a->handles[i] = another_handle(q);
    a->chance = chance;
    a->strict = a->holds_lock = true;
    a->most_bytes = most_bytes;
    a->groups = groups;
    a->processes = 1000;
    return a;
}

/* ---- bytes ---- */

static uint8_t pattern(uint8_t salt, uint64_t at) { return (uint8_t)(salt + at * 7); }

static void write_pattern(const unsigned char *to, uint64_t bytes, uint8_t salt)
{
    unsigned char *bytes_of = (unsigned char *)to;

    for (uint64_t at = 0; bytes_of && at < bytes; at++)
        bytes_of[at] = pattern(salt, at);
}

static volatile uint64_t bytes_seen; /* so that they are read though nobody asks */

static bool has_pattern(const unsigned char *from, uint64_t bytes, uint8_t salt)
{
    uint64_t right = 0;

    for (uint64_t at = 0; from && at < bytes; at++)
        right += from[at] == pattern(salt, at);
    bytes_seen += right;
    return right == (from ? bytes : 0);
}

static void check_view(struct actor *a, const struct shmq_view *view, uint64_t seq)
{
    uint8_t salt = a->puts[seq % MOST_PUTS].salt;

    MUST(view->body && has_pattern(view->body, view->body_bytes, salt));
    MUST(!view->meta_bytes ||
         has_pattern(view->meta, view->meta_bytes, (uint8_t)(salt ^ 0xFF)));
    MUST_BE(view->body_bytes, a->puts[seq % MOST_PUTS].body_bytes);
    MUST_BE(view->meta_bytes, a->puts[seq % MOST_PUTS].meta_bytes);
    if (!a->strict) {
        (void)has_pattern(view->body, view->body_bytes, 0);
        (void)has_pattern(view->meta, view->meta_bytes, 0);
    }
}

/* ---- the ledger ---- */

static void enter(struct actor *a, uint64_t seq, const struct actor_receipt *r)
{
    MUST(seq < MOST_PUTS && seq == a->q->h->last_seq);
    a->puts[seq % MOST_PUTS].body_bytes = r->body_bytes;
    a->puts[seq % MOST_PUTS].meta_bytes = r->meta_bytes;
    a->puts[seq % MOST_PUTS].salt = r->salt;
    a->puts[seq % MOST_PUTS].settled = false;
}

static void keep(struct actor *a, struct actor_receipt r)
{
    uint32_t at = a->receipt_count < MOST_RECEIPTS ? a->receipt_count++
                                                   : (uint32_t)below(a, MOST_RECEIPTS);

    a->receipts[at] = r;
}

/* A receipt that was given for that, or now and then any other, or one out of thin air.
 * Mostly it is forgotten, sometimes it is kept to be tried again. */
static struct actor_receipt pick(struct actor *a, enum shmq_state state)
{
    uint32_t from = (uint32_t)below(a, a->receipt_count + 1);

    for (uint32_t i = 0; i < a->receipt_count; i++) {
        uint32_t at = (from + i) % a->receipt_count;
        struct actor_receipt r = a->receipts[at];

        if (r.state != state && !one_in(a, 50))
            continue;
        if (!one_in(a, 10))
            a->receipts[at] = a->receipts[--a->receipt_count];
        return r;
    }
    return (struct actor_receipt){.receipt = one_in(a, 2) ? below(a, 8) : chance_next(&a->chance)};
}

/* Whether the slots say that the receipt is good for that. */
static bool is_good(struct actor *a, uint64_t receipt, enum shmq_state state)
{
    uint32_t at = (uint32_t)(receipt & SHMQ_RECEIPT_SLOT);
    uint64_t word;

    if (!a->strict || at >= a->q->h->slots_made)
        return false;
    word = shmq_word(&a->q->slots[at]);
    return shmq_state_of(word) == state && shmq_serial_of(word) == receipt >> SHMQ_SERIAL_SHIFT;
}

/* Does all that is due, so that the slots are as the next operation finds them. */
static void settle_time(struct actor *a)
{
    for (int round = 0; round < 100 && shmq_next_due(a->q) <= now; round++)
        shmq_tick(a->q, now);
    MUST(shmq_next_due(a->q) > now);
}

/* ---- putting ---- */

static uint64_t random_size(struct actor *a)
{
    return one_in(a, 4) ? below(a, a->most_bytes + 1) : below(a, a->most_bytes / 4 + 2);
}

static struct actor_receipt random_bytes(struct actor *a)
{
    return (struct actor_receipt){.state = SHMQ_FILLING, .salt = (uint8_t)below(a, 256),
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

static void do_put(struct actor *a)
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

static void do_reserve(struct actor *a)
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

static void do_fill(struct actor *a)
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

static void do_stage(struct actor *a)
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

static void do_publish(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_STAGED);
    bool good = is_good(a, r.receipt, SHMQ_STAGED);
    int status = shmq_publish(a->q, r.receipt, now);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    if (good)
        enter(a, a->q->h->last_seq, &r);
}

static void do_abandon(struct actor *a)
{
    struct actor_receipt r = pick(a, one_in(a, 2) ? SHMQ_FILLING : SHMQ_STAGED);
    bool good = is_good(a, r.receipt, SHMQ_FILLING) || is_good(a, r.receipt, SHMQ_STAGED);
    int status = shmq_abandon(a->q, r.receipt);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
}

/* ---- leasing and settling ---- */

static bool blocks(const struct shmq_slot *s)
{
    uint64_t word = shmq_word(s);

    return shmq_state_of(word) == SHMQ_LEASED || shmq_state_of(word) == SHMQ_ACKED ||
           (shmq_state_of(word) == SHMQ_DELAYED && word & SHMQ_F_HOLDS);
}

static bool is_blocked(struct shmq_queue *q, const struct shmq_slot *s)
{
    if (!(shmq_word(s) & SHMQ_F_GROUPED))
        return false;
    for (uint32_t at = 0; at < q->h->slots_made; at++)
        if (shmq_word(&q->slots[at]) & SHMQ_F_GROUPED && q->slots[at].group == s->group &&
            blocks(&q->slots[at]))
            return true;
    return false;
}

/* What is to be served next, from the slots alone. */
static uint32_t naive_next(struct shmq_queue *q)
{
    uint32_t best = SHMQ_NIL;

    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];

        if (shmq_state_of(shmq_word(s)) != SHMQ_READY || is_blocked(q, s))
            continue;
        if (best == SHMQ_NIL || shmq_key_of(s) < shmq_key_of(&q->slots[best]))
            best = at;
    }
    return best;
}

static void do_lease(struct actor *a)
{
    struct actor_receipt r = {.state = SHMQ_LEASED};
    struct shmq_view view;
    uint32_t next = SHMQ_NIL;
    int status;

    if (a->strict) {
        settle_time(a);
        next = naive_next(a->q);
    }
    status = shmq_lease(a->q, now, one_in(a, 2), &view);
    MUST_BE(status, next == SHMQ_NIL ? SHMQ_EMPTY : SHMQ_OK);
    if (status != SHMQ_OK)
        return;
    MUST_BE(view.at, next);
    MUST(view.seq <= a->q->h->last_seq && !a->puts[view.seq % MOST_PUTS].settled);
    check_view(a, &view, view.seq);
    r.receipt = view.receipt;
    keep(a, r);
}

static void do_hand(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_LEASED);
    bool good = is_good(a, r.receipt, SHMQ_LEASED);
    int status = shmq_hand(a->q, r.receipt, now);

    MUST(good || status == SHMQ_STALE);
    MUST_BE(shmq_holds(a->q, r.receipt, now), status == SHMQ_OK);
    if (status == SHMQ_OK)
        keep(a, r);
}

static void do_mark_acked(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_LEASED);
    bool good = is_good(a, r.receipt, SHMQ_LEASED) && shmq_holds(a->q, r.receipt, now);
    int status = shmq_mark_acked(a->q, r.receipt, now);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    if (status != SHMQ_OK)
        return;
    if (good)
        a->puts[a->q->slots[r.receipt & SHMQ_RECEIPT_SLOT].seq].settled = true;
    r.state = SHMQ_ACKED;
    keep(a, r);
}

static void do_finish(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_ACKED);
    bool good = is_good(a, r.receipt, SHMQ_ACKED);
    int status = shmq_finish(a->q, r.receipt);

    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
}

static void do_settle(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_LEASED);
    uint32_t at = (uint32_t)(r.receipt & SHMQ_RECEIPT_SLOT);
    uint64_t how = below(a, 12), seq;
    bool good;
    int status;

    settle_time(a);
    good = is_good(a, r.receipt, SHMQ_LEASED);
    seq = good ? a->q->slots[at].seq : 0;
    if (how < 5)
        status = shmq_ack(a->q, r.receipt, now);
    else if (how < 8)
        status = shmq_nack(a->q, r.receipt, (int64_t)below(a, 4) * SECOND - 1, now);
    else if (how == 8)
        status = shmq_reject(a->q, r.receipt, now);
    else if (how == 9)
        status = shmq_return(a->q, r.receipt, now);
    else
        status = shmq_extend(a->q, r.receipt, (int64_t)below(a, 40) * SECOND, now);
    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    if (a->strict && good && how < 5)
        a->puts[seq].settled = true;
    if (status == SHMQ_OK && how >= 10)
        keep(a, r);
}

/* ---- views ---- */

static int pin(struct actor *a, const struct actor_receipt *r, struct shmq_view *view)
{
    uint32_t at = (uint32_t)(r->receipt & SHMQ_RECEIPT_SLOT);

    if (is_good(a, r->receipt, SHMQ_LEASED) && one_in(a, 2))
        return shmq_pin_at(a->q, at, a->q->slots[at].seq, view);
    if (!a->strict && one_in(a, 2))
        return shmq_pin_at(a->q, at % 64, below(a, a->q->h->last_seq + 1), view);
    return shmq_pin(a->q, r->receipt, now, view);
}

static void do_pin(struct actor *a)
{
    struct actor_receipt r = pick(a, one_in(a, 4) ? SHMQ_FILLING : SHMQ_LEASED);
    struct shmq_view view;
    int status;

    if (a->view_count == MOST_VIEWS)
        return;
    status = pin(a, &r, &view);
    keep(a, r);
    if (status != SHMQ_OK)
        return;
    if (shmq_state_of(view.word) != SHMQ_FILLING) {
        check_view(a, &view, view.seq);
        r.salt = a->puts[view.seq % MOST_PUTS].salt;
    }
    a->views[a->view_count++] = (struct actor_view){a->q, view, r.salt};
}

static void unpin(struct actor *a, uint32_t at)
{
    struct actor_view v = a->views[at];

    MUST(has_pattern(v.view.body, v.view.body_bytes, v.salt));
    a->views[at] = a->views[--a->view_count];
    shmq_unpin(v.holder, v.view.at);
}

static void do_unpin(struct actor *a)
{
    if (a->view_count)
        unpin(a, (uint32_t)below(a, a->view_count));
}

static void forget_views(struct actor *a, const struct shmq_queue *holder, bool dead)
{
    for (uint32_t at = a->view_count; at-- > 0;)
        if (a->views[at].holder == holder && dead)
            a->views[at] = a->views[--a->view_count];
        else if (a->views[at].holder == holder)
            unpin(a, at);
}

/* ---- death and closing ---- */

static void attach_again(struct actor *a, struct shmq_queue *q)
{
    int status = shmq_attach(q, ++a->processes, 1, "again");

    MUST(status == SHMQ_OK || (status == SHMQ_NO_SPACE && q->fd < 0));
    if (status != SHMQ_OK)
        q->attachment = 0; /* the first handle's: any will do */
}

static uint64_t process_of(const struct shmq_queue *q)
{
    return q->attachments[q->attachment].process;
}

static void do_die(struct actor *a)
{
    struct shmq_queue *dead = a->handles[1 + below(a, ACTOR_HANDLES - 1)];

    if (dead == a->q || dead->attachment >= SHMQ_MAX_ATTACHMENTS || !dead->attachment)
        return;
    shmq_reclaim(a->q, dead->attachment, process_of(dead), now);
    forget_views(a, dead, true);
    attach_again(a, dead);
}

static void do_close(struct actor *a)
{
    struct shmq_queue *q = a->handles[1 + below(a, ACTOR_HANDLES - 1)];

    if (!q->attachment)
        return;
    shmq_retire(q, now);
    forget_views(a, q, false);
    shmq_reclaim(q, q->attachment, process_of(q), now);
    attach_again(a, q);
}

static void do_recover(struct actor *a)
{
    int status = shmq_recover(a->q);

    MUST_BE(status, SHMQ_OK);
}

/* ---- moving ---- */

static void do_take(struct actor *a)
{
    struct actor_receipt r = {.state = SHMQ_MOVING};
    struct shmq_view view;
    uint32_t at = (uint32_t)below(a, a->q->h->options.capacity);
    int status = SHMQ_STALE;

    if (one_in(a, 2))
        status = shmq_take_dead(a->q, &view);
    else if (at < a->q->h->slots_made)
        status = shmq_take(a->q, at, a->q->slots[at].seq, &view);
    if (status != SHMQ_OK)
        return;
    check_view(a, &view, view.seq);
    MUST(shmq_still_moves(a->q, view.seq));
    r.receipt = view.receipt;
    keep(a, r);
}

static void do_move(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_MOVING);
    bool good = is_good(a, r.receipt, SHMQ_MOVING);
    uint64_t how = below(a, 4);
    int status;

    if (how == 0)
        status = shmq_untake(a->q, r.receipt);
    else if (how == 1)
        status = shmq_give_up(a->q, r.receipt);
    else
        status = shmq_moved(a->q, r.receipt);
    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    a->moved += good && how > 1;
}

static void do_void_copies(struct actor *a)
{
    uint64_t receipt, queue, seq;

    shmq_void_copies(a->q, below(a, 2), below(a, 4));
    if (shmq_find_orphan(a->q, (uint32_t)below(a, 8), &receipt, &queue, &seq) == SHMQ_OK)
        MUST(is_good(a, receipt, SHMQ_STAGED) && queue < 2 && seq < 4);
}

/* ---- the rest ---- */

static void do_purge(struct actor *a)
{
    uint64_t removed = 0, visible = a->q->h->visible, delayed = a->q->h->delayed;
    int status;

    if (!one_in(a, 4))
        return;
    status = shmq_purge(a->q, &removed);
    MUST_BE(status, SHMQ_OK);
    MUST_BE(removed, visible + delayed);
    a->purged += removed;
}

static void do_pass_time(struct actor *a)
{
    now += (int64_t)below(a, one_in(a, 20) ? 60 * SECOND : 2 * SECOND);
    if (one_in(a, 2))
        shmq_tick(a->q, now);
}

static void do_sleep(struct actor *a)
{
    enum shmq_bell bell = (enum shmq_bell)below(a, 2);

    if (one_in(a, 2))
        shmq_fall_asleep(a->q, bell);
    else
        shmq_wake_up(a->q, bell, one_in(a, 2), (int)below(a, 3));
}

static void do_starve(struct actor *a)
{
    if (a->q->fd < 0)
        feed(a->q);
    else if (one_in(a, 4))
        starve(a->q);
}

typedef void operation(struct actor *a);

/* Each as often as it stands here. */
static operation *const operations[] = {
    do_put, do_put, do_put, do_put, do_put, do_put,
    do_reserve, do_reserve, do_fill, do_fill, do_stage, do_publish, do_abandon,
    do_lease, do_lease, do_lease, do_lease, do_hand,
    do_settle, do_settle, do_settle, do_settle, do_mark_acked, do_mark_acked, do_finish,
    do_pin, do_unpin,
    do_die, do_close, do_recover,
    do_take, do_take, do_move, do_move, do_void_copies,
    do_purge, do_pass_time, do_pass_time, do_sleep, do_starve,
};

/* What is in the queue and what has left it is what was put. */
static void balance(struct actor *a)
{
    const struct shmq_header *h = a->q->h;
    uint64_t here = 0;

    for (uint32_t at = 0; at < h->slots_made; at++) {
        enum shmq_state state = shmq_state_of(shmq_word(&a->q->slots[at]));

        if (state < SHMQ_READY || state == SHMQ_ZOMBIE)
            continue;
        here++;
        CHECK_EQ(a->puts[a->q->slots[at].seq].settled, state == SHMQ_ACKED);
    }
    CHECK_EQ(h->last_seq, here + h->acked + h->dropped + a->purged + a->moved);
}

bool actor_lock(struct actor *a)
{
    uint32_t post[2];
    int status;

    if (a->holds_lock)
        shmq_unlock(a->q, post);
    a->q = a->handles[below(a, ACTOR_HANDLES)];
    status = shmq_lock(a->q);
    a->holds_lock = status == SHMQ_OK;
    MUST_BE(status, SHMQ_OK);
    return a->holds_lock;
}

void actor_step(struct actor *a)
{
    if (!actor_lock(a))
        return;
    operations[below(a, sizeof operations / sizeof *operations)](a);
    if (a->strict) {
        CHECK(!a->q->damaged);
        CHECK_WELL(a->q);
        balance(a);
    }
}
