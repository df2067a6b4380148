/* The arena: runs of units in a bitmap. */
#include "queue/slot.h"
#include "fixture.h"

#include <string.h>

static uint32_t take(struct shmq_queue *q, uint32_t units)
{
    uint32_t block;

    CHECK_EQ(shmq_arena_take(q, units, &block), SHMQ_OK);
    return block;
}

TEST("a run is rounded up to one of four sizes per doubling, which has a class of its own")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 1 << 20);
    uint32_t last = 0;

    for (uint64_t bytes = 1; bytes <= 70000; bytes++) {
        uint32_t units = shmq_units_for(q, bytes), class = shmq_class_of(units);

        CHECK(units * 64ull >= bytes);
        CHECK(units <= (bytes + 63) / 64 * 5 / 4 + 1);
        CHECK(units <= SHMQ_CLASS_UNITS ? class >= 1 && class <= 36 : class == 0);
        CHECK(class == 0 || class == last || class == last + 1);
        last = class;
    }
    CHECK_EQ(shmq_class_of(1024), 36);
    CHECK_EQ(shmq_units_for(q, 0), 0);
    CHECK_EQ(shmq_units_for(q, 64 * 1025), 1025);
}

TEST("what fits into the whole arena is not rounded up beyond it")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 1000);

    CHECK_EQ(shmq_units_for(q, 64 * 896), 896);
    CHECK_EQ(shmq_units_for(q, 64 * 897), 897);
    CHECK_EQ(shmq_units_for(q, 64 * 1000), 1000);
    CHECK_EQ(shmq_class_of(896), 35);
    CHECK_EQ(shmq_class_of(897), 0);
}

TEST("runs are taken first fit, and a run that was given back is taken again")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 300);

    CHECK_EQ(take(q, 100), 0);
    CHECK_EQ(take(q, 100), 100);
    CHECK_EQ(take(q, 50), 200);
    shmq_arena_give(q, 0, 100);
    CHECK_EQ(take(q, 60), 0);
    CHECK_EQ(take(q, 50), 250);
    CHECK_EQ(take(q, 40), 60);
}

TEST("what was given back in pieces is one run again")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 256);
    uint32_t block;

    for (uint32_t at = 0; at < 256; at++)
        CHECK_EQ(take(q, 1), at);
    for (uint32_t at = 0; at < 256; at += 2)
        shmq_arena_give(q, at, 1);
    CHECK_EQ(shmq_arena_take(q, 2, &block), SHMQ_FULL);
    CHECK_EQ(shmq_arena_largest(q), 1);
    for (uint32_t at = 1; at < 256; at += 2)
        shmq_arena_give(q, at, 1);
    CHECK_EQ(shmq_arena_largest(q), 256);
    CHECK_EQ(take(q, 256), 0);
    CHECK(!q->damaged);
}

TEST("a run may end exactly with the arena, and nothing lies behind it")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 70);
    uint32_t block;

    CHECK_EQ(take(q, 69), 0);
    CHECK_EQ(shmq_arena_take(q, 2, &block), SHMQ_FULL);
    CHECK_EQ(take(q, 1), 69);
    CHECK_EQ(shmq_arena_take(q, 1, &block), SHMQ_FULL);
    CHECK_EQ(shmq_arena_largest(q), 0);
    CHECK_EQ(shmq_arena_top(q), 70);
}

TEST("without memory the arena serves what it has, and says how much it wanted")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 1 << 20);
    uint32_t backed, block;

    CHECK_EQ(take(q, 1), 0);
    backed = q->h->units_backed;
    CHECK(backed > 1 && backed < q->geo.units);
    starve(q);
    CHECK_EQ(take(q, backed - 1), 1);
    CHECK_EQ(shmq_arena_take(q, 1, &block), SHMQ_NO_SPACE);
    CHECK(q->refused_bytes >= 64);
    CHECK_EQ(q->h->units_used, backed);
    feed(q);
    CHECK_EQ(take(q, 1), backed);
}

