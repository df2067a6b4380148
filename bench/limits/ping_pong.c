/* ping_pong HERE_CORE THERE_CORE TRIPS PAUSE_NS HOW: the round trips between two processes,
 * p50 and p99 in ns. HOW is "sleep", with a semaphore for each direction, or "spin", with a
 * number in shared memory for each. Between two trips HERE pauses, so that THERE sleeps. */
#include "sides.h"

#include <semaphore.h>

struct court {
    sem_t ping, pong;
    _Alignas(64) _Atomic uint64_t served;
    _Alignas(64) _Atomic uint64_t returned;
};

static struct court *court;
static int64_t *taken;
static uint64_t trips;
static int64_t pause_ns;
static bool spinning, alone;

static void swait(sem_t *semaphore)
{
    while (sem_wait(semaphore))
        continue;
}

static void await(_Atomic uint64_t *number, uint64_t value)
{
    while (atomic_load_explicit(number, memory_order_acquire) != value)
        relax(alone);
}

static void serve(void)
{
    struct timespec pause = {0, pause_ns};

    for (uint64_t trip = 1; trip <= trips; trip++) {
        int64_t begun;

        if (pause_ns)
            nanosleep(&pause, NULL);
        begun = now();
        if (spinning) {
            atomic_store_explicit(&court->served, trip, memory_order_release);
            await(&court->returned, trip);
        } else {
            sem_post(&court->ping);
            swait(&court->pong);
        }
        taken[trip - 1] = now() - begun;
    }
}

static void play_back(void)
{
    for (uint64_t trip = 1; trip <= trips; trip++) {
        if (spinning) {
            await(&court->served, trip);
            atomic_store_explicit(&court->returned, trip, memory_order_release);
        } else {
            swait(&court->ping);
            sem_post(&court->pong);
        }
    }
}

static int by_length(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        fail("usage: ping_pong HERE_CORE THERE_CORE TRIPS PAUSE_NS sleep|spin");
    trips = strtoull(argv[3], NULL, 10);
    pause_ns = strtoll(argv[4], NULL, 10);
    spinning = !strcmp(argv[5], "spin");
    alone = atoi(argv[1]) == atoi(argv[2]);
    court = shared(sizeof(*court));
    taken = malloc(trips * sizeof(*taken));
    if (!taken || sem_init(&court->ping, 1, 0) || sem_init(&court->pong, 1, 0))
        fail("the court cannot be made");
    two_sides(serve, atoi(argv[1]), play_back, atoi(argv[2]));
    qsort(taken, trips, sizeof(*taken), by_length);
    printf("%lld %lld\n", (long long)taken[trips / 2], (long long)taken[trips * 99 / 100]);
    return 0;
}
