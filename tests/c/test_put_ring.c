/* The two sides of a queue: quick puts, the rings between, the spare slots. */
#include "queue/wait.h"
#include "queue/slot.h"
#include "queue/put_ring.h"
#include "fixture.h"
#include "queue/lock.h"
#include "queue/recover.h"

#include <string.h>

#define MIDDLE 1 /* of three priorities */

static int quick(struct shmq_queue *q, const struct shmq_put *put)
{
    struct shmq_put plain = *put;
    uint64_t seq;

    if (!plain.priority)
        plain.priority = q->middle;
    return shmq_quick_put(q, &plain, now, &seq);
}
#define QUICK(q, ...) quick(q, &(struct shmq_put){__VA_ARGS__})

static int quick_text(struct shmq_queue *q, const char *text)
{
    return QUICK(q, .body = text, .body_bytes = strlen(text));
}

static uint64_t put_middle(struct shmq_queue *q, uint64_t bytes)
{
    return PUT(q, .body_bytes = bytes, .priority = q->middle);
}

static void ack_next(struct shmq_queue *q)
{
    struct shmq_view view = take_next(q);

    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
}

/* What whoever takes both locks begins with. */
static void as_a_whole(struct shmq_queue *q)
{
    shmq_inbox_take(q, UINT32_MAX);
    CHECK_WELL(q);
}

static uint32_t spares(struct shmq_queue *q, uint32_t class)
{
    uint32_t count = 0;

    for (uint32_t at = q->h->spare[class]; at != SHMQ_NIL; at = q->slots[at].next)
        count++;
    return count;
}

static uint32_t in_the_ring(const struct shmq_queue *q)
{
    return q->h->returned_tail - q->h->returned_head;
}

/* A queue of as many slots, all of them made, free, and with a block of `bytes`. */
static struct shmq_queue *all_free(uint32_t capacity, uint64_t bytes)
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = capacity);

    for (uint32_t i = 0; i < capacity; i++)
        put_middle(q, bytes);
    CHECK_EQ(drain(q), capacity);
    CHECK_WELL(q);
    return q;
}

static void unlock(struct shmq_queue *q)
{
    uint32_t post[2];

    shmq_unlock(q, post);
}

/* ---- the two locks ---- */

TEST("a put and a get do not wait for each other's lock")
{
    struct shmq_queue *q = all_free(8, 10), *putter = another_handle(q);

    unlock(q);
    CHECK_EQ(shmq_lock_gets(q), SHMQ_OK);
    CHECK_EQ(shmq_lock_puts(putter), SHMQ_OK);
    CHECK_EQ(quick_text(putter, "a"), SHMQ_OK);
    CHECK(body_is(&(struct shmq_view[]){take_next(q)}[0], "a"));
    CHECK_EQ(quick_text(putter, "b"), SHMQ_OK);
    CHECK(!shmq_unlock_puts(putter));
    CHECK(body_is(&(struct shmq_view[]){take_next(q)}[0], "b"));
    unlock(q);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(q->h->leased, 2);
}

TEST("whoever takes both locks finds the inbox emptied")
{
    struct shmq_queue *q = all_free(8, 10);

    CHECK_EQ(quick_text(q, "a"), SHMQ_OK);
    CHECK_EQ(shmq_inbox_count(q->h), 1);
    CHECK_EQ(q->h->visible, 0);
    unlock(q);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_EQ(shmq_inbox_count(q->h), 0);
    CHECK_EQ(q->h->visible, 1);
    CHECK_WELL(q);
}

TEST("a put that somebody sleeps for says so when it lets go")
{
    struct shmq_queue *q = all_free(8, 10);

    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    unlock(q);
    CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
    CHECK_EQ(quick_text(q, "a"), SHMQ_OK);
    CHECK(shmq_unlock_puts(q));
    q->h->posted[SHMQ_NOT_EMPTY] = 1; /* who sleeps has been posted already */
    CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
    CHECK_EQ(quick_text(q, "b"), SHMQ_OK);
    CHECK(!shmq_unlock_puts(q));
}

