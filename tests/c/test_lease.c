/* Leases, and how they end. */
#include "fixture.h"

#define NO_RECEIPT (~0ull)

TEST("an empty queue has nothing to lease")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    CHECK_EQ(shmq_lease(q, now, true, &view), SHMQ_EMPTY);
    put_text(q, "a");
    take_next(q);
    CHECK_EQ(shmq_lease(q, now, true, &view), SHMQ_EMPTY);
    CHECK_WELL(q);
}

TEST("an acknowledged message is gone, and its receipt is good no more")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_STALE);
    CHECK(!shmq_holds(q, view.receipt, now));
    CHECK_EQ(next_seq(q), 0);
    CHECK_EQ(q->h->live, 0);
    CHECK_WELL(q);
}

TEST("a receipt of an earlier lease settles nothing, though the message is leased again")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    now += 31 * SECOND;
    refuse(q, view.receipt);
    take_next(q);
    refuse(q, view.receipt);
    CHECK_EQ(q->h->leased, 1);
}

TEST("a receipt that was never given settles nothing")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    refuse(q, 0);
    refuse(q, NO_RECEIPT);
    put_text(q, "a");
    for (uint64_t at = 0; at < 6; at++)
        refuse(q, at);
    take_next(q);
    refuse(q, 0);
    refuse(q, NO_RECEIPT);
    refuse(q, 1);
}

TEST("a lease that has ended settles nothing though nobody has noticed yet")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = SECOND);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    now += SECOND;
    CHECK_EQ(shmq_hand(q, view.receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_STALE);
    CHECK_EQ(take_next(q).deliveries, 2);
}

TEST("a nacked message comes back, at once or after its delay")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    view = take_next(q);
    CHECK_EQ(view.deliveries, 2);
    CHECK_EQ(shmq_nack(q, view.receipt, SECOND, now), SHMQ_OK);
    CHECK_EQ(next_seq(q), 0);
    now += SECOND;
    view = take_next(q);
    CHECK_EQ(view.deliveries, 3);
    CHECK(body_is(&view, "a"));
    CHECK_EQ(q->h->nacked, 2);
    CHECK_EQ(q->h->redelivered, 2);
    CHECK_WELL(q);
}

TEST("the back-off doubles with each delivery up to its limit, and varies by half")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].retry = 100, .policies[0].retry_max = 1000,
                                     .policies[0].visibility = 1 << 20);
    int64_t least = INT64_MAX, most = 0;

    put_text(q, "a");
    for (int delivery = 0; delivery < 200; delivery++) {
        int64_t whole = delivery < 4 ? 100ll << delivery : 1000, delay;
        struct shmq_view view = take_next(q);

        CHECK_EQ(shmq_nack(q, view.receipt, -1, now), SHMQ_OK);
        delay = q->slots[view.at].deadline - now;
        CHECK(delay >= whole / 2 && delay <= whole);
        if (delivery >= 4) {
            least = delay < least ? delay : least;
            most = delay > most ? delay : most;
        }
        now += delay;
    }
    CHECK(least < 600 && most > 900);
}

TEST("without a retry delay a nack returns the message at once")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].retry = 0, .policies[0].retry_max = 300 * SECOND);
    struct shmq_view view;

    put_text(q, "a");
    for (int delivery = 1; delivery <= 3; delivery++) {
        view = take_next(q);
        CHECK_EQ(view.deliveries, delivery);
        CHECK_EQ(shmq_nack(q, view.receipt, -1, now), SHMQ_OK);
    }
}

TEST("an extended lease lasts as long as was asked from now on")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = 10 * SECOND);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    now += 9 * SECOND;
    CHECK_EQ(shmq_extend(q, view.receipt, 5 * SECOND, now), SHMQ_OK);
    now += 4 * SECOND;
    CHECK_EQ(next_seq(q), 0);
    CHECK(shmq_holds(q, view.receipt, now));
    now += 1 * SECOND;
    CHECK_EQ(next_seq(q), 1);
}

TEST("to extend a lease by nothing ends it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_extend(q, view.receipt, 0, now), SHMQ_OK);
    refuse(q, view.receipt);
    CHECK_EQ(next_seq(q), 1);
}

TEST("the last delivery allowed ends in the dead letters, not the one after")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].max_deliveries = 2, .dead_letters = 1);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    take_next(q);
    now += 31 * SECOND;
    CHECK_EQ(next_seq(q), 0);
    CHECK_EQ(q->h->dead, 1);
    CHECK_EQ(q->slots[0].reason, SHMQ_EXHAUSTED);
    CHECK_EQ(shmq_deliveries_of(shmq_word(&q->slots[0])), 2);
    CHECK_WELL(q);
}

TEST("without dead letters a message at its end is dropped and counted")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].max_deliveries = 1);
    struct shmq_view view;

    put_text(q, "a");
    put_text(q, "b");
    view = take_next(q);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    view = take_next(q);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(q->h->dropped, 2);
    CHECK_EQ(q->h->live, 0);
    CHECK_WELL(q);
}

