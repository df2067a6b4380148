/* Slots with a block for their bytes: taken, kept for the next message, given back. */
#include "queue/slot.h"
#include "fixture.h"
#include "queue/segment.h"

#include <string.h>

static int try_put(struct shmq_queue *q, uint64_t bytes)
{
    uint64_t seq;

    return put_status(q, &(struct shmq_put){.body_bytes = bytes}, &seq);
}

static void ack_next(struct shmq_queue *q)
{
    struct shmq_view view = take_next(q);

    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
}

TEST("a slot set free keeps its block for the next message of that size")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    uint32_t used, made;

    put_bytes(q, 1000);
    used = q->h->units_used;
    made = q->h->slots_made;
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(q->h->units_used - q->h->units_cached, 16);
        ack_next(q);
        CHECK_EQ(q->h->units_cached, used);
        put_bytes(q, 990);
        CHECK_WELL(q);
    }
    CHECK_EQ(q->h->units_used, used);
    CHECK_EQ(q->h->slots_made, made);
}

TEST("a block too large to be kept goes back to the arena at once")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .arena_bytes = 200000);

    put_bytes(q, 100000);
    ack_next(q);
    CHECK_EQ(q->h->units_used, 0);
    CHECK_WELL(q);
}

TEST("a queue holds as many messages as its capacity, and says when it is full")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 3);

    for (int i = 0; i < 3; i++)
        CHECK_EQ(try_put(q, 0), SHMQ_OK);
    CHECK_EQ(try_put(q, 0), SHMQ_FULL);
    CHECK_WELL(q);
    ack_next(q);
    CHECK_EQ(try_put(q, 0), SHMQ_OK);
    CHECK_EQ(try_put(q, 0), SHMQ_FULL);
}

TEST("blocks that free slots keep are given up when a message needs their room")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64, .arena_bytes = 64 * 64);

    for (int i = 0; i < 64; i++)
        put_bytes(q, 64);
    CHECK_EQ(drain(q), 64);
    CHECK_EQ(q->h->units_cached, 64);
    CHECK_EQ(try_put(q, 64 * 64), SHMQ_OK);
    CHECK_EQ(q->h->units_cached, 0);
    CHECK_WELL(q);
}

TEST("a slot that keeps a block of another size is taken when no other is left")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2, .arena_bytes = 64 * 64);

    put_bytes(q, 64);
    put_bytes(q, 128);
    CHECK_EQ(drain(q), 2);
    put_bytes(q, 640);
    put_bytes(q, 0);
    CHECK_WELL(q);
    CHECK_EQ(try_put(q, 0), SHMQ_FULL);
}

TEST("a message held for long blocks no space but its own")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64, .arena_bytes = 64 * 100);
    struct shmq_view held;

    for (int i = 0; i < 10; i++)
        put_bytes(q, 640);
    held = take_next(q);
    for (int round = 0; round < 50; round++) {
        CHECK_EQ(drain(q), round ? 1 : 9);
        CHECK_EQ(try_put(q, 64 * 80), SHMQ_OK);
    }
    CHECK_EQ(shmq_ack(q, held.receipt, now), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("when the arena is full a put is refused and leaves nothing behind")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64, .arena_bytes = 64 * 10);

    CHECK_EQ(try_put(q, 64 * 8), SHMQ_OK);
    CHECK_EQ(try_put(q, 64 * 3), SHMQ_FULL);
    CHECK_EQ(q->h->live, 1);
    CHECK_WELL(q);
    CHECK_EQ(try_put(q, 64 * 2), SHMQ_OK);
    CHECK_EQ(try_put(q, 0), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("bytes are whole up to the arena's last unit")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .arena_bytes = 64 * 8);
    char body[400], meta[112];
    struct shmq_view view;

    memset(body, 'b', sizeof body);
    memset(meta, 'm', sizeof meta);
    PUT(q, .body = body, .body_bytes = sizeof body, .meta = meta, .meta_bytes = sizeof meta);
    view = take_next(q);
    CHECK(view.body == q->arena);
    CHECK(view.meta + view.meta_bytes == q->arena + 64 * 8);
    CHECK(!memcmp(view.body, body, sizeof body) && !memcmp(view.meta, meta, sizeof meta));
}

