/* What happens at a time: leases that end, delays, and ttls. */
#include "fixture.h"
#include "queue/index.h"
#include "queue/segment.h"
#include "queue/transition.h"

TEST("nothing is due on a new queue")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    CHECK_EQ(shmq_next_due(q), INT64_MAX);
    shmq_tick(q, now);
    CHECK_WELL(q);
}

TEST("a lease that runs out brings the message back")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = 10 * SECOND);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(view.deadline, now + 10 * SECOND);
    CHECK_EQ(shmq_next_due(q), view.deadline);
    now += 10 * SECOND - 1;
    CHECK_EQ(next_seq(q), 0);
    now += 1;
    view = take_next(q);
    CHECK_EQ(view.seq, 1);
    CHECK_EQ(view.deliveries, 2);
    CHECK_EQ(q->h->expired, 1);
    CHECK_WELL(q);
}

TEST("leases end in the order of their ends, also where some were extended")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = 10 * SECOND);
    struct shmq_view views[4];

    for (int i = 0; i < 4; i++) {
        put_bytes(q, 1);
        views[i] = take_next(q);
    }
    CHECK_EQ(shmq_extend(q, views[0].receipt, 40 * SECOND, now), SHMQ_OK);
    CHECK_EQ(shmq_extend(q, views[1].receipt, 20 * SECOND, now), SHMQ_OK); /* before the tail */
    CHECK_EQ(shmq_extend(q, views[2].receipt, 5 * SECOND, now), SHMQ_OK);
    CHECK_WELL(q);
    for (int64_t until = 5; until <= 40; until *= 2) {
        CHECK_EQ(shmq_next_due(q) - 1000 * SECOND, until * SECOND);
        now = 1000 * SECOND + until * SECOND;
        shmq_tick(q, now);
        CHECK_WELL(q);
    }
    CHECK_EQ(q->h->leased, 0);
    CHECK_EQ(q->h->expired, 4);
}

TEST("a delayed message is served when it is due, in its place by sequence")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);

    PUT(q, .delay = 2 * SECOND);
    PUT(q, .delay = 1 * SECOND);
    put_bytes(q, 1);
    CHECK_EQ(q->h->delayed, 2);
    CHECK_EQ(q->h->visible, 1);
    now += 2 * SECOND;
    CHECK_EQ(next_seq(q), 1);
    CHECK_EQ(next_seq(q), 2);
    CHECK_EQ(next_seq(q), 3);
    CHECK_WELL(q);
}

TEST("an expired message is never served")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);

    PUT(q, .ttl = 1 * SECOND);
    PUT(q, .ttl = 3 * SECOND);
    now += 1 * SECOND;
    CHECK_EQ(next_seq(q), 2);
    CHECK_EQ(q->h->dropped, 1);
    CHECK_WELL(q);
}

TEST("a message expires while it is delayed, and at the end of a lease, not during it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .dead_letters = 1,
                                     .policies[0].visibility = 10 * SECOND);
    struct shmq_view view;

    PUT(q, .ttl = 1 * SECOND, .delay = 5 * SECOND);
    PUT(q, .ttl = 1 * SECOND);
    view = take_next(q);
    now += 2 * SECOND;
    shmq_tick(q, now);
    CHECK_EQ(state_at(q, 0), SHMQ_DEAD);
    CHECK_EQ(state_at(q, 1), SHMQ_LEASED);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(state_at(q, 1), SHMQ_DEAD);
    CHECK_EQ(q->slots[1].reason, SHMQ_EXPIRED_TTL);
    CHECK_WELL(q);
}

TEST("the queue's ttl holds where a put says nothing, and a put can do without")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8, .policies[0].ttl = 1 * SECOND);

    put_bytes(q, 1);
    PUT(q, .ttl = -1);
    PUT(q, .ttl = 9 * SECOND);
    now += 2 * SECOND;
    CHECK_EQ(next_seq(q), 2);
    CHECK_EQ(next_seq(q), 3);
    CHECK_EQ(next_seq(q), 0);
}

TEST("an expired message is dropped where the queue says so, though it has dead letters")
{
    struct shmq_queue *q = NEW_QUEUE(.dead_letters = 1, .policies[0].drop_expired = 1);

    PUT(q, .ttl = 1 * SECOND);
    now += 2 * SECOND;
    shmq_tick(q, now);
    CHECK_EQ(q->h->live, 0);
    CHECK_EQ(q->h->dropped, 1);
}

TEST("however many things are due at once, all of them are done")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 3000);

    for (uint64_t i = 0; i < 1500; i++) {
        PUT(q, .delay = SECOND);
        PUT(q, .ttl = SECOND);
    }
    now += SECOND;
    CHECK_EQ(drain(q), 1500);
    CHECK_EQ(q->h->dropped, 1500);
    CHECK_EQ(q->h->live, 0);
    CHECK_WELL(q);
}

TEST("messages with a ttl do not hide one without, however many have expired")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 3000, .dead_letters = 1);

    for (uint64_t i = 0; i < 2999; i++)
        PUT(q, .ttl = SECOND, .priority = 2);
    put_bytes(q, 1);
    now += SECOND;
    CHECK_EQ(next_seq(q), 3000);
    CHECK_WELL(q);
}

TEST("from time to time the queue asks for a look at who is alive")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    put_bytes(q, 1);
    q->look_for_dead = false;
    now += 1;
    put_bytes(q, 1);
    CHECK(!q->look_for_dead);
    now += SECOND;
    put_bytes(q, 1);
    CHECK(q->look_for_dead);
}

/* Lets that many processes be attached, more than ever before or fewer. */
static void attach_all(struct shmq_queue *q, uint32_t count)
{
    CHECK_EQ(shmq_back_attachments(q, count + 1), SHMQ_OK);
    if (q->h->attachments_made < count)
        q->h->attachments_made = count;
    for (uint32_t at = 0; at < q->h->attachments_made; at++)
        q->attachments[at].process = at < count;
}

TEST("a look at who is alive is made by one process for all, in a crowd less often")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    uint32_t crowds[] = {0, 1, 63, 64, 127, 1000, 128, 63};

    for (unsigned i = 0; i < sizeof crowds / sizeof *crowds; i++) {
        int64_t period = (1 + crowds[i] / 64) * (SECOND / 20);

        attach_all(q, crowds[i]);
        now += 1000 * SECOND;
        CHECK(shmq_claim_look(q, now, 0));
        CHECK(!shmq_claim_look(q, now, 0));
        CHECK_EQ(shmq_claim_look(q, now, -SECOND / 20), crowds[i] < 64);
        CHECK(!shmq_claim_look(q, now + period - 1, 0));
        CHECK(!shmq_claim_look(q, now + period, 1));
        CHECK(shmq_claim_look(q, now + period, 0));
        now += 1000 * SECOND;
        q->h->liveness_at = INT64_MAX; /* damage */
        CHECK(shmq_claim_look(q, now, 0));
    }
}

TEST("the rates are taken over a second or two")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);

    for (int i = 0; i < 6; i++) {
        now += SECOND / 2;
        put_bytes(q, 1);
    }
    CHECK(q->h->samples[0].at < q->h->samples[1].at);
    CHECK(now - q->h->samples[0].at <= 3 * SECOND);
    CHECK(q->h->samples[1].inflow <= 6 && q->h->samples[0].inflow < q->h->samples[1].inflow);
}