TEST("the side of the puts is refused where the queue is deleted, damaged or to be rebuilt")
{
    struct shmq_queue *q = all_free(8, 10);

    unlock(q);
    atomic_store(&q->h->unsettled, 1);
    CHECK_EQ(shmq_lock_puts(q), SHMQ_BUSY);
    CHECK_EQ(shmq_lock_gets(q), SHMQ_OK); /* with both, so it could rebuild */
    CHECK_EQ(q->h->recoveries, 1);
    unlock(q);
    CHECK_EQ(shmq_lock_puts(q), SHMQ_OK);
    (void)shmq_unlock_puts(q);
    atomic_store(&q->h->state, SHMQ_GONE);
    CHECK_EQ(shmq_lock_puts(q), SHMQ_BUSY);
    atomic_store(&q->h->state, SHMQ_BROKEN);
    CHECK_EQ(shmq_lock_puts(q), SHMQ_BUSY);
}

/* ---- what a quick put refuses ---- */

static void refuse_quickly(struct shmq_queue *q, const struct shmq_put *put)
{
    struct shmq_header before = *q->h;
    uint64_t seq = 77;

    CHECK_EQ(shmq_quick_put(q, put, now, &seq), SHMQ_BUSY);
    CHECK_EQ(seq, 77);
    CHECK_EQ(q->h->last_seq, before.last_seq);
    CHECK_EQ(q->h->inbox_tail, before.inbox_tail);
    as_a_whole(q);
}

#define REFUSE(q, ...) refuse_quickly(q, &(struct shmq_put){__VA_ARGS__})

TEST("what needs more than a free slot is not a quick put")
{
    struct shmq_queue *q = all_free(8, 10);

    REFUSE(q, .body_bytes = 10, .priority = MIDDLE, .group = 5);
    REFUSE(q, .body_bytes = 10, .priority = MIDDLE, .delay = 1);
    REFUSE(q, .body_bytes = 10, .priority = MIDDLE, .dedupe = (uint64_t[]){1, 2});
    REFUSE(q, .body_bytes = 10, .priority = MIDDLE - 1);
    REFUSE(q, .body_bytes = 10, .priority = MIDDLE + 1);
    REFUSE(q, .priority = MIDDLE);                       /* needs no block              */
    REFUSE(q, .body_bytes = 65, .priority = MIDDLE);     /* of a class that none has    */
    REFUSE(q, .body_bytes = 65537, .priority = MIDDLE);  /* of no class: is never kept  */
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    CHECK_EQ(QUICK(q, .meta = "properties", .meta_bytes = 10), SHMQ_OK);
    as_a_whole(q);
}

TEST("a new queue has no free slot at hand; the first put of a size makes some ready")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);

    REFUSE(q, .body_bytes = 10, .priority = MIDDLE);
    put_middle(q, 10);
    CHECK_EQ(spares(q, 1), 31);
    for (int i = 0; i < 31; i++)
        CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    REFUSE(q, .body_bytes = 10, .priority = MIDDLE);
    CHECK_EQ(drain(q), 32);
}

TEST("a full inbox takes no more, until a get has taken of it")
{
    struct shmq_queue *q = all_free(200, 10);

    put_middle(q, 10); /* which fetches what the ring had no room for */
    CHECK_EQ(drain(q), 1);
    for (uint32_t i = 0; i < SHMQ_RING; i++)
        CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_BUSY);
    CHECK_EQ(shmq_inbox_count(q->h), SHMQ_RING);
    CHECK_EQ(take_next(q).seq, 202);
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    for (uint64_t seq = 203; seq <= 201 + SHMQ_RING + 1; seq++)
        CHECK_EQ(take_next(q).seq, seq);
    as_a_whole(q);
}

TEST("bodies, tails and properties of a quick put stand where a get looks for them")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);
    struct shmq_view view;

    put_middle(q, 22);
    CHECK_EQ(QUICK(q, .body = "records", .body_bytes = 12, .tail = "tail!", .tail_bytes = 5,
                   .meta = "properties", .meta_bytes = 10, .codec = 6),
             SHMQ_OK);
    (void)take_next(q);
    view = take_next(q);
    CHECK(body_is(&view, "recordstail!"));
    CHECK(view.meta_bytes == 10 && !memcmp(view.meta, "properties", 10));
    CHECK_EQ(view.codec, 6);
    CHECK_EQ(view.priority, MIDDLE);
    as_a_whole(q);
}