TEST("an empty body needs no block, and its properties may be all there is")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    PUT(q, .meta = "properties", .meta_bytes = 10);
    put_bytes(q, 0);
    view = take_next(q);
    CHECK_EQ(view.body_bytes, 0);
    CHECK(view.meta_bytes == 10 && !memcmp(view.meta, "properties", 10));
    view = take_next(q);
    CHECK(!view.body_bytes && !view.meta_bytes && !view.meta);
    CHECK_EQ(q->slots[view.at].units, 0);
    CHECK_WELL(q);
}

TEST("a slot that was taken and not used goes back")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    uint32_t at;

    CHECK_EQ(shmq_slot_take(q, 100, &at), SHMQ_OK);
    CHECK_EQ(at, 0);
    shmq_slot_untake(q, &q->slots[at]);
    CHECK_WELL(q);
    put_bytes(q, 100);
    CHECK_WELL(q);
}

TEST("without memory for more slots those that were set free are used")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1000);
    uint32_t backed;

    put_bytes(q, 64);
    backed = q->h->slots_backed;
    CHECK(backed < 1000);
    starve(q);
    for (uint32_t i = 1; i < backed; i++)
        CHECK_EQ(try_put(q, 0), SHMQ_OK);
    CHECK_EQ(try_put(q, 0), SHMQ_NO_SPACE);
    CHECK(q->refused_bytes > 0);
    CHECK_WELL(q);
    ack_next(q);
    CHECK_EQ(try_put(q, 0), SHMQ_OK);
    CHECK_EQ(try_put(q, 0), SHMQ_NO_SPACE);
    feed(q);
    CHECK_EQ(try_put(q, 0), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("bytes that would lie outside of the arena are damage, not a pointer")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_slot *s = &q->slots[0];

    put_bytes(q, 100);
    CHECK(shmq_body_of(q, s) && shmq_put_meta_of(q, s) && !q->damaged);
    s->body_bytes = 129;
    CHECK(!shmq_body_of(q, s) && q->damaged);
    s->body_bytes = UINT32_MAX;
    s->meta_bytes = UINT32_MAX;
    CHECK(!shmq_put_meta_of(q, s));
    s->body_bytes = s->meta_bytes = 0;
    s->units = UINT32_MAX;
    CHECK(!shmq_body_of(q, s));
    s->units = 2;
    s->block = q->geo.units - 1;
    CHECK(!shmq_put_meta_of(q, s));
    s->block = UINT32_MAX;
    CHECK(!shmq_put_meta_of(q, s));
}

TEST("a purge gives back the memory above what is still in use")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2000, .arena_bytes = 4 << 20);
    struct shmq_view held;
    uint64_t removed;

    for (int i = 0; i < 2000; i++)
        PUT(q, .body_bytes = 2000, .group = 1 + (uint64_t)i);
    held = take_next(q);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 1999);
    CHECK_EQ(q->h->slots_made, 1);
    CHECK_EQ(q->h->units_backed, q->slots[held.at].units);
    CHECK_WELL(q);
    CHECK_EQ(shmq_ack(q, held.receipt, now), SHMQ_OK);
    for (int i = 0; i < 2000; i++)
        PUT(q, .body_bytes = 2000, .group = 1 + (uint64_t)i);
    CHECK_EQ(drain(q), 2000);
    CHECK_WELL(q);
}

TEST("all is well after a purge though a free slot once had a block higher up")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .arena_bytes = 2 << 20);
    struct shmq_view low, high, rest;
    uint64_t removed;

    put_bytes(q, 200000);
    put_bytes(q, 200000);
    put_bytes(q, 200000);
    rest = take_next(q);
    low = take_next(q);
    high = take_next(q);
    CHECK_EQ(shmq_ack(q, rest.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, low.receipt, now), SHMQ_OK);
    put_bytes(q, 300000); /* in the second slot, at the arena's beginning */
    put_bytes(q, 500000); /* in the first slot, at its end */
    low = take_next(q);
    rest = take_next(q);
    CHECK(low.at > rest.at && low.body < rest.body);
    CHECK_EQ(shmq_ack(q, rest.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, high.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_WELL(q);
    put_bytes(q, 0);
    CHECK_WELL(q);
}
