/* The lock: taken, refused, and inherited from a process that died inside. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "queue/put_ring.h"
#include "fixture.h"
#include "queue/lock.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void unlock(struct shmq_queue *q)
{
    uint32_t post[2];

    shmq_unlock(q, post);
}

/* Runs `action` in a process of its own that holds what `lock` takes and is killed inside. */
static void die_holding(struct shmq_queue *q, int (*lock)(struct shmq_queue *),
                        void (*action)(struct shmq_queue *))
{
    pid_t child = fork();
    int how;

    CHECK(child >= 0);
    if (!child) {
        if (lock(q) != SHMQ_OK)
            _exit(1);
        action(q);
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

static void die_inside(struct shmq_queue *q, void (*action)(struct shmq_queue *))
{
    die_holding(q, shmq_lock, action);
}

static void do_nothing(struct shmq_queue *q) { (void)q; }

/* ---- without a death ---- */

static void *try_lock(void *handle)
{
    struct shmq_queue *q = handle;
    int64_t start = shmq_read_clock(CLOCK_MONOTONIC);

    CHECK_EQ(shmq_lock(q), SHMQ_BUSY);
    CHECK_EQ(shmq_lock_slowly(q, 0), SHMQ_BUSY);
    CHECK_EQ(shmq_lock_slowly(q, 1000000), SHMQ_BUSY);
    CHECK_EQ(shmq_lock_even_deleted(q, 1000000), SHMQ_BUSY);
    CHECK(shmq_read_clock(CLOCK_MONOTONIC) - start >= 2000000);
    return NULL;
}

TEST("a lock that another holds is busy, and waiting for it ends with its time")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    pthread_t thread;

    CHECK(!pthread_create(&thread, NULL, try_lock, bare_handle(q)));
    CHECK(!pthread_join(thread, NULL));
    unlock(q);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    unlock(q);
    CHECK_EQ(shmq_lock_slowly(q, 0), SHMQ_OK);
}

static void *keep_damage(void *handle)
{
    struct shmq_queue *q = handle;

    q->damaged = true;
    CHECK_EQ(shmq_lock_slowly(q, 0), SHMQ_BUSY);
    CHECK(q->damaged);
    return NULL;
}

TEST("who does not get the lock leaves the handle as it is for the one who has it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    pthread_t thread;

    CHECK(!pthread_create(&thread, NULL, keep_damage, bare_handle(q)));
    CHECK(!pthread_join(thread, NULL));
}

TEST("a deleted queue's lock is refused, and had only by those who leave")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    atomic_store(&q->h->state, SHMQ_GONE);
    unlock(q);
    CHECK_EQ(shmq_lock(q), SHMQ_DELETED);
    CHECK_EQ(shmq_lock_slowly(q, 0), SHMQ_DELETED);
    CHECK_EQ(shmq_lock_even_deleted(q, 0), SHMQ_OK);
}

/* ---- after a death inside ---- */

TEST("a death inside is recovered from, once, and counted")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    put_text(q, "a");
    unlock(q);
    die_inside(q, do_nothing);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    CHECK_EQ(q->h->recoveries, 1);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 1);
    unlock(q);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_EQ(q->h->recoveries, 1);
}

static void acknowledge(struct shmq_queue *q)
{
    CHECK_EQ(shmq_mark_acked(q, shmq_receipt_of(shmq_word(&q->slots[0]), 0), now), SHMQ_OK);
}

TEST("what was acknowledged before a death inside does not come back, nor does a view of it end")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    for (int viewed = 0; viewed < 2; viewed++) {
        put_text(q, "a");
        view = take_next(q);
        if (viewed)
            CHECK_EQ(shmq_pin(q, view.receipt, now, &view), SHMQ_OK);
        unlock(q);
        die_inside(q, acknowledge);
        CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
        CHECK_WELL(q);
        CHECK_EQ(next_seq(q), 0);
        CHECK_EQ(q->h->live, viewed);
    }
    CHECK(body_is(&view, "a"));
}

TEST("whoever waits in the kernel for the lock recovers, too")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    unlock(q);
    die_inside(q, do_nothing);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    unlock(q);
    die_inside(q, do_nothing);
    CHECK_EQ(shmq_lock_even_deleted(q, SECOND), SHMQ_OK);
    CHECK_EQ(q->h->recoveries, 2);
}

static void fill_with(void *at, unsigned char byte, uint64_t size) { memset(at, byte, size); }

