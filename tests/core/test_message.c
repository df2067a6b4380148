/* The life of a message: put, lease, settle, fill, pin, purge. */
#include "arena.h"
#include "fixture.h"
#include "timer.h"

#include <string.h>

#define NO_RECEIPT (~0ull)

/* ---- put and lease ---- */

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

TEST("only what can never fit is too large")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 1000, .max_message_bytes = 64000);

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
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 1000, .max_message_bytes = 64000);

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
    CHECK_EQ(q->h->slots_made, 1);
}

/* ---- settlements ---- */

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

static void refuse(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_view view;
    uint64_t seq;

    CHECK(!shmq_holds(q, receipt, now));
    CHECK_EQ(shmq_ack(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_nack(q, receipt, 0, now), SHMQ_STALE);
    CHECK_EQ(shmq_reject(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_extend(q, receipt, SECOND, now), SHMQ_STALE);
    CHECK_EQ(shmq_return(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_hand(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_pin(q, receipt, now, &view), SHMQ_STALE);
    CHECK_EQ(shmq_publish(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_abandon(q, receipt), SHMQ_STALE);
    CHECK_EQ(shmq_fill(q, receipt, &(struct shmq_put){0}, now, &seq), SHMQ_STALE);
    CHECK_EQ(shmq_stage(q, receipt, &(struct shmq_put){0}, now), SHMQ_STALE);
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
    struct shmq_queue *q = NEW_QUEUE(.visibility = SECOND);
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
    struct shmq_queue *q = NEW_QUEUE(.retry = 100, .retry_max = 1000, .visibility = 1 << 20);
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
    struct shmq_queue *q = NEW_QUEUE(.retry = 0, .retry_max = 300 * SECOND);
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
    struct shmq_queue *q = NEW_QUEUE(.visibility = 10 * SECOND);
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
    struct shmq_queue *q = NEW_QUEUE(.max_deliveries = 2, .dead_letters = 1);
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
    struct shmq_queue *q = NEW_QUEUE(.max_deliveries = 1);
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
    struct shmq_queue *q = NEW_QUEUE(.max_deliveries = 1, .visibility = SECOND);
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
    struct shmq_queue *q = NEW_QUEUE(.visibility = SECOND);
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
    struct shmq_queue *q = NEW_QUEUE(.visibility = SECOND);
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

/* ---- overflow ---- */

TEST("a queue that drops its oldest takes a new message for it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 3, .overflow = SHMQ_DROP_OLDEST);

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
    struct shmq_queue *q =
        NEW_QUEUE(.capacity = 20, .arena_bytes = 64 * 10, .overflow = SHMQ_DROP_OLDEST);

    for (int i = 0; i < 10; i++)
        put_bytes(q, 64);
    put_bytes(q, 64 * 3);
    CHECK_EQ(q->h->dropped, 3);
    CHECK_EQ(next_seq(q), 4);
    CHECK_WELL(q);
}

TEST("what is leased is not dropped, and without anything to drop a put is refused")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2, .overflow = SHMQ_DROP_OLDEST);
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
    struct shmq_queue *q = NEW_QUEUE(.capacity = 3, .overflow = SHMQ_DROP_OLDEST);

    for (int i = 0; i < 3; i++)
        PUT(q, .group = 4);
    take_next(q);
    PUT(q, .group = 4);
    CHECK_EQ(q->h->dropped, 1);
    CHECK_WELL(q);
}

TEST("what is dropped for nothing, because a view holds it, is not dropped")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2, .overflow = SHMQ_DROP_OLDEST);
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
    struct shmq_queue *q =
        NEW_QUEUE(.capacity = 20, .arena_bytes = 64 * 20, .overflow = SHMQ_DROP_OLDEST);
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

/* ---- filling without the lock ---- */

static struct shmq_view reserve(struct shmq_queue *q, uint64_t bytes)
{
    struct shmq_view view;
    uint64_t seq;

    CHECK_EQ(shmq_reserve(q, bytes, 0, now, NULL, &view, &seq), SHMQ_OK);
    return view;
}

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

/* ---- pins ---- */

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
    struct shmq_queue *q = NEW_QUEUE(.visibility = SECOND);
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

/* ---- purge ---- */

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
