/* Altering the sizes of a queue that is in use. Altering its other options: test_segment.c. */
#include "fixture.h"
#include "queue/alter.h"
#include "queue/lock.h"
#include "queue/segment.h"
#include "queue/slot.h"
#include "queue/wait.h"

#include <stdlib.h>
#include <string.h>

static int resize(struct shmq_queue *q, uint32_t capacity, uint64_t arena_bytes)
{
    struct shmq_policies policies = *shmq_policies_now(q->h);

    policies.capacity = capacity ? capacity : policies.capacity;
    policies.arena_bytes = arena_bytes ? arena_bytes : policies.arena_bytes;
    return shmq_alter(q, &policies, q->h->alterations);
}

/* Resizing does this, and changes nothing. */
static void reject(struct shmq_queue *q, int status, uint32_t capacity, uint64_t arena_bytes)
{
    struct shmq_options before = q->h->options;
    uint32_t alterations = q->h->alterations;

    CHECK_EQ(resize(q, capacity, arena_bytes), status);
    CHECK_EQ(q->h->alterations, alterations);
    CHECK(!memcmp(&before, &q->h->options, sizeof before));
    CHECK_WELL(q);
}

static int put_one(struct shmq_queue *q, uint64_t bytes)
{
    struct shmq_put put = {.body_bytes = bytes};
    uint64_t seq;

    return shmq_fits(q, bytes, 0) ? SHMQ_TOO_LARGE : put_status(q, &put, &seq);
}

static uint32_t fill(struct shmq_queue *q, uint64_t bytes)
{
    uint32_t count = 0;

    while (put_one(q, bytes) == SHMQ_OK)
        count++;
    return count;
}

TEST("a full queue takes more messages once it has grown, through every handle")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = another_handle(q);

    CHECK_EQ(fill(q, 10), 4);
    CHECK(!shmq_looks_roomy(other, 1));
    CHECK_EQ(resize(q, 40, 0), SHMQ_OK);
    CHECK(shmq_looks_roomy(other, 36) && !shmq_looks_roomy(other, 37));
    CHECK_EQ(fill(other, 10), 36);
    CHECK_WELL(other);
    for (uint64_t seq = 1; seq <= 40; seq++)
        CHECK_EQ(next_seq(q), seq);
    CHECK_WELL(q);
}

TEST("a body in the new part of the arena is read by a handle from before, whole")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 20), *before = another_handle(q);
    char text[64 * 30];
    struct shmq_policies policies;
    struct shmq_view view;

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    CHECK_EQ(put_one(q, sizeof text - 1), SHMQ_TOO_LARGE);
    CHECK_EQ(fill(q, 64), 20);
    CHECK_EQ(put_one(q, 1), SHMQ_FULL);
    policies = *shmq_policies_now(q->h);
    policies.arena_bytes = 64 * 64;
    policies.max_message_bytes = sizeof text;
    CHECK_EQ(shmq_alter(q, &policies, 0), SHMQ_OK);
    put_text(q, text);
    for (int i = 0; i < 20; i++)
        (void)take_next(before);
    view = take_next(before);
    CHECK(body_is(&view, text));
    CHECK_EQ(shmq_arena_largest(before), 64 - 20 - shmq_units_for(q, sizeof text - 1));
}

TEST("a queue cannot outgrow what its segment is laid out for")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .arena_bytes = 64 * 10);
    struct shmq_policies policies = *shmq_policies_now(q->h);

    reject(q, SHMQ_TOO_LARGE, 4 * SHMQ_GROWTH + 1, 0);
    reject(q, SHMQ_TOO_LARGE, UINT32_MAX, 0);
    reject(q, SHMQ_TOO_LARGE, 0, 64 * 10 * SHMQ_GROWTH + 1);
    reject(q, SHMQ_TOO_LARGE, 0, 1ull << 63);
    policies.capacity = UINT32_MAX;
    CHECK_EQ(shmq_alter(q, &policies, q->h->alterations + 1), SHMQ_STALE);
    CHECK_EQ(resize(q, 4 * SHMQ_GROWTH, 64 * 10 * SHMQ_GROWTH), SHMQ_OK);
    CHECK_EQ(fill(q, 64), 4 * SHMQ_GROWTH);
    CHECK_EQ(resize(q, 4 * SHMQ_GROWTH, 64 * 4 * SHMQ_GROWTH), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("an empty queue shrinks and returns its memory; one in use shrinks to what it has")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 400, .arena_bytes = 64 * 4000);
    uint64_t removed;

    CHECK_EQ(fill(q, 640), 400);
    reject(q, SHMQ_FULL, 399, 0);
    reject(q, SHMQ_FULL, 0, 64 * 3999);
    CHECK_EQ(drain(q), 400);
    CHECK(q->h->units_cached > 0);
    CHECK_EQ(resize(q, 1, 64), SHMQ_OK);
    CHECK_EQ(q->h->slots_backed + q->h->units_backed, 0);
    CHECK_EQ(put_one(q, 65), SHMQ_TOO_LARGE);
    CHECK_EQ(fill(q, 64), 1);
    CHECK_WELL(q);
    CHECK_EQ(resize(q, 30, 64 * 300), SHMQ_OK);
    CHECK_EQ(fill(q, 640), 29);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(fill(q, 64), 30);
    CHECK_EQ(resize(q, 30, 64 * 30), SHMQ_OK);
    CHECK_EQ(put_one(q, 1), SHMQ_FULL);
    CHECK_WELL(q);
}