/* Overwrites all that is derived, and nothing that is not. */
static void ruin_indexes(struct shmq_queue *q, unsigned char byte)
{
    struct shmq_header *h = q->h;
    uint64_t backed = h->slots_backed;

    for (uint32_t at = 0; at < h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];

        s->next = s->prev = s->child = byte * 0x1010101u;
        s->group_at = s->timer_pos = s->order_pos = byte * 0x1010101u;
        s->lane = (uint8_t)(s->lane & 0xF) | (uint8_t)(byte & 0xF0);
    }
    atomic_store(&h->ready, byte);
    h->visible = h->live = h->delayed = h->leased = h->dead = h->staged = byte;
    h->fifo_mask = h->order_len = h->timer_len = h->groups_made = h->groups = h->group_free = byte;
    h->units_used = h->units_cached = h->units_hint = byte;
    h->next_tick = byte * 0x10101010101ll;
    fill_with(h->fifo, byte, sizeof h->fifo);
    fill_with(h->free, byte, sizeof h->free);
    fill_with(&h->leases, byte, sizeof h->leases);
    fill_with(&h->dying, byte, sizeof h->dying);
    fill_with(h->asleep, byte, sizeof h->asleep);
    fill_with(h->spare, byte, sizeof h->spare);
    fill_with(h->inbox, byte, sizeof h->inbox);
    fill_with(h->returned, byte, sizeof h->returned);
    h->inbox_head = h->inbox_seen = h->returned_tail = h->returned_seen = byte;
    h->inbox_tail = h->returned_head = h->returned_out = byte * 7u;
    fill_with(q->timer_keys, byte, backed * 8);
    fill_with(q->timer_slots, byte, backed * 4);
    fill_with(q->order_keys, byte, backed * 8);
    fill_with(q->order_slots, byte, backed * 4);
    fill_with(q->groups, byte, h->groups_backed * sizeof(struct shmq_group));
    fill_with(q->group_buckets, byte, q->geo.group_buckets_max * 4ull);
    fill_with(q->dedupe_buckets, byte, h->dedupe_size * 4ull);
    fill_with(q->bitmap, byte, (h->units_backed + 7ull) / 8);
    for (uint32_t at = 0; at < h->attachments_made; at++)
        q->attachments[at].leases = byte;
}

static void ruin_with_ones(struct shmq_queue *q) { ruin_indexes(q, 0xFF); }
static void ruin_with_zeros(struct shmq_queue *q) { ruin_indexes(q, 0); }
static void ruin_with_small(struct shmq_queue *q) { ruin_indexes(q, 3); }
static void ruin_with_noise(struct shmq_queue *q) { ruin_indexes(q, 0xA5); }

/* A message in every state, some of them in groups; what is to be served afterwards. */
static void populate(struct shmq_queue *q, struct shmq_view *leased, struct shmq_view *filling)
{
    struct shmq_view view;
    uint64_t seq;

    PUT(q, .body = "1", .body_bytes = 1, .group = 5);
    *leased = take_next(q);
    PUT(q, .body = "2", .body_bytes = 1, .group = 5, .priority = 1);
    PUT(q, .body = "3", .body_bytes = 1, .group = 5, .priority = 2);
    PUT(q, .body = "4", .body_bytes = 1, .delay = SECOND);
    PUT(q, .body = "5", .body_bytes = 1, .ttl = 2 * SECOND);
    PUT(q, .body = "6", .body_bytes = 1, .priority = 2, .dedupe = (uint64_t[]){1, 2});
    view = take_next(q);
    CHECK_EQ(view.seq, 6);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    PUT(q, .body = "7", .body_bytes = 1, .group = 6, .priority = 2);
    PUT(q, .body = "8", .body_bytes = 1, .group = 6);
    view = take_next(q);
    view = take_next(q);
    CHECK_EQ(view.seq, 7);
    CHECK_EQ(shmq_nack(q, view.receipt, SECOND, now), SHMQ_OK);
    CHECK_EQ(shmq_reserve(q, 700, 0, now, NULL, filling, &seq), SHMQ_OK);
    PUT(q, .body = "9", .body_bytes = 1, .priority = 2);
    view = take_next(q);
    CHECK_EQ(view.seq, 9);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    put_bytes(q, 5000);
}

