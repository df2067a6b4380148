/* Messages read where they stand, without the lock; and found again by their numbers. */
#include "fixture.h"

#include "base/clock.h"
#include "queue/snapshot_read.h"
#include "queue/lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ROOM (1u << 20)
#define ALL UINT32_MAX

static _Alignas(8) unsigned char block[ROOM];
static struct shmq_columns_layout layout;

static const void *column(enum shmq_column which) { return block + layout.offset[which]; }
static uint64_t seq_at(uint32_t n) { return ((const uint64_t *)column(SHMQ_COLUMN_SEQUENCE))[n]; }
static uint8_t state_of(uint32_t n) { return ((const uint8_t *)column(SHMQ_COLUMN_STATE))[n]; }
static int64_t time_at(enum shmq_column which, uint32_t n)
{
    return ((const int64_t *)column(which))[n];
}

static uint32_t bytes_of(uint32_t n, const unsigned char **at)
{
    const int32_t *offsets = column(SHMQ_COLUMN_BODY_OFFSETS);

    *at = (const unsigned char *)column(SHMQ_COLUMN_BODIES) + offsets[n];
    return (uint32_t)(offsets[n + 1] - offsets[n]);
}

static void copy_into_block(struct shmq_queue *q, struct shmq_snapshot_read *e)
{
    struct shmq_columns c;

    CHECK(shmq_columns_lay_out(&layout, e->count, e->body_bytes, e->meta_bytes));
    CHECK(layout.size <= ROOM);
    shmq_columns_begin(&c, block, &layout);
    shmq_snapshot_read_copy(q, e, 0, &c);
    CHECK(shmq_columns_read(block, shmq_columns_end(&c), &layout));
    CHECK_EQ(layout.count, c.count);
}

/* Reads from `start` to `end`: how many rows; `start` moves on. */
static uint32_t read_slots(struct shmq_queue *q, uint32_t *start, uint32_t end, uint64_t max_bytes)
{
    struct shmq_snapshot_read e;

    shmq_snapshot_read_begin(&e, shmq_capacity(q), max_bytes, INT32_MAX);
    CHECK(e.picks);
    CHECK_EQ(shmq_snapshot_read_slots(q, &e, start, end), SHMQ_OK);
    copy_into_block(q, &e);
    free(e.picks);
    return layout.count;
}

static uint32_t read_all(struct shmq_queue *q)
{
    uint32_t start = 0;

    return read_slots(q, &start, ALL, ROOM);
}

static int read_run(struct shmq_queue *q, const uint32_t *slots, const uint64_t *seqs, uint64_t *at,
                    uint64_t end)
{
    struct shmq_snapshot_read e;
    int status;

    shmq_snapshot_read_begin(&e, end, ROOM, INT32_MAX);
    status = shmq_snapshot_read_run(q, &e, slots, seqs, at, end);
    copy_into_block(q, &e);
    free(e.picks);
    return status;
}

static bool meta_is(uint32_t n, const char *text)
{
    const int32_t *offsets = column(SHMQ_COLUMN_META_OFFSETS);
    const char *at = (const char *)column(SHMQ_COLUMN_METAS) + offsets[n];

    return (size_t)(offsets[n + 1] - offsets[n]) == strlen(text) && !memcmp(at, text, strlen(text));
}

/* Returns the next message with an error, one msgpack value. */
static void fail_next(struct shmq_queue *q, const char *error, int64_t delay)
{
    uint64_t receipt = take_next(q).receipt;
    struct shmq_text text = {(const unsigned char *)error, (uint32_t)strlen(error)};

    CHECK_EQ(shmq_keep_error(q, receipt, text, now), SHMQ_OK);
    CHECK_EQ(shmq_nack(q, receipt, delay, now), SHMQ_OK);
}

TEST("a message that failed has its last error in its properties")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);

    put_text(q, "a");
    fail_next(q, "\xa4oops", 0);
    fail_next(q,
              "\xa5"
              "again",
              60 * SECOND);
    put_text(q, "b");
    fail_next(q, "\xc3", 0);
    put_text(q, "c");
    CHECK_EQ(read_all(q), 3);
    CHECK_EQ(state_of(0), SHMQ_IS_DELAYED);
    CHECK(meta_is(0, "\x81\xa5"
                     "error\xa5"
                     "again"));
    CHECK(meta_is(1, "\x81\xa5"
                     "error\xc3"));
    CHECK(meta_is(2, ""));
    (void)take_next(q);
    CHECK_EQ(read_all(q), 3);
    CHECK_EQ(state_of(1), SHMQ_IS_LEASED);
    CHECK(meta_is(1, "\x81\xa5"
                     "error\xc3"));
}

