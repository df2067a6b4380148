/* Message groups: one message of a group in flight, the others behind it, in order. */
#include "fixture.h"
#include "queue/index.h"
#include "queue/transition.h"

#include <string.h>

static void ack(struct shmq_queue *q, const struct shmq_view *view)
{
    CHECK_EQ(shmq_ack(q, view->receipt, now), SHMQ_OK);
}

static void nack(struct shmq_queue *q, const struct shmq_view *view, int64_t delay)
{
    CHECK_EQ(shmq_nack(q, view->receipt, delay, now), SHMQ_OK);
}

static void expect_empty(struct shmq_queue *q) { CHECK_EQ(next_seq(q), 0); }

static struct shmq_view expect(struct shmq_queue *q, uint64_t seq)
{
    struct shmq_view view = take_next(q);

    CHECK_EQ(view.seq, seq);
    CHECK_WELL(q);
    return view;
}

TEST("a group has one message in flight, and the next one comes after its end")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view view;

    for (int i = 0; i < 3; i++)
        PUT(q, .group = 5);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        view = expect(q, seq);
        expect_empty(q);
        ack(q, &view);
    }
    CHECK_EQ(q->h->groups, 0);
    CHECK_WELL(q);
}

TEST("a blocked group stalls neither another group nor messages without one")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);

    PUT(q, .group = 5);
    PUT(q, .group = 5);
    PUT(q, .group = 6);
    put_bytes(q, 1);
    expect(q, 1);
    expect(q, 3);
    expect(q, 4);
    expect_empty(q);
}

TEST("a message that comes back is still the first of its group")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view view;

    PUT(q, .group = 5);
    PUT(q, .group = 5);
    view = expect(q, 1);
    nack(q, &view, 0);
    view = expect(q, 1);
    now += 31 * SECOND;
    expect(q, 1);
    expect_empty(q);
}

TEST("a delayed nack holds its group back until the message was served")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view view;

    PUT(q, .group = 5);
    PUT(q, .group = 5);
    view = expect(q, 1);
    nack(q, &view, 3 * SECOND);
    CHECK_WELL(q);
    expect_empty(q);
    now += 3 * SECOND;
    view = expect(q, 1);
    ack(q, &view);
    expect(q, 2);
}

TEST("a put with a delay does not hold its group back, and takes its place when it is due")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view view;

    PUT(q, .group = 5, .delay = SECOND);
    PUT(q, .group = 5);
    PUT(q, .group = 5);
    view = expect(q, 2);
    now += SECOND;
    shmq_tick(q, now);
    CHECK_WELL(q);
    expect_empty(q);
    ack(q, &view);
    view = expect(q, 1);
    ack(q, &view);
    expect(q, 3);
}

TEST("a message that becomes due goes before its group's first, if that is not in flight")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view view;

    PUT(q, .group = 5, .delay = SECOND);
    PUT(q, .group = 5);
    now += SECOND;
    view = expect(q, 1);
    expect_empty(q);
    ack(q, &view);
    expect(q, 2);
}

TEST("priority comes first within a group, too")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view view;

    PUT(q, .group = 5, .priority = 0);
    PUT(q, .group = 5, .priority = 2);
    PUT(q, .group = 5, .priority = 1);
    view = expect(q, 2);
    PUT(q, .group = 5, .priority = 2);
    ack(q, &view);
    view = expect(q, 4);
    ack(q, &view);
    view = expect(q, 3);
    ack(q, &view);
    expect(q, 1);
}

TEST("a group whose message in flight dies goes on with the next")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .dead_letters = 1);
    struct shmq_view view;

    PUT(q, .group = 5);
    PUT(q, .group = 5);
    view = expect(q, 1);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    expect(q, 2);
    CHECK_EQ(q->h->groups, 1);
}

TEST("a message can leave its group from any place behind the front")
{
    enum { COUNT = 40 };
    struct shmq_queue *q = NEW_QUEUE(.capacity = COUNT, .priorities = 16);
    struct chance chance = chance_of(3);

    /* Mixed priorities make most of them stand in the pairing heap, some in the run. */
    for (int round = 0; round < 300; round++) {
        uint32_t left = COUNT;

        for (int i = 0; i < COUNT; i++)
            PUT(q, .group = 5, .priority = (uint8_t)chance_below(&chance, 16));
        while (left > 1) {
            uint32_t at = (uint32_t)chance_below(&chance, COUNT);
            struct shmq_view view;

            if (state_at(q, at) != SHMQ_READY)
                continue;
            CHECK_EQ(shmq_take(q, at, q->slots[at].seq, &view), SHMQ_OK);
            CHECK_EQ(shmq_moved(q, view.receipt), SHMQ_OK);
            CHECK_WELL(q);
            left--;
        }
        CHECK_EQ(drain(q), 1);
        CHECK_EQ(q->h->groups, 0);
    }
}

TEST("messages behind the front come out in order, whichever expire on the way")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 60, .priorities = 4,
                                     .policies[0].visibility = 900 * SECOND);
    struct chance chance = chance_of(4);

    for (int round = 0; round < 100; round++) {
        uint64_t last = 0;

        for (int i = 0; i < 60; i++)
            PUT(q, .group = 5, .priority = (uint8_t)chance_below(&chance, 4),
                .ttl = 1 + (int64_t)chance_below(&chance, 60));
        for (;;) {
            struct shmq_view view;
            uint64_t key;

            if (shmq_lease(q, now, true, &view))
                break;
            CHECK(view.expires > now);
            key = shmq_key_of(&q->slots[view.at]);
            CHECK(key > last);
            last = key;
            now += 2;
            ack(q, &view);
            CHECK_WELL(q);
        }
        CHECK_EQ(q->h->live, 0);
    }
}

TEST("as many groups as messages are kept apart, and their records are used again")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 5000);

    for (int round = 0; round < 3; round++) {
        for (uint64_t group = 1; group <= 2500; group++) {
            PUT(q, .group = group * 4096); /* all in one bucket, or nearly */
            PUT(q, .group = group * 4096);
        }
        CHECK_EQ(q->h->groups, 2500);
        CHECK_EQ(q->h->groups_made, 2500);
        CHECK_EQ(shmq_ready(q->h), 2500);
        if (!round)
            CHECK_WELL(q);
        CHECK_EQ(drain(q), 5000);
        CHECK_EQ(q->h->groups, 0);
    }
    CHECK_WELL(q);
}

TEST("without memory for its group a message is refused, and nothing of it is left")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);
    struct shmq_put put = {.group = 9, .body = "body", .body_bytes = 4};
    struct shmq_view view;
    uint64_t seq;

    put_bytes(q, 4);
    starve(q);
    CHECK_EQ(put_status(q, &put, &seq), SHMQ_NO_SPACE);
    CHECK_WELL(q);
    CHECK_EQ(q->h->live, 1);
    CHECK_EQ(shmq_reserve(q, 4, 0, now, NULL, &view, &seq), SHMQ_OK);
    CHECK_EQ(shmq_fill(q, view.receipt, &put, now, &seq), SHMQ_NO_SPACE);
    CHECK_WELL(q);
    CHECK_EQ(q->h->live, 1);
    feed(q);
    CHECK_EQ(put_status(q, &put, &seq), SHMQ_OK);
    CHECK_WELL(q);
}
