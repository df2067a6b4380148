/* Putting a message: at once, or in steps without the lock. */
#include "fixture.h"

#include <string.h>

TEST("what is put is what is leased")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    PUT(q, .body = "hello", .body_bytes = 5, .meta = "meta!", .meta_bytes = 5, .priority = 2,
        .codec = 3, .ttl = 9 * SECOND, .group = 77);
    view = take_next(q);
    CHECK(body_is(&view, "hello"));
    CHECK(view.meta_bytes == 5 && !memcmp(view.meta, "meta!", 5));
    CHECK_EQ(view.seq, 1);
    CHECK_EQ(view.priority, 2);
    CHECK_EQ(view.codec, 3);
    CHECK_EQ(view.group, 77);
    CHECK_EQ(view.put_at, now);
    CHECK_EQ(view.expires, now + 9 * SECOND);
    CHECK_EQ(view.deadline, now + 30 * SECOND);
    CHECK_EQ(view.deliveries, 1);
    CHECK(shmq_holds(q, view.receipt, now));
}

TEST("only what can never fit is too large")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 1000,
                                     .policies[0].max_message_bytes = 64000);

    CHECK_EQ(shmq_fits(q, 64001, 0), SHMQ_TOO_LARGE);
    CHECK_EQ(shmq_fits(q, 64000, 1), SHMQ_TOO_LARGE);
    CHECK_EQ(shmq_fits(q, UINT64_MAX, 0), SHMQ_TOO_LARGE);
    CHECK_EQ(shmq_fits(q, 0, UINT32_MAX), SHMQ_TOO_LARGE);
    CHECK_EQ(shmq_fits(q, 0, 0), SHMQ_OK);
    CHECK_EQ(shmq_fits(q, 57344, 0), SHMQ_OK);
    for (uint64_t bytes = 1000; bytes <= 64000; bytes += 1000) {
        uint64_t seq;
        int status = put_status(q, &(struct shmq_put){.body_bytes = bytes}, &seq);

        CHECK_EQ(shmq_fits(q, bytes, 0) == SHMQ_OK, status == SHMQ_OK);
        drain(q);
    }
}

TEST("a message of the whole arena can be put where the options allow it")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 1000,
                                     .policies[0].max_message_bytes = 64000);

    CHECK_EQ(shmq_fits(q, 64000, 0), SHMQ_OK);
    put_bytes(q, 64000);
    CHECK_WELL(q);
    CHECK_EQ(drain(q), 1);
}

TEST("sequence numbers go on whatever becomes of the messages")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2);

    for (uint64_t seq = 1; seq <= 100; seq++) {
        CHECK_EQ(put_bytes(q, 10), seq);
        CHECK_EQ(drain(q), 1);
    }
    CHECK_EQ(q->h->acked, 100);
}

/* ---- filling without the lock ---- */

TEST("a message that is being filled is invisible until it is whole")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view = reserve(q, 5);
    uint64_t seq;

    CHECK_EQ(next_seq(q), 0);
    CHECK_WELL(q);
    memcpy((char *)view.body, "later", 5);
    put_text(q, "sooner");
    CHECK_EQ(shmq_fill(q, view.receipt, &(struct shmq_put){.body_bytes = 5}, now, &seq), SHMQ_OK);
    CHECK_EQ(seq, 2);
    CHECK_EQ(next_seq(q), 1);
    view = take_next(q);
    CHECK(body_is(&view, "later"));
    CHECK_WELL(q);
}

TEST("a message that was abandoned leaves nothing behind")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_view view = reserve(q, 100);

    CHECK_EQ(shmq_abandon(q, view.receipt), SHMQ_OK);
    refuse(q, view.receipt);
    CHECK_EQ(q->h->live, 0);
    put_bytes(q, 100);
    refuse(q, view.receipt);
}

TEST("a message can become shorter while it is filled")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_view view = reserve(q, 1000);
    uint64_t seq;

    memcpy((char *)view.body, "short", 5);
    CHECK_EQ(shmq_fill(q, view.receipt, &(struct shmq_put){.body_bytes = 5}, now, &seq), SHMQ_OK);
    view = take_next(q);
    CHECK(body_is(&view, "short"));
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("a filled message has the delay, the group and the ttl that it is given at the end")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_put put = {.body_bytes = 5, .delay = SECOND, .group = 8, .ttl = 3 * SECOND};
    struct shmq_view view = reserve(q, 5);
    uint64_t seq;

    CHECK_EQ(shmq_fill(q, view.receipt, &put, now, &seq), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 0);
    now += SECOND;
    view = take_next(q);
    CHECK_EQ(view.group, 8);
    CHECK_EQ(view.expires, now + 2 * SECOND);
}