TEST("a quick put expires by its own ttl, or the queue's, whether or not it was in the order")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .policies[0].ttl = 5 * SECOND);

    put_middle(q, 10);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    CHECK_EQ(QUICK(q, .body_bytes = 10, .ttl = SECOND), SHMQ_OK);
    CHECK_EQ(QUICK(q, .body_bytes = 10, .ttl = -1), SHMQ_OK);
    now += 2 * SECOND;
    CHECK_EQ(next_seq(q), 2);
    CHECK_EQ(next_seq(q), 4);
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    now += 6 * SECOND;
    CHECK_EQ(next_seq(q), 0);
    as_a_whole(q);
    CHECK_EQ(q->h->dropped, 2);
}

/* ---- the order ---- */

TEST("the order is that of the puts, whichever way a message came")
{
    struct shmq_queue *q = all_free(40, 10);
    struct shmq_view first;
    uint64_t base = q->h->last_seq;

    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);             /* 1 */
    first = take_next(q);
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);             /* 2 */
    as_a_whole(q);
    put_middle(q, 10);                                         /* 3 */
    PUT(q, .body_bytes = 10, .priority = 2);                   /* 4 */
    PUT(q, .body_bytes = 10, .priority = 0);                   /* 5 */
    PUT(q, .body_bytes = 10, .priority = MIDDLE, .group = 9);  /* 6 */
    PUT(q, .body_bytes = 10, .priority = MIDDLE, .group = 9);  /* 7 */
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);             /* 8 */
    CHECK_EQ(shmq_nack(q, first.receipt, 0, now), SHMQ_OK);    /* 1, into the heap */
    CHECK_EQ(shmq_inbox_count(q->h), 1);
    CHECK_EQ(next_seq(q), base + 4);
    CHECK_EQ(next_seq(q), base + 1);
    CHECK_EQ(next_seq(q), base + 2);
    CHECK_EQ(next_seq(q), base + 3);
    ack_next(q);                                               /* 6: 7 is its group's next */
    CHECK_EQ(next_seq(q), base + 7);
    CHECK_EQ(next_seq(q), base + 8);
    CHECK_EQ(next_seq(q), base + 5);
    CHECK_EQ(next_seq(q), 0);
    as_a_whole(q);
}

TEST("a message that came back goes before what is in the inbox, though the order is empty")
{
    struct shmq_queue *q = all_free(8, 10);
    struct shmq_view view;

    CHECK_EQ(quick_text(q, "first"), SHMQ_OK);
    view = take_next(q);
    CHECK_EQ(quick_text(q, "second"), SHMQ_OK);
    CHECK_EQ(shmq_return(q, view.receipt, now), SHMQ_OK);
    view = take_next(q);
    CHECK(body_is(&view, "first"));
    view = take_next(q);
    CHECK(body_is(&view, "second"));
}

TEST("with one priority, two or sixteen the quick puts are those of the one without a word")
{
    for (uint32_t priorities = 1; priorities <= 16; priorities++) {
        struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .priorities = priorities);

        PUT(q, .body_bytes = 10, .priority = (uint8_t)(priorities / 2));
        for (uint32_t priority = 0; priority < priorities; priority++)
            CHECK_EQ(shmq_quick_put(
                         q, &(struct shmq_put){.body_bytes = 10, .priority = (uint8_t)priority},
                         now, &(uint64_t){0}),
                     priority == priorities / 2 ? SHMQ_OK : SHMQ_BUSY);
        as_a_whole(q);
        CHECK_EQ(drain(q), 2);
    }
}

/* ---- the rings ---- */

static void move_rings_to(struct shmq_queue *q, uint32_t counter)
{
    struct shmq_header *h = q->h;

    CHECK_EQ(shmq_rebuild(q), SHMQ_OK); /* both are empty */
    h->inbox_head = h->inbox_tail = h->inbox_seen = counter;
    h->returned_head = h->returned_tail = h->returned_seen = h->returned_out = counter;
    CHECK_WELL(q);
}