TEST("an error that came since the message was chosen is left out, and the message is not")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_snapshot_read e;
    uint32_t start = 0;

    put_text(q, "a");
    put_text(q, "b");
    fail_next(q, "\xa4oops", 0);
    shmq_snapshot_read_begin(&e, shmq_capacity(q), ROOM, INT32_MAX);
    CHECK_EQ(shmq_snapshot_read_slots(q, &e, &start, ALL), SHMQ_OK);
    fail_next(q, "\xa6longer", 0);
    (void)take_next(q);
    fail_next(q, "\xa4none", 0);
    copy_into_block(q, &e);
    free(e.picks);
    CHECK_EQ(layout.count, 2);
    CHECK(meta_is(0, ""));
    CHECK(meta_is(1, ""));
}

TEST("what a message is doing, and since when, is in its row")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .dead_letters = 1);
    struct shmq_view view;

    now += SECOND;
    put_text(q, "leased");
    put_text(q, "rejected");
    view = take_next(q);
    CHECK_EQ(shmq_reject(q, take_next(q).receipt, now), SHMQ_OK);
    put_text(q, "ready");
    PUT(q, .delay = 5 * SECOND, .ttl = 9 * SECOND, .priority = 2);
    CHECK_EQ(read_all(q), 4);
    for (uint32_t n = 0; n < 4; n++) {
        bool delayed = seq_at(n) == 4, leased = seq_at(n) == 1, dying = seq_at(n) == 2;

        CHECK_EQ(state_of(n), leased    ? SHMQ_IS_LEASED
                              : dying   ? SHMQ_IS_DYING
                              : delayed ? SHMQ_IS_DELAYED
                                        : SHMQ_IS_READY);
        CHECK_EQ(time_at(SHMQ_COLUMN_PUT_AT, n), now / 1000);
        CHECK_EQ(time_at(SHMQ_COLUMN_LEASE_UNTIL, n), leased ? view.deadline / 1000 : 0);
        CHECK_EQ(time_at(SHMQ_COLUMN_VISIBLE_AT, n), delayed ? now / 1000 + 5000000 : 0);
        CHECK_EQ(time_at(SHMQ_COLUMN_EXPIRES, n), delayed ? now / 1000 + 9000000 : 0);
        CHECK_EQ(time_at(SHMQ_COLUMN_DEAD_AT, n) != 0, dying);
        CHECK_EQ(((const uint8_t *)column(SHMQ_COLUMN_REASON))[n], dying ? SHMQ_REJECTED : 0);
        CHECK_EQ(((const int32_t *)column(SHMQ_COLUMN_DELIVERIES))[n], leased || dying);
    }
}

TEST("what is acknowledged, staged, being written or free has no row")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_put put = {.body = "x", .body_bytes = 1};
    struct shmq_view view;

    put_text(q, "a");
    put_text(q, "b");
    CHECK_EQ(shmq_mark_acked(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, take_next(q).receipt, now), SHMQ_OK);
    reserve(q, 10);
    view = reserve(q, 1);
    CHECK_EQ(shmq_stage(q, view.receipt, &put, now), SHMQ_OK);
    CHECK_EQ(read_all(q), 0);
}

TEST("a block ends before it is too large, but for its first message")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    uint32_t start = 0, rows = 0;

    for (int i = 0; i < 10; i++)
        put_bytes(q, 500);
    while (start < q->h->slots_made) {
        uint32_t count = read_slots(q, &start, ALL, 2000);

        CHECK(layout.size <= 2000);
        rows += count;
    }
    CHECK_EQ(rows, 10);
    start = 0;
    CHECK_EQ(read_slots(q, &start, ALL, 1), 1);
    CHECK_EQ(read_slots(q, &start, 4, ROOM) + 1, start);
    start = 999;
    CHECK_EQ(read_slots(q, &start, ALL, ROOM), 0);
    CHECK_EQ(start, 999);
}

