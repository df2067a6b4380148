/* Runs: several messages of a group at a time; leases in a name, which newer claims fence. */
#include "fixture.h"
#include "queue/index.h"
#include "queue/run.h"
#include "queue/segment.h"
#include "queue/transition.h"

#include <stdlib.h>
#include <string.h>

#define MOST 64

struct leased {
    struct shmq_view views[MOST];
    uint32_t count;
};

/* Leases up to `most` messages as one run, for 30 s. */
static struct leased lease_run(struct shmq_queue *q, const struct shmq_claim *claim, uint32_t epoch,
                               uint32_t most)
{
    struct leased leased = {.count = 0};
    struct shmq_run run;

    shmq_run_begin(&run, claim, epoch);
    while (leased.count < most &&
           shmq_run_lease(q, &run, now, 30 * SECOND, &leased.views[leased.count]) == SHMQ_OK)
        leased.count++;
    shmq_run_end(&run);
    CHECK_WELL(q);
    return leased;
}

static void expect_seqs(const struct leased *leased, uint32_t count, const uint64_t *seqs)
{
    CHECK_EQ(leased->count, count);
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQ(leased->views[i].seq, seqs[i]);
}
#define EXPECT_SEQS(leased, ...) \
    expect_seqs((leased), sizeof((uint64_t[]){__VA_ARGS__}) / 8, (uint64_t[]){__VA_ARGS__})

static struct shmq_claim claim_name(struct shmq_queue *q, const char *name)
{
    struct shmq_claim claim;

    CHECK_EQ(shmq_claim_name(q, shmq_hash_name(q, name, strlen(name)), name, strlen(name), &claim),
             SHMQ_OK);
    CHECK_WELL(q);
    return claim;
}

enum sort { LEASE, ACK, RETURN };

/* Does the same with each message that has the holder's tag: those with which it went well. */
static struct leased sort(struct shmq_queue *q, const struct shmq_claim *claim, enum sort how)
{
    struct leased leased = {.count = 0};
    struct shmq_tagged *found;
    uint32_t count;

    CHECK_EQ(shmq_find_tagged(q, claim, &found, &count), SHMQ_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct shmq_view view = {.seq = found[i].seq};
        int status = how == LEASE ? shmq_lease_tagged(q, claim, &found[i], now, 30 * SECOND, &view)
                     : how == ACK ? shmq_ack_tagged(q, claim, &found[i])
                                  : shmq_return_tagged(q, claim, &found[i], now);

        if (status == SHMQ_OK)
            leased.views[leased.count++] = view;
        CHECK_WELL(q);
    }
    free(found);
    return leased;
}

static void put_groups(struct shmq_queue *q, int each)
{
    for (int i = 0; i < each; i++)
        for (uint64_t group = 5; group < 8; group++)
            PUT(q, .group = group);
}

TEST("a run holds several messages of a group, in the order of all, and nobody else gets it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct leased run;

    put_groups(q, 3);
    put_bytes(q, 1);
    run = lease_run(q, NULL, 0, 8);
    EXPECT_SEQS(&run, 1, 2, 3, 4, 5, 6, 7, 8);
    CHECK_EQ(next_seq(q), 10); /* 9 is of a group that the run holds */
    CHECK_EQ(next_seq(q), 0);
    for (uint32_t i = 0; i < 6; i++) {
        CHECK_EQ(shmq_ack(q, run.views[i].receipt, now), SHMQ_OK);
        CHECK_WELL(q);
    }
    CHECK_EQ(next_seq(q), 9); /* its group's last message is settled */
    CHECK_EQ(next_seq(q), 0);
}

TEST("a group stays with the run until its last message has come back, then it is served in order")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct leased run;

    for (int i = 0; i < 4; i++)
        PUT(q, .group = 5);
    run = lease_run(q, NULL, 0, 3);
    EXPECT_SEQS(&run, 1, 2, 3);
    for (uint32_t i = 3; i-- > 0;) {
        CHECK_EQ(next_seq(q), 0);
        CHECK_EQ(shmq_return(q, run.views[(i + 2) % 3].receipt, now), SHMQ_OK);
        CHECK_WELL(q);
    }
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 1, 2, 3, 4);
}

TEST("a run takes by priority, and what expires behind a group's front is left out")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16, .priorities = 3);
    struct leased run;

    PUT(q, .group = 5, .priority = 1);
    PUT(q, .group = 5, .priority = 2);
    PUT(q, .group = 5, .priority = 1, .ttl = SECOND);
    PUT(q, .priority = 1);
    PUT(q, .group = 5, .priority = 0);
    now += SECOND;
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 2, 1, 4, 5);
}

TEST("a group that another lease has in flight is not for a run")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct leased run;

    put_groups(q, 2);
    take_next(q);
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 2, 3, 5, 6);
}