TEST("the rings go on when their counters begin at 0 again")
{
    struct shmq_queue *q = all_free(200, 10);
    uint64_t seq = 200;

    move_rings_to(q, UINT32_MAX - 300);
    for (int i = 0; i < 200; i++)
        put_middle(q, 10);
    seq += 200;
    CHECK_EQ(drain(q), 200);
    for (int round = 0; round < 30; round++) {
        uint32_t count = 1 + (uint32_t)round * 37 % SHMQ_RING;
        uint64_t there = 0;

        for (uint32_t i = 0; i < count; i++)
            there += QUICK(q, .body_bytes = 10) == SHMQ_OK;
        CHECK_EQ(shmq_inbox_count(q->h), there);
        CHECK(there > 0);
        while (there--) {
            struct shmq_view view = take_next(q);

            CHECK_EQ(view.seq, ++seq);
            CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
        }
        as_a_whole(q);
        put_middle(q, 10); /* where the spare ones are used up, it fetches more */
        ++seq;
        CHECK_EQ(drain(q), 1);
    }
    CHECK(q->h->inbox_tail < 1u << 31 && q->h->returned_tail < 1u << 31);
}

TEST("what is set free goes round: the puts have it again without the other lock")
{
    struct shmq_queue *q = all_free(40, 10);

    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 40; i++)
            CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
        CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_BUSY);
        CHECK_EQ(drain(q), 40);
    }
    as_a_whole(q);
}

TEST("it does so after the ring was emptied by one who had both locks, too")
{
    struct shmq_queue *q = all_free(40, 10);

    for (int round = 0; round < 10; round++) {
        shmq_collect_returned(q);
        CHECK_EQ(in_the_ring(q), 0);
        CHECK_EQ(spares(q, 1), 40);
        CHECK_WELL(q);
        for (int again = 0; again < 3; again++) {
            for (int i = 0; i < 40; i++)
                CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
            CHECK_EQ(drain(q), 40);
        }
    }
}

TEST("what the ring of returned slots has no room for waits on the side of the gets")
{
    struct shmq_queue *q = all_free(200, 10);
    uint32_t quickly = 0;

    CHECK_EQ(in_the_ring(q), SHMQ_RING);
    CHECK(q->h->free[1] != SHMQ_NIL);
    while (QUICK(q, .body_bytes = 10) == SHMQ_OK)
        quickly++;
    CHECK_EQ(quickly, SHMQ_RING);
    as_a_whole(q);
    for (uint32_t i = SHMQ_RING; i < 200; i++)
        put_middle(q, 10);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body_bytes = 10}, &(uint64_t){0}), SHMQ_FULL);
    CHECK_EQ(drain(q), 200);
    CHECK_WELL(q);
}

TEST("returned slots of other sizes are kept by size while one is looked for")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 12);
    static const uint64_t sizes[] = {10, 100, 200};

    for (int i = 0; i < 12; i++)
        put_middle(q, sizes[i % 3]);
    CHECK_EQ(drain(q), 12);
    CHECK_EQ(in_the_ring(q), 12);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(QUICK(q, .body_bytes = 200), SHMQ_OK);
    CHECK_EQ(QUICK(q, .body_bytes = 200), SHMQ_BUSY);
    CHECK_EQ(in_the_ring(q), 0);
    CHECK_EQ(spares(q, 1), 4);
    CHECK_EQ(spares(q, 2), 4);
    as_a_whole(q);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
        CHECK_EQ(QUICK(q, .body_bytes = 100), SHMQ_OK);
    }
    as_a_whole(q);
    CHECK_EQ(drain(q), 12);
    CHECK_WELL(q);
}

/* ---- full means full ---- */

TEST("spare slots keep no message out: a queue takes as many as its capacity, of any size")
{
    for (uint32_t capacity = 1; capacity < 70; capacity += capacity < 4 ? 1 : 13) {
        struct shmq_queue *q = NEW_QUEUE(.capacity = capacity);

        for (int round = 0; round < 4; round++) {
            for (uint32_t i = 0; i < capacity; i++)
                if (QUICK(q, .body_bytes = 1 + 64 * (i % 5)) != SHMQ_OK) {
                    as_a_whole(q);
                    put_middle(q, 1 + 64 * (i % 5));
                }
            as_a_whole(q);
            CHECK_EQ(put_status(q, &(struct shmq_put){.body_bytes = 1}, &(uint64_t){0}), SHMQ_FULL);
            CHECK_EQ(QUICK(q, .body_bytes = 1), SHMQ_BUSY);
            CHECK_EQ(drain(q), capacity);
        }
        CHECK_WELL(q);
    }
}

