#define _GNU_SOURCE
#include "base/semaphore.h"

#include <time.h>

#include "base/clock.h"

/* NULL where the C library has none. */
extern int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
    __attribute__((weak));

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

int shmq_semaphore_wait_wall(sem_t *semaphore, int64_t end)
{
    int64_t left = end - shmq_read_clock(CLOCK_MONOTONIC);
    struct timespec until = timespec_of(shmq_wall() + (left > 0 ? left : 0));

    return sem_timedwait(semaphore, &until);
}

int shmq_semaphore_wait(sem_t *semaphore, int64_t end)
{
    struct timespec until = timespec_of(end);

    if (__builtin_expect(!sem_clockwait, 0))
        return shmq_semaphore_wait_wall(semaphore, end);
    return sem_clockwait(semaphore, CLOCK_MONOTONIC, &until);
}