TEST("a message that lies high keeps the queue from shrinking, whatever its state")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view high;

    CHECK_EQ(fill(q, 64), 8);
    for (int i = 0; i < 7; i++)
        CHECK_EQ(shmq_ack(q, take_next(q).receipt, now), SHMQ_OK);
    high = take_next(q);
    reject(q, SHMQ_FULL, 7, 0);
    reject(q, SHMQ_FULL, 0, 64 * 7);
    CHECK_EQ(shmq_nack(q, high.receipt, 0, now), SHMQ_OK);
    reject(q, SHMQ_FULL, 1, 0);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(resize(q, 1, 64), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("what slept for room is woken by growth, and by nothing else")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2);
    uint32_t post[2];

    CHECK_EQ(fill(q, 10), 2);
    shmq_fall_asleep(q, SHMQ_NOT_FULL);
    CHECK_EQ(resize(q, 2, 32 << 10), SHMQ_OK);
    shmq_unlock(q, post);
    CHECK_EQ(post[SHMQ_NOT_FULL], 0);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_EQ(resize(q, 3, 0), SHMQ_OK);
    shmq_unlock(q, post);
    CHECK_EQ(post[SHMQ_NOT_FULL], 1);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
}

TEST("the groups of a queue that has grown find their records")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    uint64_t removed;

    for (uint64_t group = 1; group <= 8; group++)
        PUT(q, .body_bytes = 1, .group = group * 0x9E3779B97F4A7C15ull);
    CHECK_EQ(q->h->group_buckets, 8);
    starve(q);
    reject(q, SHMQ_NO_SPACE, 100, 0);
    feed(q);
    CHECK_EQ(resize(q, 100, 0), SHMQ_OK);
    CHECK_EQ(q->h->group_buckets, 128);
    CHECK_WELL(q);
    for (uint64_t group = 1; group <= 92; group++)
        PUT(q, .body_bytes = 1, .group = group * 0x9E3779B97F4A7C15ull);
    CHECK_EQ(q->h->groups, 92);
    CHECK_WELL(q);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 100);
    CHECK_EQ(resize(q, 1, 0), SHMQ_OK);
    PUT(q, .body_bytes = 1, .group = 5);
    CHECK_WELL(q);
}

TEST("the sizes that a header has are within its layout, or it is damaged")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .arena_bytes = 64 * 10);
    struct shmq_policies *policies = &q->h->options.policies[0], good = *policies;
    struct shmq_geometry geo;

#define IS(member, value, status)                                                       \
    do {                                                                                \
        *policies = good;                                                               \
        policies->member = (value);                                                     \
        policies->crc = shmq_policies_checksum(policies);                               \
        CHECK_EQ(shmq_inspect(q->base, SHMQ_PAGE, q->geo.segment_bytes, &geo), status); \
        CHECK(shmq_capacity(q) <= geo.slots_max && shmq_units(q) <= q->geo.units);      \
    } while (0)
    IS(capacity, 4 * SHMQ_GROWTH, SHMQ_OK);
    IS(capacity, 4 * SHMQ_GROWTH + 1, SHMQ_DAMAGED);
    IS(capacity, 0, SHMQ_DAMAGED);
    IS(capacity, UINT32_MAX, SHMQ_DAMAGED);
    IS(arena_bytes, 64 * 10 * SHMQ_GROWTH, SHMQ_OK);
    IS(arena_bytes, 64 * 10 * SHMQ_GROWTH + 1, SHMQ_DAMAGED);
    IS(arena_bytes, 0, SHMQ_DAMAGED);
    IS(arena_bytes, UINT64_MAX, SHMQ_DAMAGED);
#undef IS
    *policies = good;
}

TEST("what a segment can take follows its size, and its file its greatest size")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 100, .arena_bytes = 1 << 20);
    uint64_t had = shmq_most_bytes(&q->h->options, shmq_policies_now(q->h));

    CHECK(had > 1 << 20 && had < 2 << 20);
    CHECK_EQ(resize(q, 0, 4 << 20), SHMQ_OK);
    CHECK(shmq_most_bytes(&q->h->options, shmq_policies_now(q->h)) >= had + (3 << 20));
    CHECK(q->geo.segment_bytes >= SHMQ_GROWTH << 20);
}

TEST("sizes that change at random leave every message in its place")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 20, .arena_bytes = 64 * 100);
    struct shmq_queue *handles[2] = {q, another_handle(q)};
    struct chance chance = chance_of(31);
    uint64_t taken = 0, put = 0;

    for (int round = 0; round < 20000; round++) {
        struct shmq_queue *h = handles[chance_below(&chance, 2)];
        uint32_t capacity = (uint32_t)chance_below(&chance, 20 * SHMQ_GROWTH) + 1;
        struct shmq_put one = {.body_bytes = chance_below(&chance, 64 * 12),
                               .group = chance_below(&chance, 4)};
        uint64_t seq;
        int status;

        switch (chance_below(&chance, 8)) {
        case 0: (void)resize(h, capacity, 0); break;
        case 1: (void)resize(h, 0, 64 * (uint64_t)(chance_below(&chance, 1600) + 1)); break;
        case 2:
        case 3:
            if ((seq = next_seq(h)))
                taken += drain(h) + 1;
            break;
        default:
            if (shmq_fits(h, one.body_bytes, 0))
                break;
            status = put_status(h, &one, &seq);
            CHECK(status == SHMQ_OK || status == SHMQ_FULL);
            if (status == SHMQ_OK)
                CHECK_EQ(seq, ++put);
        }
        CHECK(h->h->live <= shmq_capacity(h) && h->h->units_used <= shmq_units(h));
        if (round % 16 == 0)
            CHECK_WELL(h);
        if (round % 500 == 0)
            shmq_clock_set = now += 31 * SECOND;
    }
    CHECK(taken > 1000 && put > 1000);
}