TEST("a nack with a delay holds the group back, with the rest of its run")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct leased run;

    for (int i = 0; i < 3; i++)
        PUT(q, .group = 5);
    run = lease_run(q, NULL, 0, 2);
    CHECK_EQ(shmq_nack(q, run.views[0].receipt, 3 * SECOND, now), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(shmq_ack(q, run.views[1].receipt, now), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 0);
    now += 3 * SECOND;
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 1, 3);
}

TEST("a run's messages come back in order when it times out, when its process dies, and after a "
     "rebuild")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_queue *other = another_handle(q);
    struct leased run;

    for (int i = 0; i < 3; i++)
        PUT(q, .group = 5);
    run = lease_run(other, NULL, 0, 9);
    CHECK_EQ(run.count, 3);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 0);
    shmq_reclaim(q, other->attachment, q->attachments[other->attachment].process, now);
    CHECK_WELL(q);
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 1, 2, 3);
    now += 31 * SECOND;
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 1, 2, 3);
}

TEST("what is leased in a name stays leased when the process dies")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_queue *other = another_handle(q);
    struct shmq_claim claim = claim_name(other, "query");
    struct leased run;

    put_bytes(q, 1);
    PUT(q, .group = 5);
    PUT(q, .group = 5);
    run = lease_run(other, &claim, 7, 9);
    EXPECT_SEQS(&run, 1, 2, 3);
    shmq_reclaim(q, other->attachment, q->attachments[other->attachment].process, now);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 0);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(shmq_ack(q, run.views[1].receipt, now), SHMQ_OK);
    CHECK_WELL(q);
    now += 31 * SECOND;
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 1, 3);
}

TEST("a newer claim fences the older one: its receipts and its token are void at once")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_claim old = claim_name(q, "query"), new;
    struct leased before, after;
    struct shmq_run run;
    struct shmq_view view;
    bool known;

    for (int i = 0; i < 5; i++)
        PUT(q, .group = 5 + i % 2);
    before = lease_run(q, &old, 7, 4);
    new = claim_name(q, "query");
    CHECK_EQ(shmq_ack(q, before.views[0].receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_extend(q, before.views[1].receipt, SECOND, now), SHMQ_STALE);
    CHECK_EQ(shmq_return(q, before.views[2].receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_mark_acked(q, before.views[3].receipt, now), SHMQ_STALE);
    shmq_run_begin(&run, &old, 8);
    CHECK_EQ(shmq_run_lease(q, &run, now, SECOND, &view), SHMQ_FENCED);
    CHECK_EQ(shmq_holder_of(q, &old, &known), SHMQ_NIL);
    CHECK(known);

    after = sort(q, &new, LEASE);
    EXPECT_SEQS(&after, 1, 2, 3, 4);
    CHECK_EQ(after.views[0].deliveries, 2);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(shmq_ack(q, before.views[i].receipt, now), SHMQ_STALE);
        CHECK_EQ(shmq_ack(q, after.views[i].receipt, now), SHMQ_OK);
    }
    CHECK_EQ(next_seq(q), 5);
    CHECK_WELL(q);
}

TEST("the same messages are leased again after their leases have run out, also those in the middle")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_claim claim = claim_name(q, "query");
    struct leased run;

    PUT(q, .group = 5);
    put_bytes(q, 1);
    PUT(q, .group = 5);
    run = lease_run(q, &claim, 7, 9);
    now += 31 * SECOND;
    PUT(q, .group = 5, .priority = 2);
    PUT(q, .priority = 2);
    shmq_tick(q, now);
    CHECK_EQ(q->h->visible, 5);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    claim = claim_name(q, "query");
    run = sort(q, &claim, LEASE);
    EXPECT_SEQS(&run, 1, 2, 3);
    CHECK_EQ(next_seq(q), 5);
    CHECK_EQ(next_seq(q), 0); /* 4 is of the group that the run holds */
}

TEST("a message that another holder has is not leased again; its tag is lost to another run only")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_claim claim = claim_name(q, "query"), another = claim_name(q, "another");
    struct shmq_view taken;
    struct leased run;

    for (int i = 0; i < 3; i++)
        put_bytes(q, 1);
    lease_run(q, &claim, 7, 9);
    now += 31 * SECOND;
    taken = take_next(q);
    CHECK_EQ(taken.seq, 1);
    EXPECT_SEQS((run = lease_run(q, &another, 1, 1), &run), 2);
    claim = claim_name(q, "query");
    EXPECT_SEQS((run = sort(q, &claim, LEASE), &run), 3);
    CHECK_EQ(shmq_return(q, taken.receipt, now), SHMQ_OK);
    claim = claim_name(q, "query");
    EXPECT_SEQS((run = sort(q, &claim, LEASE), &run), 1, 3);
}