TEST("a message without a body has room though every free slot keeps a block")
{
    struct shmq_queue *q = all_free(4, 10);

    for (int i = 0; i < 4; i++)
        put_middle(q, 0);
    CHECK_EQ(put_status(q, &(struct shmq_put){0}, &(uint64_t){0}), SHMQ_FULL);
    CHECK_WELL(q);
}

TEST("blocks that wait for puts are given up to a message that fills the arena")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64, .arena_bytes = 64 * 64);

    put_middle(q, 64);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(spares(q, 1) + in_the_ring(q), 32);
    put_middle(q, 64 * 64);
    CHECK_WELL(q);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body_bytes = 1}, &(uint64_t){0}), SHMQ_FULL);
    CHECK_EQ(drain(q), 1);
    for (int i = 0; i < 64; i++)
        put_middle(q, 64);
    CHECK_WELL(q);
    CHECK_EQ(drain(q), 64);
}

TEST("a queue that drops its oldest drops of the inbox, too, and only to make room")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .policies[0].overflow = SHMQ_DROP_OLDEST);

    put_middle(q, 10);
    while (QUICK(q, .body_bytes = 10) == SHMQ_OK)
        ;
    CHECK_EQ(q->h->last_seq, 4);
    CHECK_EQ(q->h->dropped, 0);
    for (uint64_t i = 0; i < 10; i++) {
        as_a_whole(q);
        put_middle(q, i % 2 ? 10 : 100);
        CHECK_EQ(q->h->dropped, i + 1);
    }
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 11);
}

TEST("a purge takes the inbox and the spare slots with it")
{
    struct shmq_queue *q = all_free(100, 500);
    uint64_t removed;

    for (int i = 0; i < 50; i++)
        CHECK_EQ(QUICK(q, .body_bytes = 500), SHMQ_OK);
    as_a_whole(q);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 50);
    CHECK_EQ(q->h->slots_made + q->h->units_used + q->h->units_cached, 0);
    CHECK_WELL(q);
    CHECK_EQ(QUICK(q, .body_bytes = 500), SHMQ_BUSY);
    put_middle(q, 500);
    CHECK_EQ(QUICK(q, .body_bytes = 500), SHMQ_OK);
    as_a_whole(q);
}

TEST("stocked slots take no memory that the queue did not have")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 5000, .arena_bytes = 64 << 20);
    uint32_t backed;

    put_middle(q, 60000);
    backed = q->h->units_backed;
    CHECK(q->h->units_used <= backed);
    starve(q);
    while (QUICK(q, .body_bytes = 60000) == SHMQ_OK)
        ;
    CHECK_EQ(q->h->units_backed, backed);
    CHECK_EQ(put_status(q, &(struct shmq_put){.body_bytes = 60000}, &(uint64_t){0}), SHMQ_NO_SPACE);
    feed(q);
    as_a_whole(q);
}

/* ---- what the check notices ---- */

/* Free slots in the ring, as spares and on the side of the gets. */
static struct shmq_queue *with_free_slots_everywhere(void)
{
    struct shmq_queue *q = all_free(200, 10);

    shmq_collect_returned(q);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    CHECK_EQ(drain(q), 20);
    CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
    as_a_whole(q);
    CHECK(in_the_ring(q) > 2 && spares(q, 1) > 2 && q->h->free[1] != SHMQ_NIL);
    return q;
}

static void lose_a_spare(struct shmq_queue *q) { q->h->spare[1] = q->slots[q->h->spare[1]].next; }

static void ring_of_spares(struct shmq_queue *q)
{
    uint32_t first = q->h->spare[1];

    q->slots[q->slots[first].next].next = first;
}

static void spare_in_another_list(struct shmq_queue *q)
{
    q->h->spare[2] = q->h->spare[1];
    q->h->spare[1] = SHMQ_NIL;
}

static void spare_of_no_slot(struct shmq_queue *q) { q->h->spare[3] = 12345; }

static void live_spare(struct shmq_queue *q)
{
    shmq_commit(&q->slots[q->h->spare[1]], shmq_make_word(SHMQ_READY, 0, 0, 0));
}

static void lose_a_returned_one(struct shmq_queue *q) { q->h->returned_head++; }

static void return_one_twice(struct shmq_queue *q)
{
    uint32_t head = q->h->returned_head;

    q->h->returned[(head + 1) % SHMQ_RING] = q->h->returned[head % SHMQ_RING];
}

