/* A group: its members, the owner of each partition, and the committed offsets. */
#include "harness.h"
#include "registered.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stream/group_state.h"

#define SECOND 1000000000ll
#define START 1000

static int64_t now = START;

static struct shmq_group_state *new_group_state(const struct shmq_group_state_options *wanted,
                                                uint32_t partitions)
{
    static struct shmq_group_state r;
    struct shmq_group_state_options options = *wanted;
    void *base;

    options.group_id |= 1;
    now = START;
    base = mmap(NULL, shmq_group_state_bytes(&options), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    CHECK_EQ(shmq_group_state_format(base, shmq_group_state_bytes(&options), &options), SHMQ_OK);
    CHECK_EQ(shmq_group_state_open(&r, base, shmq_group_state_bytes(&options), registered()),
             SHMQ_OK);
    CHECK_EQ(shmq_group_state_lock(&r, 0), SHMQ_OK);
    CHECK_EQ(shmq_group_state_widen(&r, partitions), SHMQ_OK);
    return &r;
}
#define NEW_GROUP(partitions, ...) \
    new_group_state(&(struct shmq_group_state_options){.session = SECOND, __VA_ARGS__}, partitions)
#define NEW_SHARE(partitions, ...)                                               \
    new_group_state(                                                             \
        &(struct shmq_group_state_options){                                      \
            .assignment = SHMQ_SHARED, .lease = SECOND, .held = 8, __VA_ARGS__}, \
        partitions)

static uint64_t join(struct shmq_group_state *r)
{
    uint32_t at;
    uint64_t id;

    CHECK_EQ(shmq_group_state_join(r, 1, "someone", now, &at, &id), SHMQ_OK);
    CHECK_EQ(atomic_load(&r->members[at].id), id);
    return id;
}

/* All of the partitions for `id`. */
static void mean_for(struct shmq_group_state *r, uint64_t id)
{
    uint64_t whom[SHMQ_MAX_GROUP_PARTITIONS];

    for (uint32_t p = 0; p < r->h->partitions; p++)
        whom[p] = id;
    CHECK_EQ(shmq_group_state_plan(r, r->h->epoch, whom, r->h->partitions), SHMQ_OK);
}

TEST("a partition is had by the one it is meant for, and by nobody else")
{
    struct shmq_group_state *r = NEW_GROUP(2);
    uint64_t a = join(r), b = join(r);

    CHECK_EQ(shmq_group_partition_claim(r, 0, a), SHMQ_STALE); /* no plan yet */
    mean_for(r, a);
    CHECK_EQ(shmq_group_partition_claim(r, 0, a), SHMQ_OK);
    CHECK_EQ(shmq_group_partition_claim(r, 0, a), SHMQ_OK);
    CHECK_EQ(shmq_group_partition_claim(r, 0, b), SHMQ_STALE);
    CHECK_EQ(shmq_group_partition_claim(r, 2, a), SHMQ_STALE); /* there is none */
    mean_for(r, b);
    CHECK_EQ(shmq_group_partition_claim(r, 0, b), SHMQ_BUSY);
    CHECK_EQ(shmq_group_partition_commit(r, 0, a, 7, 1), SHMQ_OK); /* still its own */
    CHECK_EQ(shmq_group_partition_release(r, 0, b), SHMQ_STALE);
    CHECK_EQ(shmq_group_partition_release(r, 0, a), SHMQ_OK);
    CHECK_EQ(shmq_group_partition_claim(r, 0, b), SHMQ_OK);
    CHECK_EQ(shmq_group_partition_commit(r, 0, a, 8, 1), SHMQ_STALE);
    CHECK_EQ(r->partitions[0].committed, 7);
    CHECK_EQ(r->partitions[1].committed, SHMQ_NO_OFFSET);
}

TEST("a plan of an older epoch is refused, and nothing is claimed by it")
{
    struct shmq_group_state *r = NEW_GROUP(1);
    uint64_t a = join(r), epoch = r->h->epoch, whom[] = {a};

    mean_for(r, a);
    join(r);
    CHECK_EQ(shmq_group_state_plan(r, epoch, whom, 1), SHMQ_STALE);
    CHECK_EQ(shmq_group_partition_claim(r, 0, a), SHMQ_STALE);
}

TEST("a member that leaves has no partitions, and commits no more")
{
    struct shmq_group_state *r = NEW_GROUP(1);
    uint64_t a = join(r), b = join(r), change = r->h->change;

    mean_for(r, a);
    CHECK_EQ(shmq_group_partition_claim(r, 0, a), SHMQ_OK);
    CHECK_EQ(shmq_group_state_leave(r, a, true, now), SHMQ_OK);
    CHECK_EQ(shmq_group_state_leave(r, a, true, now), SHMQ_STALE);
    CHECK_EQ(r->h->evicted, 1);
    CHECK_EQ(r->partitions[0].owner, 0);
    CHECK(r->h->change > change);
    CHECK_EQ(shmq_group_partition_commit(r, 0, a, 1, 1), SHMQ_STALE);
    CHECK_EQ(shmq_group_partition_commit(r, 0, 0, 5, 1), SHMQ_OK); /* nobody's: from outside */
    mean_for(r, b);
    CHECK_EQ(shmq_group_partition_claim(r, 0, b), SHMQ_OK);
    CHECK_EQ(shmq_group_partition_commit(r, 0, 0, 6, 1), SHMQ_STALE);
}

TEST("a member that is silent for longer than the session is named; others are not")
{
    struct shmq_group_state *r = NEW_GROUP(1);
    uint32_t at;
    uint64_t a, b = join(r);

    CHECK_EQ(shmq_group_state_join(r, 2, "a name that is far longer than there is room for it", now,
                                   &at, &a),
             SHMQ_OK);
    CHECK_EQ(strlen(r->members[at].name), SHMQ_MEMBER_NAME - 1);
    now += SECOND;
    CHECK_EQ(shmq_group_state_silent(r, now), 0);
    CHECK_EQ(shmq_group_state_beat(r, at, a, now), SHMQ_OK);
    now += 1;
    CHECK_EQ(shmq_group_state_silent(r, now), b);
    CHECK_EQ(shmq_group_state_leave(r, b, true, now), SHMQ_OK);
    CHECK_EQ(shmq_group_state_silent(r, now), 0);
    CHECK_EQ(shmq_group_state_beat(r, at, b, now), SHMQ_STALE);
    CHECK_EQ(shmq_group_state_beat(r, SHMQ_NIL, a, now), SHMQ_STALE);
}

TEST("one of all looks after the others, once in a period")
{
    struct shmq_group_state *r = NEW_GROUP(1);

    CHECK(shmq_group_state_watch(r, 100, now += 1000));
    CHECK(!shmq_group_state_watch(r, 100, now + 99));
    CHECK(shmq_group_state_watch(r, 100, now + 100));
}

TEST("a group takes as many members as there is room for")
{
    struct shmq_group_state *r = NEW_GROUP(1);
    uint32_t at;
    uint64_t id;

    for (uint32_t i = 0; i < SHMQ_MAX_MEMBERS; i++)
        join(r);
    CHECK_EQ(shmq_group_state_join(r, 1, "", now, &at, &id), SHMQ_CROWDED);
    CHECK_EQ(shmq_group_state_widen(r, SHMQ_MAX_GROUP_PARTITIONS + 1), SHMQ_CROWDED);
}

TEST("one that died inside leaves a group that goes on")
{
    struct shmq_group_state *r = NEW_GROUP(1);
    uint64_t a = join(r), epoch;
    int status;

    mean_for(r, a);
    CHECK_EQ(shmq_group_partition_claim(r, 0, a), SHMQ_OK);
    epoch = r->h->epoch;
    shmq_group_state_unlock(r);
    if (!fork()) {
        shmq_group_state_lock(r, SECOND);
        atomic_store(&r->members[0].id, 0); /* as far as leaving came */
        _exit(0);
    }
    wait(&status);
    CHECK_EQ(shmq_group_state_lock(r, SECOND), SHMQ_OK);
    CHECK_EQ(r->partitions[0].owner, 0);
    CHECK_EQ(r->h->recoveries, 1);
    CHECK(r->h->epoch > epoch);
}

TEST("a deleted group says so, and what is not a group is refused")
{
    struct shmq_group_state *r = NEW_GROUP(1), other;
    uint64_t bytes = r->h->bytes;

    shmq_group_state_close(r);
    shmq_group_state_unlock(r);
    CHECK_EQ(shmq_group_state_lock(r, 0), SHMQ_DELETED);
    CHECK_EQ(shmq_group_state_beat(r, 0, 1, now), SHMQ_DELETED);
    CHECK_EQ(shmq_group_state_open(&other, r->h, bytes - 1, registered()), SHMQ_TRUNCATED);
    CHECK_EQ(shmq_group_state_open(&other, r->h, 10, registered()), SHMQ_TRUNCATED);
    r->h->options.held = 1;
    CHECK_EQ(shmq_group_state_open(&other, r->h, bytes, registered()), SHMQ_DAMAGED);
    r->h->published++;
    CHECK_EQ(shmq_group_state_open(&other, r->h, bytes, registered()), SHMQ_INCOMPATIBLE);
    r->h->published = 0;
    CHECK_EQ(shmq_group_state_open(&other, r->h, bytes, registered()), SHMQ_NOT_READY);
    CHECK_EQ(shmq_group_state_format(r->h, bytes, &(struct shmq_group_state_options){.held = 3}),
             SHMQ_DAMAGED);
}

/* ---- sharing ---- */

static uint32_t lend(struct shmq_group_state *r, uint64_t id, uint64_t latest, uint32_t limit,
                     struct shmq_shared_lease *lent)
{
    uint32_t count;

    shmq_shared_group_begin(r, 0, 0);
    CHECK_EQ(shmq_shared_group_lease(r, id, 0, 0, latest, limit, now, lent, &count), SHMQ_OK);
    return count;
}

/* The record's next delivery, handed out. */
static struct shmq_shared_lease again(struct shmq_group_state *r, uint64_t id)
{
    struct shmq_shared_lease lent;

    CHECK_EQ(shmq_shared_group_lease_returned(r, id, 1, now, &lent), 1);
    CHECK_EQ(shmq_shared_group_hand(r, lent.receipt, now), SHMQ_OK);
    return lent;
}

TEST("one stuck record holds neither the others nor the partition")
{
    struct shmq_group_state *r = NEW_SHARE(1);
    struct shmq_shared_lease stuck, lent;
    uint64_t a = join(r), lows[SHMQ_MAX_GROUP_PARTITIONS];

    CHECK_EQ(lend(r, a, 1000, 1, &stuck), 1);
    for (uint64_t offset = 1; offset < 1000; offset++) {
        CHECK_EQ(lend(r, a, 1000, 1, &lent), 1);
        CHECK_EQ(lent.offset, offset);
        CHECK_EQ(shmq_shared_group_ack(r, lent.receipt, now), SHMQ_OK);
        CHECK_EQ(shmq_shared_group_ack(r, lent.receipt, now), SHMQ_STALE);
    }
    CHECK_EQ(lend(r, a, 1000, 1, &lent), 0);
    CHECK_EQ(r->h->live, 1);
    shmq_shared_group_lows(r, lows);
    CHECK_EQ(lows[0], 0);
    CHECK_EQ(shmq_shared_group_ack(r, stuck.receipt, now), SHMQ_OK);
    CHECK_EQ(r->h->acked, 1000);
    shmq_shared_group_lows(r, lows);
    CHECK_EQ(lows[0], 1000);
}

TEST("a record comes back when it is returned, when its lease ends, and when its holder goes")
{
    struct shmq_group_state *r = NEW_SHARE(1);
    struct shmq_shared_lease lent;
    uint64_t a = join(r), b = join(r);

    CHECK_EQ(lend(r, a, 1, 1, &lent), 1);
    CHECK_EQ(shmq_shared_group_lease_returned(r, b, 1, now, &lent), 0);
    CHECK_EQ(shmq_shared_group_nack(r, lent.receipt, 10, now), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_lease_returned(r, b, 1, now, &lent), 0);
    CHECK_EQ(shmq_shared_group_due(r), now + 10);
    now += 10;
    CHECK_EQ(again(r, b).deliveries, 0); /* the first was handed to nobody */
    now += SECOND - 1;
    CHECK_EQ(shmq_shared_group_lease_returned(r, a, 1, now, &lent), 0);
    now += 1;
    CHECK_EQ(again(r, a).deliveries, 1);
    CHECK_EQ(shmq_group_state_leave(r, a, true, now), SHMQ_OK);
    lent = again(r, b);
    CHECK_EQ(lent.deliveries, 2);
    CHECK_EQ(shmq_shared_group_extend(r, lent.receipt, 5 * SECOND, now), SHMQ_OK);
    now += 4 * SECOND;
    CHECK_EQ(shmq_shared_group_ack(r, lent.receipt, now), SHMQ_OK);
}

TEST("at the limit a record goes to the dead letters, or is dropped where there are none")
{
    struct shmq_group_state *r = NEW_SHARE(1, .max_deliveries = 2);
    struct shmq_shared_lease lent;
    uint64_t a = join(r);

    CHECK_EQ(lend(r, a, 2, 1, &lent), 1);
    CHECK_EQ(shmq_shared_group_hand(r, lent.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_nack(r, lent.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_nack(r, again(r, a).receipt, 0, now), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_lease_returned(r, a, 1, now, &lent), 0);
    CHECK_EQ(r->h->dropped, 1);
    CHECK_EQ(r->h->live, 0);

    r = NEW_SHARE(1, .dead_letter = "graves");
    a = join(r);
    CHECK_EQ(shmq_shared_group_take_dead(r, a, now, &lent), SHMQ_EMPTY);
    CHECK_EQ(lend(r, a, 2, 1, &lent), 1);
    CHECK_EQ(shmq_shared_group_reject(r, lent.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_take_dead(r, a, now, &lent), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_ack(r, lent.receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_group_state_leave(r, a, true, now), SHMQ_OK); /* the mover died */
    a = join(r);
    CHECK_EQ(shmq_shared_group_moved(r, lent.receipt, 1), SHMQ_STALE);
    CHECK_EQ(shmq_shared_group_take_dead(r, a, now, &lent), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_moved(r, lent.receipt, 1), SHMQ_OK);
    CHECK_EQ(r->h->dead_lettered, 1);
    CHECK_EQ(r->h->live, 0);
}

TEST("a record that is returned unseen counts no delivery")
{
    struct shmq_group_state *r = NEW_SHARE(1, .max_deliveries = 1);
    struct shmq_shared_lease lent;
    uint64_t a = join(r);

    CHECK_EQ(lend(r, a, 1, 1, &lent), 1);
    CHECK_EQ(shmq_shared_group_hand(r, lent.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_return(r, lent.receipt, 10, now), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_return(r, lent.receipt, 0, now), SHMQ_STALE);
    CHECK_EQ(shmq_shared_group_due(r), now + 10);
    now += 10;
    lent = again(r, a);
    CHECK_EQ(lent.deliveries, 0);
    CHECK_EQ(shmq_shared_group_return(r, lent.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(r->h->dropped, 0);
}

TEST("no more is held than there is room for, and what was overwritten is passed over")
{
    struct shmq_group_state *r = NEW_SHARE(1);
    struct shmq_shared_lease lent[8], more;
    uint64_t a = join(r);
    uint32_t count;

    CHECK_EQ(lend(r, a, 100, 8, lent), 8);
    CHECK_EQ(shmq_shared_group_lease(r, a, 0, 0, 100, 1, now, &more, &count), SHMQ_FULL);
    CHECK_EQ(shmq_shared_group_lost(r, lent[3].receipt), SHMQ_OK);
    CHECK_EQ(shmq_shared_group_lease(r, a, 0, 50, 100, 5, now, &more, &count), SHMQ_OK);
    CHECK_EQ(count, 1);
    CHECK_EQ(more.offset, 50);
    CHECK_EQ(r->h->skipped, 43);
}

TEST("a death between the lease of a record and the next offset loses no record")
{
    struct shmq_group_state *r = NEW_SHARE(1);
    struct shmq_shared_lease lent;
    uint64_t a = join(r);

    CHECK_EQ(lend(r, a, 9, 1, &lent), 1);
    atomic_store(&r->partitions[0].next, 0); /* the store that its death left out */
    r->h->live = 0;
    atomic_store(&r->h->lock.word, dead_number() << 1);
    CHECK_EQ(shmq_group_state_lock(r, SECOND), SHMQ_OK);
    CHECK_EQ(r->partitions[0].next, 1);
    CHECK_EQ(r->h->live, 1);
    CHECK_EQ(lend(r, a, 9, 1, &lent), 1);
    CHECK_EQ(lent.offset, 1);
}
