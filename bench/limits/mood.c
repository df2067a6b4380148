/* mood HERE_CORE THERE_CORE: what the machine does at this moment. Prints in ns what a cache line
 * takes from one core to the other (the median of many crossings), and what the same arithmetic
 * takes on each core (the fastest of a few, so that a process that is stopped does not count). */
#include "sides.h"

#define TRIPS 4000u
#define LOOPS 5
#define STEPS 100000u

struct court {
    _Alignas(64) _Atomic uint64_t served;
    _Alignas(64) _Atomic uint64_t returned;
    _Alignas(64) int64_t pace_there;
};

static struct court *court;
static int64_t taken[TRIPS], pace_here;
static bool alone;

/* A chain of multiplications, each of which waits for the one before. */
static int64_t pace(void)
{
    int64_t fastest = INT64_MAX;

    for (int loop = 0; loop < LOOPS; loop++) {
        volatile uint64_t seed = 88172645463325252u;
        uint64_t value = seed;
        int64_t begun = now(), length;

        for (unsigned step = 0; step < STEPS; step++)
            value = value * 6364136223846793005u + 1442695040888963407u;
        seed = value;
        length = now() - begun;
        fastest = length < fastest ? length : fastest;
    }
    return fastest;
}

static void serve(void)
{
    for (uint64_t trip = 1; trip <= TRIPS; trip++) {
        int64_t begun = now();

        atomic_store_explicit(&court->served, trip, memory_order_release);
        while (atomic_load_explicit(&court->returned, memory_order_acquire) != trip)
            relax(alone);
        taken[trip - 1] = now() - begun;
    }
    pace_here = pace();
}

static void play_back(void)
{
    for (uint64_t trip = 1; trip <= TRIPS; trip++) {
        while (atomic_load_explicit(&court->served, memory_order_acquire) != trip)
            relax(alone);
        atomic_store_explicit(&court->returned, trip, memory_order_release);
    }
    court->pace_there = pace();
}

static int by_length(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("usage: mood HERE_CORE THERE_CORE");
    alone = atoi(argv[1]) == atoi(argv[2]);
    court = shared(sizeof(*court));
    two_sides(serve, atoi(argv[1]), play_back, atoi(argv[2]));
    qsort(taken, TRIPS, sizeof(*taken), by_length);
    printf("%.1f %lld %lld\n", (double)taken[TRIPS / 2] / 2, (long long)pace_here,
           (long long)court->pace_there);
    return 0;
}