static void return_a_spare(struct shmq_queue *q)
{
    q->h->returned[q->h->returned_head % SHMQ_RING] = 1u << 24 | q->h->spare[1];
}

static void returned_as_another_class(struct shmq_queue *q)
{
    q->h->returned[q->h->returned_head % SHMQ_RING] += 1u << 24;
}

static void return_no_slot(struct shmq_queue *q)
{
    q->h->returned[q->h->returned_head % SHMQ_RING] = 1u << 24 | 5555;
}

static void too_long_a_ring(struct shmq_queue *q)
{
    q->h->returned_tail = q->h->returned_head + SHMQ_RING + 1;
}

static void something_in_the_inbox(struct shmq_queue *q) { q->h->inbox_tail++; }

static void inbox_ahead(struct shmq_queue *q) { q->h->inbox_seen = q->h->inbox_head + 1; }

static void returned_ahead(struct shmq_queue *q) { q->h->returned_seen = q->h->returned_tail + 1; }

static void returned_behind(struct shmq_queue *q) { q->h->returned_seen = q->h->returned_head - 1; }

static void out_ahead(struct shmq_queue *q) { q->h->returned_out = q->h->returned_head + 1; }

TEST("the check notices each kind of damage to the rings and the spare slots")
{
    static void (*const kinds[])(struct shmq_queue *) = {
        lose_a_spare,     ring_of_spares,  spare_in_another_list,
        spare_of_no_slot, live_spare,      lose_a_returned_one,
        return_one_twice, return_a_spare,  returned_as_another_class,
        return_no_slot,   too_long_a_ring, something_in_the_inbox,
        inbox_ahead,      returned_ahead,  returned_behind,
        out_ahead,
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct shmq_queue *q = with_free_slots_everywhere();

        kinds[i](q);
        if (!shmq_check(q))
            test_differs(__FILE__, __LINE__, "unnoticed: kind", (int64_t)i, -1);
        release_everything();
    }
}

/* ---- what damage leads to ---- */

TEST("a hostile inbox enters no message twice, none that is free, none out of bounds")
{
    static const uint32_t hostile[] = {0, 3, 7, 4000, 1u << 24, UINT32_MAX};

    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct shmq_queue *q = all_free(8, 10);
        struct shmq_view view;

        CHECK_EQ(QUICK(q, .body_bytes = 10), SHMQ_OK);
        as_a_whole(q);
        q->h->inbox[q->h->inbox_tail % SHMQ_RING] = hostile[i];
        q->h->inbox_tail++;
        (void)take_next(q); /* of the order */
        CHECK_EQ(shmq_lease(q, now, true, &view), SHMQ_DAMAGED);
        CHECK_EQ(shmq_rebuild(q), SHMQ_OK);
        CHECK_WELL(q);
        release_everything();
    }
}

TEST("a quick put is led nowhere by hostile counters, entries, lists and marks")
{
    static const uint32_t hostile[] = {
        0, 1, 7, 8, 200, 4000, (1u << 24) - 1, 1u << 24, 1u << 31, UINT32_MAX - 1, UINT32_MAX};

    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        for (int where = 0; where < 9; where++) {
            struct shmq_queue *q = all_free(8, 10);
            struct shmq_header *h = q->h;
            struct shmq_view view;

            if (where >= 7) /* nor does a mark let it out */
                h->slots_made = UINT32_MAX;
            if (where == 0 || where == 7)
                h->spare[1] = hostile[i], h->returned_tail = h->returned_seen = h->returned_head;
            if (where == 1 || where == 8)
                for (uint32_t at = 0; at < SHMQ_RING; at++)
                    h->returned[at] = 1u << 24 | hostile[i];
            if (where == 2)
                h->returned_seen = h->returned_tail = hostile[i];
            if (where == 3)
                h->returned_head = hostile[i];
            if (where == 4)
                h->inbox_seen = hostile[i];
            if (where == 5)
                h->inbox_tail = hostile[i];
            if (where == 6)
                q->slots[h->returned[h->returned_head % SHMQ_RING] & SHMQ_RECEIPT_SLOT].block =
                    hostile[i];
            for (int n = 0; n < 300; n++)
                (void)QUICK(q, .body = "0123456789", .body_bytes = 10);
            if (where < 7)
                (void)shmq_lease(q, now, true, &view);
            release_everything();
        }
}