TEST("a run that is given back twice, or lies outside, is noticed as damage")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * 128);

    take(q, 64);
    shmq_arena_give(q, 0, 10);
    CHECK(!q->damaged);
    shmq_arena_give(q, 5, 10);
    CHECK(q->damaged);
    q->damaged = false;
    shmq_arena_give(q, 120, 9);
    CHECK(q->damaged);
    q->damaged = false;
    shmq_arena_give(q, UINT32_MAX, 2);
    CHECK(q->damaged);
}

TEST("a run that is claimed twice, or is not backed, is refused while rebuilding")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 1 << 20);
    uint32_t backed;

    take(q, 10);
    shmq_arena_clear(q);
    backed = q->h->units_backed;
    CHECK(shmq_arena_claim(q, 3, 5));
    CHECK(shmq_arena_claim(q, 8, 1));
    CHECK(!shmq_arena_claim(q, 7, 1));
    CHECK(!shmq_arena_claim(q, backed - 1, 2));
    CHECK(!shmq_arena_claim(q, UINT32_MAX, 1));
    CHECK(!shmq_arena_claim(q, 1, UINT32_MAX));
    CHECK_EQ(shmq_arena_top(q), 9);
}

/* ---- against an arena that is an array of bytes ---- */

#define UNITS 777u

static uint32_t first_fit(const bool *used, uint32_t units)
{
    uint32_t run = 0;

    for (uint32_t at = 0; at < UNITS; at++) {
        run = used[at] ? 0 : run + 1;
        if (run == units)
            return at + 1 - units;
    }
    return SHMQ_NIL;
}

static void compare(struct shmq_queue *q, const bool *used)
{
    uint32_t count = 0, top = 0, run = 0, most = 0;

    for (uint32_t at = 0; at < UNITS; at++) {
        bool bit = q->bitmap[at / 64] >> at % 64 & 1;

        CHECK_EQ(bit, used[at]);
        CHECK(used[at] || at >= q->h->units_hint);
        count += used[at];
        top = used[at] ? at + 1 : top;
        run = used[at] ? 0 : run + 1;
        most = run > most ? run : most;
    }
    CHECK_EQ(q->h->units_used, count);
    CHECK_EQ(shmq_arena_top(q), top);
    CHECK_EQ(shmq_arena_largest(q), most);
}

TEST("whatever is taken and given, it agrees with a naive first fit")
{
    struct shmq_queue *q = NEW_QUEUE(.arena_bytes = 64 * UNITS);
    struct chance chance = chance_of(1);
    bool used[UNITS] = {false};
    struct {
        uint32_t block, units;
    } runs[UNITS];
    uint32_t count = 0;

    for (int step = 0; step < 20000; step++) {
        /* Phases that mostly take and phases that mostly give visit full and empty. */
        bool taking = chance_below(&chance, 10) < (step / 500 % 2 ? 7u : 3u);
        uint32_t units = 1 + (uint32_t)chance_below(&chance, chance_below(&chance, 8) ? 12 : 150);

        if (taking && count < UNITS) {
            uint32_t wanted = first_fit(used, units), block = 0;
            int status = shmq_arena_take(q, units, &block);

            CHECK_EQ(status, wanted == SHMQ_NIL ? SHMQ_FULL : SHMQ_OK);
            if (status == SHMQ_OK) {
                CHECK_EQ(block, wanted);
                memset(used + block, true, units);
                runs[count].block = block;
                runs[count++].units = units;
            }
        } else if (count) {
            uint32_t which = (uint32_t)chance_below(&chance, count);

            shmq_arena_give(q, runs[which].block, runs[which].units);
            memset(used + runs[which].block, false, runs[which].units);
            runs[which] = runs[--count];
        }
        if (step % 16 == 0)
            compare(q, used);
    }
    CHECK(!q->damaged);
}