TEST("a message of more bytes than are allowed is too large, and is left behind others")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_snapshot_read e;
    uint32_t start = 0;

    put_bytes(q, 10);
    put_bytes(q, 200);
    shmq_snapshot_read_begin(&e, 16, ROOM, 100);
    CHECK_EQ(shmq_snapshot_read_slots(q, &e, &start, ALL), SHMQ_OK);
    CHECK_EQ(e.count, 1);
    free(e.picks);
    shmq_snapshot_read_begin(&e, 16, ROOM, 100);
    CHECK_EQ(shmq_snapshot_read_slots(q, &e, &start, ALL), SHMQ_TOO_LARGE);
    free(e.picks);
}

TEST("slots that contradict themselves are damage, and nothing is read by them")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    uint32_t start = 0;
    struct shmq_snapshot_read e;
    struct shmq_slot *s, was;

    put_text(q, "a");
    while (shmq_state_of(shmq_word(&q->slots[start])) != SHMQ_READY)
        start++;
    s = &q->slots[start];
    was = *s;
    for (int what = 0; what < 4; what++) {
        uint32_t at = 0;

        *s = was;
        if (what == 0)
            s->block = q->geo.units + 1;
        if (what == 1)
            s->units = q->geo.units - s->block + 1;
        if (what == 2)
            s->body_bytes = s->units * SHMQ_UNIT + 1;
        if (what == 3)
            s->meta_bytes = UINT32_MAX;
        shmq_snapshot_read_begin(&e, 4, ROOM, INT32_MAX);
        CHECK_EQ(shmq_snapshot_read_slots(q, &e, &at, ALL), SHMQ_DAMAGED);
        CHECK_EQ(e.count, 0);
        free(e.picks);
    }
    *s = was;
}

TEST("a message that goes between the choice and the copy has no row, nor has its successor")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_snapshot_read e;
    uint32_t start = 0;

    for (int i = 0; i < 4; i++)
        put_bytes(q, 100);
    shmq_snapshot_read_begin(&e, 4, ROOM, INT32_MAX);
    CHECK_EQ(shmq_snapshot_read_slots(q, &e, &start, ALL), SHMQ_OK);
    CHECK_EQ(e.count, 4);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(shmq_ack(q, take_next(q).receipt, now), SHMQ_OK);
    put_bytes(q, 4000);
    put_bytes(q, 100);
    copy_into_block(q, &e);
    free(e.picks);
    CHECK_EQ(layout.count, 1);
    CHECK_EQ(seq_at(0), 4);
}

TEST("a run is read by its slots, and says what of it is gone")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    uint32_t slots[4];
    uint64_t seqs[4], at = 0, receipts[4];

    for (int i = 0; i < 4; i++)
        put_bytes(q, 10);
    for (int i = 0; i < 4; i++) {
        struct shmq_view view = take_next(q);

        slots[3 - i] = view.at;
        seqs[3 - i] = view.seq;
        receipts[3 - i] = view.receipt;
    }
    CHECK_EQ(read_run(q, slots, seqs, &at, 4), SHMQ_OK);
    CHECK_EQ(at, 4);
    for (uint32_t n = 0; n < 4; n++)
        CHECK_EQ(seq_at(n), 4 - n);
    CHECK_EQ(shmq_ack(q, receipts[2], now), SHMQ_OK);
    at = 0;
    CHECK_EQ(read_run(q, slots, seqs, &at, 4), SHMQ_STALE);
    CHECK_EQ(at, 2);
    CHECK(shmq_is_there(q, slots[1], seqs[1]));
    CHECK(!shmq_is_there(q, slots[2], seqs[2]));
    CHECK(!shmq_is_there(q, UINT32_MAX, 1));
    slots[3] = UINT32_MAX;
    at = 3;
    CHECK_EQ(read_run(q, slots, seqs, &at, 4), SHMQ_STALE);
}

/* ---- by number ---- */

static uint32_t find(struct shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at)
{
    uint64_t room = shmq_search_room(count);
    uint32_t *table = malloc(room * sizeof *table), found = 0;

    shmq_search(q, seqs, count, at, table, room);
    free(table);
    for (uint32_t i = 0; i < count; i++)
        found += at[i] != SHMQ_NIL;
    return found;
}

