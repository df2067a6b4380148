/* The ring of dedupe ids. */
#include "queue/index.h"
#include "fixture.h"
#include "queue/recover.h"

#define ID(n) ((const uint64_t[2]){(uint64_t)(n) * 0x9E3779B97F4A7C15ull, (uint64_t)(n)})

static int put_id(struct shmq_queue *q, uint64_t id, uint64_t *seq)
{
    return put_status(q, &(struct shmq_put){.dedupe = ID(id)}, seq);
}

static uint64_t first_put(struct shmq_queue *q, uint64_t id)
{
    uint64_t seq = 0;

    CHECK_EQ(put_id(q, id, &seq), SHMQ_OK);
    return seq;
}

static uint64_t duplicate(struct shmq_queue *q, uint64_t id)
{
    uint64_t seq = 0;

    CHECK_EQ(put_id(q, id, &seq), SHMQ_DUPLICATE);
    return seq;
}

TEST("the second put of an id is a duplicate, with the first one's sequence number")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND);

    put_bytes(q, 1);
    CHECK_EQ(first_put(q, 1), 2);
    CHECK_EQ(duplicate(q, 1), 2);
    CHECK_EQ(first_put(q, 2), 3);
    CHECK_EQ(drain(q), 3);
    CHECK_EQ(duplicate(q, 1), 2);
    CHECK_EQ(q->h->deduped, 2);
    CHECK_EQ(q->h->live, 0);
    CHECK_WELL(q);
}

TEST("an id is free again when its window has passed")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND);

    CHECK_EQ(first_put(q, 1), 1);
    now += SECOND - 1;
    CHECK_EQ(duplicate(q, 1), 1);
    now += 1;
    CHECK_EQ(first_put(q, 1), 2);
    now += SECOND - 1;
    CHECK_EQ(duplicate(q, 1), 2);
}

TEST("without a window an id means nothing, and touches nothing")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = 0);
    struct shmq_view view;
    uint64_t seq;

    for (int i = 0; i < 20; i++)
        CHECK_EQ(first_put(q, 1), i + 1);
    CHECK_EQ(shmq_reserve(q, 10, 0, now, ID(1), &view, &seq), SHMQ_OK);
    CHECK_EQ(shmq_fill(q, view.receipt, &(struct shmq_put){.body_bytes = 10, .dedupe = ID(1)}, now,
                       &seq),
             SHMQ_OK);
    CHECK_EQ(q->h->dedupe_size, 0);
    CHECK_WELL(q);
}

TEST("two ids that differ in one half are two ids")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND);
    uint64_t seq;

    CHECK_EQ(put_status(q, &(struct shmq_put){.dedupe = (uint64_t[]){8, 1}}, &seq), SHMQ_OK);
    CHECK_EQ(put_status(q, &(struct shmq_put){.dedupe = (uint64_t[]){8, 2}}, &seq), SHMQ_OK);
    CHECK_EQ(put_status(q, &(struct shmq_put){.dedupe = (uint64_t[]){9, 1}}, &seq), SHMQ_OK);
    CHECK_EQ(put_status(q, &(struct shmq_put){.dedupe = (uint64_t[]){8, 1}}, &seq), SHMQ_DUPLICATE);
    CHECK_EQ(seq, 1);
}

TEST("the ring grows to hold every id of its window")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND, .capacity = 64);

    for (uint64_t id = 1; id <= 3000; id++) {
        CHECK_EQ(first_put(q, id), id);
        CHECK_EQ(drain(q), 1);
    }
    CHECK_EQ(q->h->dedupe_size, 4096);
    for (uint64_t id = 1; id <= 3000; id++)
        CHECK_EQ(duplicate(q, id), id);
    CHECK_WELL(q);
}

TEST("the ring grows also when it has wrapped round, and keeps its size when ids expire")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = 50, .capacity = 4);

    for (uint64_t id = 1; id <= 100; id++) {
        now += 1; /* the ring holds 50 ids of 64, and comes round */
        first_put(q, id);
        CHECK_EQ(drain(q), 1);
    }
    CHECK_EQ(q->h->dedupe_size, 64);
    for (uint64_t id = 101; id <= 150; id++) {
        first_put(q, id);
        CHECK_EQ(drain(q), 1);
    }
    CHECK_EQ(q->h->dedupe_size, 128);
    for (uint64_t id = 52; id <= 150; id++)
        CHECK_EQ(duplicate(q, id), id);
    now += 51;
    CHECK_EQ(first_put(q, 150), 151);
    CHECK_EQ(q->h->dedupe_tail - q->h->dedupe_head, 1);
}

TEST("without memory for the ring a put is refused, and its id stays free")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND);
    uint64_t seq;

    put_bytes(q, 1);
    starve(q);
    CHECK_EQ(put_id(q, 1, &seq), SHMQ_NO_SPACE);
    feed(q);
    CHECK_EQ(put_id(q, 1, &seq), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("an id whose put was refused is not remembered")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND, .capacity = 1);
    uint64_t seq;

    first_put(q, 1);
    CHECK_EQ(put_id(q, 2, &seq), SHMQ_FULL);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(first_put(q, 2), 2);
}

TEST("of two that write under the same id, the second to finish is the duplicate")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND);
    struct shmq_put put = {.body_bytes = 10, .dedupe = ID(1)};
    struct shmq_view one, two;
    uint64_t seq;

    CHECK_EQ(shmq_reserve(q, 10, 0, now, ID(1), &one, &seq), SHMQ_OK);
    CHECK_EQ(shmq_reserve(q, 10, 0, now, ID(1), &two, &seq), SHMQ_OK);
    CHECK_EQ(shmq_fill(q, two.receipt, &put, now, &seq), SHMQ_OK);
    CHECK_EQ(shmq_fill(q, one.receipt, &put, now, &seq), SHMQ_DUPLICATE);
    CHECK_EQ(seq, 1);
    CHECK_EQ(q->h->live, 1);
    CHECK_WELL(q);
}

TEST("recovery keeps every id")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND, .capacity = 200);

    for (uint64_t id = 1; id <= 200; id++)
        first_put(q, id);
    for (uint32_t at = 0; at < q->h->dedupe_size; at++)
        q->dedupe_buckets[at] = 0xA5A5A5A5;
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    for (uint64_t id = 1; id <= 200; id++)
        CHECK_EQ(duplicate(q, id), id);
}

TEST("a death between a put's commit and its id's acceptance leaves the id taken")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND);

    first_put(q, 1);
    first_put(q, 2);
    q->h->dedupe_tail--; /* as if the put had died right after its commit */
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(duplicate(q, 2), 2);
    CHECK_EQ(duplicate(q, 1), 1);
}

TEST("a death before a put's commit leaves its id free")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND);

    first_put(q, 1);
    first_put(q, 2);
    q->h->dedupe_tail--;
    shmq_commit(&q->slots[1], 0); /* as if it had died right before */
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(first_put(q, 2), 3);
    CHECK_EQ(duplicate(q, 1), 1);
}

TEST("counters beyond 32 bits change nothing")
{
    struct shmq_queue *q = NEW_QUEUE(.dedupe_window = SECOND, .capacity = 300);

    q->h->dedupe_head = q->h->dedupe_tail = (1ull << 32) - 100;
    for (uint64_t id = 1; id <= 200; id++)
        first_put(q, id);
    for (uint64_t id = 1; id <= 200; id++)
        CHECK_EQ(duplicate(q, id), id);
    for (uint64_t id = 201; id <= 250; id++)
        CHECK_EQ(first_put(q, id), id);
}
