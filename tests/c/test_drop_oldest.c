/* A queue that drops its oldest messages for new ones. */
#include "fixture.h"

TEST("a queue that drops its oldest takes a new message for it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 3, .policies[0].overflow = SHMQ_DROP_OLDEST);

    PUT(q, .priority = 2);
    for (int i = 0; i < 4; i++)
        put_bytes(q, 10);
    CHECK_EQ(q->h->dropped, 2);
    for (uint64_t seq = 3; seq <= 5; seq++)
        CHECK_EQ(next_seq(q), seq);
    CHECK_WELL(q);
}

TEST("as many of the oldest are dropped as a large message needs, and no more")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 20, .arena_bytes = 64 * 10,
                                     .policies[0].overflow = SHMQ_DROP_OLDEST);

    for (int i = 0; i < 10; i++)
        put_bytes(q, 64);
    put_bytes(q, 64 * 3);
    CHECK_EQ(q->h->dropped, 3);
    CHECK_EQ(q->h->dropped_by[SHMQ_ALIVE], 3);
    CHECK_EQ(next_seq(q), 4);
    CHECK_WELL(q);
}

TEST("what is leased is not dropped, and without anything to drop a put is refused")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2, .policies[0].overflow = SHMQ_DROP_OLDEST);
    struct shmq_put put = {.body_bytes = 1};
    uint64_t seq;

    put_bytes(q, 1);
    put_bytes(q, 1);
    take_next(q);
    take_next(q);
    CHECK_EQ(put_status(q, &put, &seq), SHMQ_FULL);
    CHECK_EQ(q->h->dropped, 0);
    CHECK_EQ(q->h->leased, 2);
    CHECK_WELL(q);
}

TEST("a message behind a blocked group's front can be dropped, too")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 3, .policies[0].overflow = SHMQ_DROP_OLDEST);

    for (int i = 0; i < 3; i++)
        PUT(q, .group = 4);
    take_next(q);
    PUT(q, .group = 4);
    CHECK_EQ(q->h->dropped, 1);
    CHECK_WELL(q);
}

TEST("what is dropped for nothing, because a view holds it, is not dropped")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2, .policies[0].overflow = SHMQ_DROP_OLDEST);
    struct shmq_view view;
    uint64_t seq;

    put_bytes(q, 10);
    put_bytes(q, 10);
    CHECK_EQ(shmq_pin_at(q, 0, 1, &view), SHMQ_OK);
    put_bytes(q, 10);
    CHECK_EQ(state_at(q, 0), SHMQ_READY);
    CHECK_EQ(shmq_pin_at(q, 1, 3, &view), SHMQ_OK);
    CHECK_EQ(put_status(q, &(struct shmq_put){0}, &seq), SHMQ_FULL);
    CHECK_EQ(q->h->visible, 2);
    CHECK_EQ(q->h->dropped, 1);
    CHECK_WELL(q);
}

TEST("a put that is refused all the same has dropped nothing")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 20, .arena_bytes = 64 * 20,
                                     .policies[0].overflow = SHMQ_DROP_OLDEST);
    struct shmq_put put = {.body_bytes = 64 * 12};
    uint64_t seq;

    put_bytes(q, 64 * 10);
    take_next(q);
    for (int i = 0; i < 5; i++)
        put_bytes(q, 64);
    CHECK_EQ(put_status(q, &put, &seq), SHMQ_FULL);
    CHECK_EQ(q->h->visible, 5);
    CHECK_EQ(q->h->dropped, 0);
}

TEST("nothing is dropped for a message whose group can have no record")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2, .policies[0].overflow = SHMQ_DROP_OLDEST);
    struct shmq_put put = {.body_bytes = 1, .group = 4};
    uint64_t seq;

    put_bytes(q, 1);
    put_bytes(q, 1);
    starve(q);
    CHECK_EQ(put_status(q, &put, &seq), SHMQ_NO_SPACE);
    CHECK_EQ(q->h->dropped, 0);
    feed(q);
    CHECK_EQ(put_status(q, &put, &seq), SHMQ_OK);
    CHECK_EQ(q->h->dropped, 1);
    CHECK_WELL(q);
}
