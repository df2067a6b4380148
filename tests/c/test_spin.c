#include "base/spin.h"
#include "harness.h"

static struct shmq_spin_rate rate;

/* Waits once, with a spin that succeeds after `took` ns, or fails (-1): whether it was tried. */
static bool wait_once(int64_t took)
{
    int64_t ns = shmq_spin_time(&rate);

    if (ns)
        shmq_spin_learn(&rate, ns, took);
    return ns != 0;
}

static int tried(int waits, int64_t took)
{
    int spins = 0;

    for (int i = 0; i < waits; i++)
        spins += wait_once(took);
    return spins;
}

TEST("a spin lasts as long as two sleeps cost, within bounds, and at least what was asked for")
{
    int64_t cost = shmq_sleep_cost();

    CHECK(cost >= 10000 && cost <= 100000);
    CHECK_EQ(shmq_sleep_cost(), cost);
    shmq_spin_init(&rate, 0);
    CHECK_EQ(shmq_spin_time(&rate), cost);
    shmq_spin_init(&rate, 200000);
    CHECK_EQ(shmq_spin_time(&rate), 200000);
}

TEST("a few long waits do not end the spins of a pair that is quick")
{
    shmq_spin_init(&rate, 0);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(tried(8, -1), 8);
        CHECK_EQ(tried(8, 500), 8);
    }
}

TEST("spins that fail are tried more and more seldom")
{
    shmq_spin_init(&rate, 0);
    CHECK(tried(64, -1) > 16);
    CHECK(tried(4096, -1) < 32);
    CHECK(tried(4096, -1) >= 4096 / 256 - 1);
}

TEST("one success is enough to go on spinning")
{
    shmq_spin_init(&rate, 0);
    tried(10000, -1);
    while (!wait_once(500))
        continue;
    CHECK(wait_once(500));
    CHECK(wait_once(-1));
    CHECK_EQ(tried(100, 500), 100);
}

TEST("a spin whose core was taken away counts as several that failed")
{
    shmq_spin_init(&rate, 0);
    CHECK_EQ(tried(11, 5000000), 4);
}

TEST("a partner that is never quick gets the core from the start, with a test now and then")
{
    int late = 0;

    shmq_spin_init(&rate, 0);
    CHECK(shmq_spin_time(&rate) && rate.yield_after);
    tried(8, 6000);
    for (int i = 0; i < 64; i++) {
        late += wait_once(6000) && !rate.yield_after;
    }
    CHECK_EQ(late, 60);
    for (int i = 0; i < 17 && rate.late; i++)
        CHECK(wait_once(900));
    CHECK(wait_once(900) && rate.yield_after);
}
