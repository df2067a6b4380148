/* Threads, each with a handle of its own, over one mapping. Also what ThreadSanitizer is
 * for: it sees every access to the segment that is not ordered by the lock or an atomic. */
#include "clock.h"
#include "crowd.h"

#include <pthread.h>

#define WORKERS (CROWD_PRODUCERS + CROWD_CONSUMERS)

struct worker {
    pthread_t thread;
    struct shmq_queue *q;
    struct crowd *c;
    uint32_t number;
    uint64_t seed;
};

static void *produce(void *argument)
{
    struct worker *w = argument;

    crowd_produce(w->q, w->c, w->number, w->seed + w->number);
    return NULL;
}

static void *consume(void *argument)
{
    struct worker *w = argument;

    crowd_consume(w->q, w->c, w->seed + w->number);
    return NULL;
}

static void *peek(void *argument)
{
    struct worker *w = argument;

    crowd_peek(w->q, w->c, w->seed + w->number);
    return NULL;
}

static void *(*role_of(uint32_t number))(void *)
{
    if (number < CROWD_PRODUCERS)
        return produce;
    return number < WORKERS ? consume : peek;
}

static void run_together(struct shmq_queue *q, uint64_t seed, bool peeking)
{
    struct crowd *c = crowd_new(0);
    struct worker workers[WORKERS + 1];
    uint32_t count = WORKERS + peeking;

    seed = seed_or(seed);
    for (uint32_t i = 0; i < count; i++)
        workers[i] = (struct worker){.q = another_handle(q), .c = c, .number = i, .seed = seed};
    shmq_clock_set = 0; /* these live in real time */
    crowd_unlock(q, c);
    for (uint32_t i = 0; i < count; i++)
        CHECK(!pthread_create(&workers[i].thread, NULL, role_of(i), &workers[i]));
    for (uint32_t i = 0; i < count; i++)
        CHECK(!pthread_join(workers[i].thread, NULL));
    crowd_verify(q, c);
    crowd_free(c);
}

TEST("threads get every message once, one of a group at a time and in order")
{
    run_together(NEW_QUEUE(.capacity = 64, .visibility = 3600 * SECOND), 31, false);
}

TEST("threads do so though others look at the messages as they pass")
{
    run_together(NEW_QUEUE(.capacity = 200, .visibility = 3600 * SECOND), 32, true);
}

TEST("threads do so where the queue is nearly always full, and everyone sleeps")
{
    run_together(NEW_QUEUE(.capacity = 3, .visibility = 3600 * SECOND), 33, false);
}