static void recover_from(void (*ruin)(struct shmq_queue *))
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 20, .dead_letters = 1, .dedupe_window = SECOND);
    struct shmq_view leased, filling, view;
    uint64_t seq;

    populate(q, &leased, &filling);
    CHECK_WELL(q);
    unlock(q);
    die_inside(q, ruin);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    CHECK_EQ(q->h->recoveries, 1);
    CHECK_WELL(q);
    CHECK_EQ(put_status(q, &(struct shmq_put){.dedupe = (uint64_t[]){1, 2}}, &seq), SHMQ_DUPLICATE);
    CHECK_EQ(seq, 6);
    view = take_next(q);
    CHECK(view.seq == 5 && body_is(&view, "5")); /* 2, 3 and 8 are behind what is in flight */
    CHECK_EQ(shmq_ack(q, leased.receipt, now), SHMQ_OK);
    view = take_next(q);
    CHECK(view.seq == 3 && body_is(&view, "3"));
    CHECK_EQ(shmq_fill(q, filling.receipt, &(struct shmq_put){.body_bytes = 700}, now, &seq),
             SHMQ_OK);
    CHECK_EQ(shmq_take_dead(q, &view), SHMQ_OK);
    CHECK(view.seq == 9 && body_is(&view, "9"));
    now += SECOND;
    view = take_next(q);
    CHECK(view.seq == 7 && view.deliveries == 2);
    CHECK_WELL(q);
}

TEST("all that is derived is rebuilt from the slots, whatever a dying process left of it")
{
    recover_from(do_nothing);
    recover_from(ruin_with_ones);
    recover_from(ruin_with_zeros);
    recover_from(ruin_with_small);
    recover_from(ruin_with_noise);
}

/* Dies as one that was about to recover: with the lock, before it has recorded anything. */
static void die_recovering(struct shmq_queue *q, unsigned char byte)
{
    pid_t child = fork();
    int how;

    CHECK(child >= 0);
    if (!child) {
        if (shmq_mutex_take(&q->h->lock, q->self, SECOND) != SHMQ_INHERITED)
            _exit(1);
        ruin_indexes(q, byte);
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how));
}

TEST("a death during the recovery is recovered from, too")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 20, .dead_letters = 1, .dedupe_window = SECOND);
    struct shmq_view leased, filling;

    populate(q, &leased, &filling);
    unlock(q);
    die_inside(q, do_nothing);
    die_recovering(q, 0x5A);
    die_recovering(q, 0);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 5);
}

/* ---- a death on one side ---- */

/* Five free slots with blocks, and nothing else. */
static struct shmq_queue *five_free(void)
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 5);

    for (int i = 0; i < 5; i++)
        PUT(q, .body_bytes = 10, .priority = 1);
    CHECK_EQ(drain(q), 5);
    unlock(q);
    return q;
}

static int put_quickly(struct shmq_queue *q, const char *text)
{
    uint64_t seq;
    struct shmq_put put = {.body = text, .body_bytes = strlen(text), .priority = 1};

    return shmq_quick_put(q, &put, now, &seq);
}

static void put_inside(struct shmq_queue *q) { CHECK_EQ(put_quickly(q, "inside"), SHMQ_OK); }

/* All of a quick put but its entry in the inbox. */
static void put_and_not_enter(struct shmq_queue *q)
{
    put_inside(q);
    q->h->inbox_tail--;
}

/* A slot was taken, and written to, and not committed. */
static void take_and_not_put(struct shmq_queue *q)
{
    uint32_t at = q->h->returned[q->h->returned_head % SHMQ_RING] & SHMQ_RECEIPT_SLOT;

    q->h->returned_head++;
    q->slots[at].body_bytes = q->slots[at].meta_bytes = 60;
    q->h->last_seq++;
}

static void ruin_the_side_of_the_puts(struct shmq_queue *q)
{
    fill_with(q->h->spare, 0xA5, sizeof q->h->spare);
    fill_with(q->h->inbox, 0xA5, sizeof q->h->inbox);
    q->h->inbox_tail += 77;
    q->h->returned_head += 99;
    q->h->inbox_seen = q->h->returned_seen = 12345;
}