TEST("a delivery that the application never saw does not count")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].max_deliveries = 1,
                                     .policies[0].visibility = SECOND);
    struct shmq_view view;

    put_text(q, "a");
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(shmq_lease(q, now, false, &view), SHMQ_OK);
        CHECK_EQ(view.deliveries, 1);
        CHECK_EQ(shmq_return(q, view.receipt, now), SHMQ_OK);
        CHECK_EQ(shmq_lease(q, now, false, &view), SHMQ_OK);
        now += SECOND;
    }
    CHECK_EQ(shmq_lease(q, now, false, &view), SHMQ_OK);
    CHECK_EQ(shmq_hand(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_hand(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_return(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(q->h->dropped, 1);
    CHECK_WELL(q);
}

TEST("a message that is returned unseen counts no delivery, and waits as long as is asked")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].max_deliveries = 1);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_return_unseen(q, view.receipt, SECOND, now), SHMQ_OK);
    CHECK_EQ(q->h->delayed, 1);
    CHECK_EQ(shmq_return_unseen(q, view.receipt, 0, now), SHMQ_STALE);
    now += SECOND;
    view = take_next(q);
    CHECK_EQ(view.deliveries, 1);
    CHECK_EQ(shmq_return_unseen(q, view.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(q->h->visible, 1);
    CHECK_EQ(q->h->nacked, 0);
    CHECK_WELL(q);
}

TEST("a count of deliveries at its limit stays there, however the message ends")
{
    struct shmq_queue *q = NEW_QUEUE(.dead_letters = 1);
    struct shmq_view view;
    struct shmq_slot *s = &q->slots[0];

    put_text(q, "a");
    shmq_commit(s, shmq_make_word(SHMQ_READY, 0, SHMQ_DELIVERIES_MAX, 0));
    view = take_next(q);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(shmq_deliveries_of(shmq_word(s)), SHMQ_DELIVERIES_MAX);
    view = take_next(q);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_deliveries_of(shmq_word(s)), SHMQ_DELIVERIES_MAX);
    CHECK_EQ(shmq_serial_of(shmq_word(s)), view.receipt >> SHMQ_SERIAL_SHIFT);
}

TEST("serials come round without a lease being mistaken for another")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view one, two;

    q->h->serial = SHMQ_SERIAL_MAX - 1;
    put_text(q, "a");
    put_text(q, "b");
    one = take_next(q);
    two = take_next(q);
    CHECK_EQ(one.receipt >> SHMQ_SERIAL_SHIFT, SHMQ_SERIAL_MAX);
    CHECK_EQ(two.receipt >> SHMQ_SERIAL_SHIFT, 0);
    CHECK_EQ(shmq_ack(q, two.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, one.receipt, now), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("what was acknowledged without the lock comes back no more, whatever becomes of it")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = SECOND);
    struct shmq_view view;

    put_text(q, "a");
    put_text(q, "b");
    view = take_next(q);
    CHECK_EQ(shmq_mark_acked(q, view.receipt, now), SHMQ_OK);
    CHECK_WELL(q);
    refuse(q, view.receipt);
    CHECK_EQ(shmq_mark_acked(q, view.receipt, now), SHMQ_STALE);
    CHECK_EQ(q->h->live, 2);
    CHECK_EQ(shmq_finish(q, view.receipt), SHMQ_OK);
    CHECK_EQ(shmq_finish(q, view.receipt), SHMQ_STALE);
    CHECK_EQ(q->h->live, 1);
    view = take_next(q);
    CHECK_EQ(shmq_mark_acked(q, view.receipt, now), SHMQ_OK);
    now += SECOND;
    CHECK_EQ(next_seq(q), 0);
    CHECK_EQ(shmq_finish(q, view.receipt), SHMQ_STALE);
    CHECK_EQ(q->h->live, 0);
    CHECK_EQ(q->h->acked, 2);
    CHECK_WELL(q);
}

TEST("a message is not acknowledged without the lock once its lease is over")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = SECOND);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    now += SECOND;
    CHECK_EQ(shmq_mark_acked(q, view.receipt, now), SHMQ_STALE);
    take_next(q);
    CHECK_EQ(shmq_mark_acked(q, view.receipt, now), SHMQ_STALE);
    CHECK_EQ(q->h->leased, 1);
}

TEST("a group goes on only when its acknowledged message was set free")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    PUT(q, .group = 5);
    PUT(q, .group = 5);
    view = take_next(q);
    CHECK_EQ(shmq_mark_acked(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(next_seq(q), 0);
    CHECK_EQ(shmq_finish(q, view.receipt), SHMQ_OK);
    CHECK_EQ(next_seq(q), 2);
    CHECK_WELL(q);
}

TEST("the leased messages are shown with their holders, and nothing else is")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8), *other = another_handle(q);
    struct shmq_leased_view held[8];
    struct shmq_view view;

    for (int i = 1; i <= 5; i++)
        put_bytes(q, (uint64_t)i);
    take_next(q);
    CHECK_EQ(shmq_lease(other, now, false, &view), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_leases_in(q, 0, 8, 0, held), 2);
    CHECK(held[0].seq == 1 && held[0].body_bytes == 1 && held[0].deliveries == 1);
    CHECK_EQ(held[0].process, q->attachments[q->attachment].process);
    CHECK(held[1].seq == 2 && held[1].body_bytes == 2 && held[1].deliveries == 0);
    CHECK_EQ(held[1].process, q->attachments[other->attachment].process);
    CHECK_EQ(held[1].deadline, view.deadline);
    CHECK_EQ(shmq_leases_in(q, 0, 8, 1, held), 1);
    CHECK_EQ(held[0].seq, 2);
    CHECK_EQ(shmq_leases_in(q, 0, 1, 0, held) + shmq_leases_in(q, 1, UINT32_MAX, 0, held), 2);
    CHECK_WELL(q);
}

TEST("a holder that cannot be is not known")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_leased_view held[8];

    put_bytes(q, 1);
    take_next(q);
    for (uint16_t owner = 0; owner < UINT16_MAX; owner = owner ? UINT16_MAX : 2) {
        q->slots[0].owner = owner;
        CHECK_EQ(shmq_leases_in(q, 0, 8, 0, held), 1);
        CHECK(!held[0].process && !held[0].pid && !held[0].name[0]);
    }
    q->slots[0].owner = 1;
    CHECK_WELL(q);
}
