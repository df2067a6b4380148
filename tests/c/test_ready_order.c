/* The order: highest priority first, then lowest sequence number. */
#include "fixture.h"
#include "queue/index.h"

#include "queue/layout.h"
#include "queue/recover.h"

static void nack_at_once(struct shmq_queue *q, const struct shmq_view *view)
{
    CHECK_EQ(shmq_nack(q, view->receipt, 0, now), SHMQ_OK);
}

TEST("messages of one priority are served in the order of their puts")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);

    for (uint64_t seq = 1; seq <= 16; seq++)
        CHECK_EQ(put_bytes(q, 8), seq);
    for (uint64_t seq = 1; seq <= 16; seq++)
        CHECK_EQ(next_seq(q), seq);
    CHECK_EQ(next_seq(q), 0);
    CHECK_WELL(q);
}

TEST("a higher priority is served first, whenever it came")
{
    struct shmq_queue *q = NEW_QUEUE(.priorities = SHMQ_MAX_PRIORITIES);

    for (uint8_t round = 0; round < 2; round++)
        for (uint8_t priority = 0; priority < SHMQ_MAX_PRIORITIES; priority++)
            PUT(q, .priority = priority);
    CHECK_WELL(q);
    for (uint64_t priority = SHMQ_MAX_PRIORITIES; priority-- > 0;) {
        CHECK_EQ(next_seq(q), priority + 1);
        CHECK_EQ(next_seq(q), priority + 17);
    }
}

TEST("a message that was returned keeps its place")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_view first, second, third;

    for (int i = 0; i < 5; i++)
        put_bytes(q, 1);
    first = take_next(q);
    second = take_next(q);
    third = take_next(q);
    nack_at_once(q, &second);
    nack_at_once(q, &third);
    nack_at_once(q, &first);
    CHECK_WELL(q);
    for (uint64_t seq = 1; seq <= 5; seq++)
        CHECK_EQ(next_seq(q), seq);
}

TEST("a message of high priority that was returned comes before all that are lower")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_view high;

    PUT(q, .priority = 2);
    high = take_next(q);
    PUT(q, .priority = 1);
    PUT(q, .priority = 2);
    nack_at_once(q, &high);
    CHECK_EQ(next_seq(q), 1);
    CHECK_EQ(next_seq(q), 3);
    CHECK_EQ(next_seq(q), 2);
}

TEST("the oldest of all is found, whatever its priority and wherever it stands")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_view low;

    CHECK_EQ(shmq_order_oldest(q), SHMQ_NIL);
    PUT(q, .priority = 0);
    low = take_next(q);
    PUT(q, .priority = 1);
    PUT(q, .priority = 2);
    CHECK_EQ(q->slots[shmq_order_oldest(q)].seq, 2);
    nack_at_once(q, &low);
    CHECK_EQ(q->slots[shmq_order_oldest(q)].seq, 2 - 1);
    CHECK_EQ(q->slots[shmq_order_first(q)].seq, 3);
}

TEST("a message can be taken out from anywhere in the order")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_view views[3];

    for (int i = 0; i < 6; i++)
        put_bytes(q, 1);
    for (int i = 0; i < 3; i++)
        views[i] = take_next(q);
    for (int i = 2; i >= 0; i--)
        nack_at_once(q, &views[i]); /* three in the heap, three in the list */
    for (uint32_t at = 1; at < 6; at += 2) {
        struct shmq_view view;

        CHECK_EQ(shmq_take(q, at, q->slots[at].seq, &view), SHMQ_OK);
        CHECK_WELL(q);
    }
    CHECK_EQ(next_seq(q), 1);
    CHECK_EQ(next_seq(q), 3);
    CHECK_EQ(next_seq(q), 5);
    CHECK_EQ(next_seq(q), 0);
}

TEST("a slot that is not in the order is not removed but noticed as damage")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);

    put_bytes(q, 1);
    next_seq(q);
    shmq_order_remove(q, &q->slots[0]);
    CHECK(q->damaged);
    CHECK_EQ(shmq_ready(q->h), 0);
}

TEST("a queue that was filled in order is recovered without sorting")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64, .priorities = 2);

    for (uint8_t i = 0; i < 64; i++)
        PUT(q, .priority = i % 2);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(q->h->order_len, 0);
    for (uint64_t seq = 2; seq <= 64; seq += 2)
        CHECK_EQ(next_seq(q), seq);
    for (uint64_t seq = 1; seq <= 63; seq += 2)
        CHECK_EQ(next_seq(q), seq);
}

TEST("whichever slots the messages are in, recovery keeps their order")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);

    for (int i = 0; i < 16; i++)
        put_bytes(q, 8);
    for (uint64_t seq = 1; seq <= 100; seq++) {
        struct shmq_view first = take_next(q);

        CHECK_EQ(first.seq, seq);
        CHECK_EQ(shmq_ack(q, first.receipt, now), SHMQ_OK);
        CHECK_EQ(put_bytes(q, 8), seq + 16);
        CHECK_EQ(shmq_recover(q), SHMQ_OK);
        CHECK_WELL(q);
    }
    for (uint64_t seq = 101; seq <= 116; seq++)
        CHECK_EQ(next_seq(q), seq);
}
