/* Waiting for a semaphore, with sem_clockwait and where there is none. */
#define _GNU_SOURCE
#include "harness.h"

#include "base/clock.h"
#include "base/semaphore.h"

#include <errno.h>
#include <pthread.h>

#define MS 1000000ll
#define SECOND 1000000000ll

typedef int wait_function(sem_t *semaphore, int64_t end);

static wait_function *const ways[] = {shmq_semaphore_wait, shmq_semaphore_wait_wall};

static int64_t in(int64_t ns) { return shmq_read_clock(CLOCK_MONOTONIC) + ns; }

TEST("a post that is there is taken, also when the time is over")
{
    sem_t semaphore;

    for (int way = 0; way < 2; way++) {
        CHECK_EQ(sem_init(&semaphore, 0, 2), 0);
        CHECK_EQ(ways[way](&semaphore, in(SECOND)), 0);
        CHECK_EQ(ways[way](&semaphore, in(-SECOND)), 0);
        CHECK_EQ(ways[way](&semaphore, in(-SECOND)), -1);
        CHECK_EQ(errno, ETIMEDOUT);
        sem_destroy(&semaphore);
    }
}

TEST("a wait without a post ends at its time, not before")
{
    sem_t semaphore;

    CHECK_EQ(sem_init(&semaphore, 0, 0), 0);
    for (int way = 0; way < 2; way++) {
        int64_t end = in(5 * MS);

        CHECK_EQ(ways[way](&semaphore, end), -1);
        CHECK_EQ(errno, ETIMEDOUT);
        CHECK(in(MS) >= end); /* the two clocks may differ by what a correction of one makes */
    }
    sem_destroy(&semaphore);
}

static void *post(void *semaphore)
{
    CHECK_EQ(sem_post(semaphore), 0);
    return NULL;
}

TEST("a post of another thread ends a wait")
{
    for (int way = 0; way < 2; way++) {
        pthread_t thread;
        sem_t semaphore;

        CHECK_EQ(sem_init(&semaphore, 0, 0), 0);
        CHECK_EQ(pthread_create(&thread, NULL, post, &semaphore), 0);
        CHECK_EQ(ways[way](&semaphore, in(60 * SECOND)), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        sem_destroy(&semaphore);
    }
}
