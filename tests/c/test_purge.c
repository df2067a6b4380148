/* Purge: everything visible and delayed goes, with its memory. */
#include "fixture.h"

TEST("a purge removes visible and delayed messages, and leaves the others")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16, .dead_letters = 1);
    struct shmq_view leased, view, reserved;
    uint64_t removed, seq;

    PUT(q, .group = 3);
    PUT(q, .group = 3);
    leased = take_next(q);
    PUT(q, .delay = SECOND);
    put_text(q, "dead");
    view = take_next(q);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    put_text(q, "visible");
    put_text(q, "viewed");
    CHECK_EQ(shmq_pin_at(q, 5, 6, &view), SHMQ_OK);
    reserved = reserve(q, 4);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 4);
    CHECK_WELL(q);
    CHECK(body_is(&view, "viewed"));
    CHECK_EQ(q->h->visible + q->h->delayed, 0);
    CHECK_EQ(q->h->dead, 1);
    CHECK_EQ(shmq_fill(q, reserved.receipt, &(struct shmq_put){.body_bytes = 4}, now, &seq),
             SHMQ_OK);
    CHECK_EQ(shmq_ack(q, leased.receipt, now), SHMQ_OK);
    CHECK_EQ(next_seq(q), seq);
    shmq_unpin(q, 5);
    CHECK_WELL(q);
}

TEST("a purge of an empty queue gives all its memory back")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 100);
    uint64_t removed;

    for (int i = 0; i < 100; i++)
        put_bytes(q, 600);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 100);
    CHECK_EQ(q->h->slots_backed, 0);
    CHECK_EQ(q->h->units_backed, 0);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 0);
    CHECK_WELL(q);
    put_bytes(q, 600);
    CHECK_WELL(q);
}
