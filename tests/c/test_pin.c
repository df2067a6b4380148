/* Views: bytes that stay while somebody looks at them. */
#include "fixture.h"

TEST("the bytes of a settled message stay while a view of it is alive")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2);
    struct shmq_view view, pinned;

    put_text(q, "held");
    view = take_next(q);
    CHECK_EQ(shmq_pin(q, view.receipt, now, &pinned), SHMQ_OK);
    CHECK_EQ(shmq_pin(q, view.receipt, now, &pinned), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(state_at(q, view.at), SHMQ_ZOMBIE);
    put_text(q, "xxxx");
    CHECK(body_is(&pinned, "held"));
    CHECK_EQ(put_status(q, &(struct shmq_put){0}, &view.seq), SHMQ_FULL);
    CHECK_WELL(q);
    shmq_unpin(q, pinned.at);
    CHECK_EQ(state_at(q, view.at), SHMQ_ZOMBIE);
    shmq_unpin(q, pinned.at);
    CHECK_EQ(state_at(q, view.at), SHMQ_FREE);
    put_text(q, "yyyy");
    CHECK_WELL(q);
}

TEST("a lease may run out under a view, and the message is served with the same bytes")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = SECOND);
    struct shmq_view view, again;

    put_text(q, "held");
    view = take_next(q);
    CHECK_EQ(shmq_pin(q, view.receipt, now, &view), SHMQ_OK);
    now += SECOND;
    again = take_next(q);
    CHECK(again.body == view.body);
    CHECK_EQ(shmq_ack(q, again.receipt, now), SHMQ_OK);
    CHECK_EQ(state_at(q, view.at), SHMQ_ZOMBIE);
    shmq_unpin(q, view.at);
    CHECK_EQ(state_at(q, view.at), SHMQ_FREE);
    CHECK_WELL(q);
}

TEST("two processes cannot pin the same bytes, and one cannot unpin for another")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = another_handle(q);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_pin_at(q, view.at, view.seq, &view), SHMQ_OK);
    CHECK_EQ(shmq_pin_at(other, view.at, view.seq, &view), SHMQ_BUSY);
    shmq_unpin(other, view.at);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(state_at(q, view.at), SHMQ_ZOMBIE);
    shmq_unpin(q, view.at);
    CHECK_EQ(state_at(q, view.at), SHMQ_FREE);
    shmq_unpin(q, view.at);
    CHECK_WELL(q);
}

TEST("a message can be pinned 65,535 times and not once more")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    for (int i = 0; i < 65535; i++)
        CHECK_EQ(shmq_pin_at(q, 0, 1, &view), SHMQ_OK);
    CHECK_EQ(shmq_pin_at(q, 0, 1, &view), SHMQ_BUSY);
    CHECK_EQ(drain(q), 1);
    for (int i = 0; i < 65535; i++) {
        CHECK_EQ(state_at(q, 0), SHMQ_ZOMBIE);
        shmq_unpin(q, 0);
    }
    CHECK_EQ(state_at(q, 0), SHMQ_FREE);
}

TEST("a slot is pinned only as the message that was asked for")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_view view, reserved;

    put_text(q, "a");
    CHECK_EQ(shmq_pin_at(q, 0, 2, &view), SHMQ_STALE);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(shmq_pin_at(q, 0, 1, &view), SHMQ_STALE);
    reserved = reserve(q, 1);
    CHECK_EQ(shmq_pin_at(q, 0, 1, &view), SHMQ_STALE);
    CHECK_EQ(shmq_pin(q, reserved.receipt, now, &view), SHMQ_OK);
    CHECK_EQ(shmq_abandon(q, reserved.receipt), SHMQ_OK);
    CHECK_EQ(state_at(q, 0), SHMQ_ZOMBIE);
    CHECK_EQ(shmq_pin_at(q, 0, 1, &view), SHMQ_STALE);
    shmq_unpin(q, 0);
    CHECK_WELL(q);
}