TEST("tagged messages are acknowledged, or returned without their tag, leased or not")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_claim claim = claim_name(q, "query");
    struct leased run;

    put_groups(q, 2);
    lease_run(q, &claim, 7, 4);
    now += 31 * SECOND;
    lease_run(q, &claim, 8, 2);
    EXPECT_SEQS((run = sort(q, &claim, RETURN), &run), 1, 2, 3, 4);
    CHECK_EQ(sort(q, &claim, RETURN).count, 0);
    CHECK_EQ(q->h->visible, 6);
    lease_run(q, &claim, 9, 2);
    CHECK_EQ(sort(q, &claim, ACK).count, 2);
    CHECK_EQ(q->h->acked, 2);
    run = lease_run(q, NULL, 0, 9);
    EXPECT_SEQS(&run, 3, 4, 5, 6);
    CHECK_EQ(run.views[0].deliveries, 2); /* one lease has run out */
}

TEST("a message that was delivered too often dies when its run is leased again")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16, .policies[0].max_deliveries = 2,
                                     .dead_letters = 1);
    struct shmq_claim claim = claim_name(q, "query");

    PUT(q, .group = 5);
    PUT(q, .group = 5);
    lease_run(q, &claim, 7, 9);
    claim = claim_name(q, "query");
    CHECK_EQ(sort(q, &claim, LEASE).count, 2);
    claim = claim_name(q, "query");
    CHECK_EQ(sort(q, &claim, LEASE).count, 0);
    CHECK_EQ(q->h->dead, 2);
    CHECK_EQ(q->h->groups, 0);
}

TEST("names are forgotten: the oldest without leases, and by request")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 128);
    struct shmq_claim claims[SHMQ_HOLDERS], more;
    char name[8] = "q00";
    bool known;

    for (int i = 0; i < (int)SHMQ_HOLDERS; i++) {
        name[1] = (char)('0' + i / 10);
        name[2] = (char)('0' + i % 10);
        claims[i] = claim_name(q, name);
        put_bytes(q, 1);
        CHECK_EQ(lease_run(q, &claims[i], 1, 1).count, 1);
    }
    CHECK_EQ(shmq_claim_name(q, 77, "more", 4, &more), SHMQ_CROWDED);
    CHECK_EQ(sort(q, &claims[9], RETURN).count, 1);
    CHECK_EQ(shmq_claim_name(q, 77, "more", 4, &more), SHMQ_OK);
    CHECK_EQ(shmq_holder_of(q, &claims[9], &known), SHMQ_NIL);
    CHECK(!known);
    shmq_forget_name(q, &claims[3]);
    CHECK_EQ(shmq_holder_of(q, &claims[3], &known), SHMQ_NIL);
    CHECK_WELL(q);
    now += 31 * SECOND; /* its leases, which nobody can settle, end in time */
    CHECK_EQ(drain(q), SHMQ_HOLDERS);
}

TEST("an entry that changed hands names nobody in the tags of before")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_claim claim = claim_name(q, "query");

    put_bytes(q, 1);
    lease_run(q, &claim, 7, 1);
    now += 31 * SECOND;
    shmq_tick(q, now);
    shmq_forget_name(q, &claim);
    claim = claim_name(q, "another");
    CHECK_EQ(sort(q, &claim, LEASE).count, 0);
    claim = claim_name(q, "query");
    CHECK_EQ(sort(q, &claim, LEASE).count, 0);
}

TEST("a new message in a slot has no tag of the one before")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_claim claim = claim_name(q, "query");
    struct leased run;

    put_bytes(q, 1);
    run = lease_run(q, &claim, 7, 1);
    CHECK_EQ(shmq_ack(q, run.views[0].receipt, now), SHMQ_OK);
    put_bytes(q, 1);
    CHECK_EQ(sort(q, &claim, LEASE).count, 0);
    CHECK_EQ(next_seq(q), 2);
}

TEST("messages are leased into a run by their numbers")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 16);
    struct shmq_claim claim = claim_name(q, "query");
    struct shmq_view view;
    struct shmq_run run;

    for (int i = 0; i < 4; i++)
        PUT(q, .group = 5);
    shmq_run_begin(&run, &claim, 7);
    for (uint32_t at = 1; at < 4; at++)
        CHECK_EQ(shmq_run_lease_at(q, &run, at, at + 1, now, SECOND, &view), SHMQ_OK);
    CHECK_EQ(shmq_run_lease_at(q, &run, 1, 2, now, SECOND, &view), SHMQ_STALE);
    CHECK_EQ(shmq_run_lease_at(q, &run, 0, 9, now, SECOND, &view), SHMQ_STALE);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 0);
    run.epoch = 8; /* another run: the group is not its own */
    CHECK_EQ(shmq_run_lease_at(q, &run, 0, 1, now, SECOND, &view), SHMQ_STALE);
}