TEST("messages are found by their numbers, each once, wherever they stand")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);
    uint64_t seqs[] = {40, 3, 99, 3, 0, 17, UINT64_MAX};
    uint32_t at[7];

    for (int i = 0; i < 50; i++)
        put_text(q, "a");
    CHECK_EQ(find(q, seqs, 7, at), 3);
    CHECK_EQ(q->slots[at[0]].seq, 40);
    CHECK_EQ(q->slots[at[1]].seq, 3);
    CHECK_EQ(at[3], SHMQ_NIL);
    CHECK_EQ(q->slots[at[5]].seq, 17);
    CHECK_EQ(find(q, seqs, 0, at), 0);
}

TEST("a message is leased out of turn, for as long as was asked, and the rest keep theirs")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);
    uint64_t seqs[] = {30};
    uint32_t at[1];
    struct shmq_view view;

    for (int i = 0; i < 40; i++)
        put_text(q, "a");
    CHECK_EQ(find(q, seqs, 1, at), 1);
    CHECK_EQ(shmq_lease_at(q, at[0], 31, now, SECOND, &view), SHMQ_STALE);
    CHECK_EQ(shmq_lease_at(q, SHMQ_NIL, 30, now, SECOND, &view), SHMQ_STALE);
    CHECK_EQ(shmq_lease_at(q, at[0], 30, now, 100 * SECOND, &view), SHMQ_OK);
    CHECK_EQ(view.seq, 30);
    CHECK_EQ(view.deliveries, 1);
    CHECK_EQ(view.deadline, now + 100 * SECOND);
    CHECK_EQ(shmq_lease_at(q, at[0], 30, now, SECOND, &view), SHMQ_STALE);
    CHECK_WELL(q);
    now += 99 * SECOND;
    for (uint64_t seq = 1; seq <= 40; seq++)
        CHECK_EQ(next_seq(q), seq == 30 ? ++seq : seq);
    CHECK_EQ(next_seq(q), 0);
    now += 2 * SECOND;
    CHECK_EQ(next_seq(q), 30);
    CHECK_WELL(q);
}