static void die_putting(void (*action)(struct shmq_queue *), const char *survives)
{
    struct shmq_queue *q = five_free();
    struct shmq_view view;

    CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
    CHECK_EQ(put_quickly(q, "before"), SHMQ_OK);
    CHECK(!shmq_unlock_puts(q));
    die_holding(q, shmq_lock_puts, action);
    CHECK_EQ(shmq_lock_puts(q), SHMQ_BUSY);
    CHECK_EQ(q->h->recoveries, 0);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK); /* which finds the death */
    CHECK_EQ(q->h->recoveries, 1);
    CHECK_WELL(q);
    view = take_next(q);
    CHECK(body_is(&view, "before"));
    if (survives) {
        view = take_next(q);
        CHECK(body_is(&view, survives));
    }
    CHECK_EQ(next_seq(q), 0);
    PUT(q, .body_bytes = 10, .priority = 1);
    unlock(q);
    CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
    (void)shmq_unlock_puts(q);
}

TEST("a death with the lock of the puts is found by the next put, and recovered from")
{
    die_putting(do_nothing, NULL);
    die_putting(put_inside, "inside");
    die_putting(put_and_not_enter, "inside");
    die_putting(take_and_not_put, NULL);
}

TEST("gets go on beside a dead put, until one of them wants to know for sure")
{
    struct shmq_queue *q = five_free();
    struct shmq_view view;

    CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
    CHECK_EQ(put_quickly(q, "before"), SHMQ_OK);
    CHECK(!shmq_unlock_puts(q));
    die_holding(q, shmq_lock_puts, put_and_not_enter);
    CHECK_EQ(shmq_lock_gets(q), SHMQ_OK);
    view = take_next(q);
    CHECK(body_is(&view, "before"));
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_lease(q, now, true, &view), SHMQ_EMPTY);
    unlock(q);
    CHECK_EQ(q->h->recoveries, 0);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    CHECK_EQ(q->h->recoveries, 1);
    view = take_next(q);
    CHECK(body_is(&view, "inside"));
    CHECK_WELL(q);
}

TEST("puts go on beside a dead get, and what they put is there after the recovery")
{
    struct shmq_queue *q = five_free();
    struct shmq_view view;

    die_holding(q, shmq_lock_gets, do_nothing);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
        CHECK_EQ(put_quickly(q, i ? "more" : "first"), SHMQ_OK);
        CHECK(!shmq_unlock_puts(q));
    }
    CHECK_EQ(shmq_lock_gets(q), SHMQ_BUSY);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    CHECK_EQ(q->h->recoveries, 1);
    CHECK_WELL(q);
    view = take_next(q);
    CHECK(body_is(&view, "first"));
    CHECK_EQ(drain(q), 2);
}

TEST("whatever a dying put leaves of the rings and the spare slots is rebuilt")
{
    struct shmq_queue *q = five_free();
    struct shmq_view view;

    CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
    CHECK_EQ(put_quickly(q, "before"), SHMQ_OK);
    CHECK(!shmq_unlock_puts(q));
    die_holding(q, shmq_lock_puts, ruin_the_side_of_the_puts);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    CHECK_WELL(q);
    view = take_next(q);
    CHECK(body_is(&view, "before"));
    CHECK_EQ(next_seq(q), 0);
}

TEST("deaths with either lock, both unnoticed, are one recovery")
{
    struct shmq_queue *q = five_free();

    die_holding(q, shmq_lock_puts, put_inside);
    die_holding(q, shmq_lock_gets, do_nothing);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_OK);
    CHECK_EQ(q->h->recoveries, 1);
    CHECK_WELL(q);
    CHECK_EQ(drain(q), 1);
}

static void spoil_a_mark(struct shmq_queue *q) { q->h->slots_made = UINT32_MAX; }

static void share_a_block(struct shmq_queue *q) { q->slots[1].block = q->slots[0].block; }

static void spoil_a_state(struct shmq_queue *q) { shmq_commit(&q->slots[0], 0xF); }

static void refuse_for_ever(void (*action)(struct shmq_queue *))
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 20);

    put_bytes(q, 100);
    put_bytes(q, 100);
    unlock(q);
    die_inside(q, action);
    CHECK_EQ(shmq_lock_slowly(q, SECOND), SHMQ_DAMAGED);
    CHECK_EQ(shmq_lock(q), SHMQ_DAMAGED);
    CHECK_EQ(shmq_lock_even_deleted(q, 0), SHMQ_DAMAGED);
}

TEST("a segment whose slots contradict each other is damaged, for everyone and for ever")
{
    refuse_for_ever(spoil_a_mark);
    refuse_for_ever(share_a_block);
    refuse_for_ever(spoil_a_state);
}