TEST("a message whose ttl is over, or that is delayed, is not leased out of turn")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    uint64_t seqs[] = {1, 2};
    uint32_t at[2];
    struct shmq_view view;

    PUT(q, .ttl = SECOND);
    PUT(q, .delay = SECOND);
    CHECK_EQ(find(q, seqs, 2, at), 2);
    CHECK_EQ(shmq_lease_at(q, at[1], 2, now, SECOND, &view), SHMQ_STALE);
    now += SECOND;
    CHECK_EQ(shmq_lease_at(q, at[0], 1, now, SECOND, &view), SHMQ_STALE);
    CHECK_EQ(shmq_lease_at(q, at[1], 2, now, SECOND, &view), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("of a group, one is called to the front as long as none is in flight")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    uint64_t seqs[] = {1, 2, 3, 4, 5, 6};
    uint32_t at[6];
    struct shmq_view view;

    for (int i = 0; i < 6; i++)
        PUT(q, .group = 7, .priority = i == 4 ? 2 : 1);
    CHECK_EQ(find(q, seqs, 6, at), 6);
    CHECK_EQ(shmq_lease_at(q, at[3], 4, now, SECOND, &view), SHMQ_OK);
    CHECK_WELL(q);
    for (int i = 0; i < 6; i++) {
        struct shmq_view other;

        CHECK_EQ(shmq_lease_at(q, at[i], seqs[i], now, SECOND, &other), SHMQ_STALE);
    }
    CHECK_EQ(next_seq(q), 0);
    CHECK_EQ(shmq_nack(q, view.receipt, 5 * SECOND, now), SHMQ_OK);
    CHECK_EQ(shmq_lease_at(q, at[0], 1, now, SECOND, &view), SHMQ_STALE); /* it holds them back */
    CHECK_WELL(q);
    now += 5 * SECOND;
    CHECK_EQ(shmq_lease_at(q, at[0], 1, now, SECOND, &view), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(next_seq(q), 5);
    CHECK_WELL(q);
}

/* ---- beside others ---- */

#define PUTS 30000u
/* As many until the reader has seen a row: a busy machine may let it begin late. */
#define MOST_PUTS 5000000u
#define HELD 40u

struct beside {
    struct shmq_queue *q;
    _Atomic bool seen, over;
};

/* Bytes that tell the number of their message. */
static uint32_t size_of(uint64_t seq) { return (uint32_t)(seq * 7919 % 300); }
static unsigned char byte_of(uint64_t seq) { return (unsigned char)(seq * 31 + 7); }

static void lock(struct shmq_queue *q)
{
    int status = shmq_lock(q);

    while (status == SHMQ_BUSY)
        status = shmq_lock_slowly(q, SECOND);
    CHECK_EQ(status, SHMQ_OK);
}

static void unlock(struct shmq_queue *q)
{
    uint32_t post[2];

    shmq_unlock(q, post);
}

/* Returns a message with an error that has the same byte `n` throughout. */
static void fail(struct shmq_queue *q, uint64_t receipt, uint64_t n)
{
    unsigned char error[3 + 200] = {0xC5, 0, (unsigned char)(n % 200)};
    struct shmq_text text = {error, 3 + n % 200};

    memset(error + 3, (int)n, sizeof error - 3);
    CHECK_EQ(shmq_keep_error(q, receipt, text, shmq_now()), SHMQ_OK);
    CHECK_EQ(shmq_nack(q, receipt, 0, shmq_now()), SHMQ_OK);
}

/* Whether row `n` has no properties, or a whole error. */
static bool has_whole_error(uint32_t n)
{
    const int32_t *offsets = column(SHMQ_COLUMN_META_OFFSETS);
    const unsigned char *at = (const unsigned char *)column(SHMQ_COLUMN_METAS) + offsets[n];
    int32_t bytes = offsets[n + 1] - offsets[n], head = 7 + 3;
    bool whole = !bytes || (bytes >= head && bytes == head + at[9]);

    for (int32_t i = head; whole && i < bytes; i++)
        whole = at[i] == at[head];
    return whole;
}

/* Puts and takes, so that slots and blocks are used again and again. */
static void *churn(void *argument)
{
    struct beside *b = argument;
    unsigned char body[300];
    uint64_t receipts[HELD] = {0}, seq;
    struct shmq_view view;

    for (uint64_t n = 1; n <= PUTS || (!atomic_load(&b->seen) && n <= MOST_PUTS); n++) {
        struct shmq_put put = {.body = body, .body_bytes = size_of(n), .priority = n % 3};

        memset(body, byte_of(n), sizeof body);
        lock(b->q);
        CHECK_EQ(shmq_put(b->q, &put, shmq_now(), &seq), SHMQ_OK);
        CHECK_EQ(seq, n);
        if (receipts[n % HELD])
            CHECK_EQ(shmq_ack(b->q, receipts[n % HELD], shmq_now()), SHMQ_OK);
        receipts[n % HELD] = 0;
        if (n % 3 == 0 && shmq_lease(b->q, shmq_now(), true, &view) == SHMQ_OK)
            fail(b->q, view.receipt, n);
        if (n % 4 && shmq_lease(b->q, shmq_now(), true, &view) == SHMQ_OK)
            receipts[n % HELD] = view.receipt;
        while (n % 100 == 0 && shmq_lease(b->q, shmq_now(), true, &view) == SHMQ_OK)
            CHECK_EQ(shmq_ack(b->q, view.receipt, shmq_now()), SHMQ_OK);
        unlock(b->q);
    }
    atomic_store(&b->over, true);
    return NULL;
}

TEST("no row is torn while others put and take")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 256, .arena_bytes = 1 << 20);
    struct beside b = {.q = q};
    struct shmq_queue *reader = another_handle(q);
    pthread_t thread;
    uint64_t rows = 0, errors = 0;

    shmq_clock_set = 0;
    unlock(q);
    CHECK(!pthread_create(&thread, NULL, churn, &b));
    while (!atomic_load(&b.over)) {
        uint32_t count = read_all(reader);

        rows += count;
        atomic_store(&b.seen, rows > 0);
        for (uint32_t n = 0; n < count; n++) {
            const unsigned char *at;
            uint32_t bytes = bytes_of(n, &at);

            CHECK(has_whole_error(n));
            errors += ((const int32_t *)column(SHMQ_COLUMN_META_OFFSETS))[n + 1] > 0;
            CHECK_EQ(bytes, size_of(seq_at(n)));
            for (uint32_t i = 0; i < bytes; i++)
                CHECK_EQ(at[i], byte_of(seq_at(n)));
            CHECK_EQ(((const int32_t *)column(SHMQ_COLUMN_PRIORITY))[n], seq_at(n) % 3);
        }
    }
    CHECK(!pthread_join(thread, NULL));
    CHECK(rows > 0 && errors > 0);
    lock(q);
    CHECK_WELL(q);
}
