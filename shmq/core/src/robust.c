#define _GNU_SOURCE
#include "robust.h"

#include <errno.h>
#include <sched.h>

#include "clock.h"
#include "crash.h"
#include "status.h"

#define SPINS 200

int shmq_robust_init(union shmq_mutex *lock)
{
    pthread_mutexattr_t attributes;
    int error;

    if (pthread_mutexattr_init(&attributes))
        return SHMQ_DAMAGED;
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    error = pthread_mutex_init(&lock->mutex, &attributes);
    shmq_mark();
    pthread_mutexattr_destroy(&attributes);
    return error ? SHMQ_DAMAGED : SHMQ_OK;
}

static int after_spinning(pthread_mutex_t *mutex)
{
    int error = pthread_mutex_trylock(mutex);

    for (int spin = 0; error == EBUSY && spin < SPINS; spin++) {
        sched_yield();
        error = pthread_mutex_trylock(mutex);
    }
    return error;
}

/* ThreadSanitizer does not know pthread_mutex_clocklock: it is made to see trylocks alone. */
static int in_the_kernel(pthread_mutex_t *mutex, int64_t ns)
{
    int64_t end = shmq_read_clock(CLOCK_MONOTONIC) + ns;
#ifdef __SANITIZE_THREAD__
    int error;

    while ((error = pthread_mutex_trylock(mutex)) == EBUSY &&
           shmq_read_clock(CLOCK_MONOTONIC) < end)
        sched_yield();
    return error;
#else
    struct timespec until = {end / 1000000000, end % 1000000000};

    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
#endif
}

int shmq_robust_take(union shmq_mutex *lock, int64_t ns, uint32_t *unsettled)
{
    int error = after_spinning(&lock->mutex);

    if (error == EBUSY && ns)
        error = in_the_kernel(&lock->mutex, ns);
    if (error == EOWNERDEAD) {
        SET(*unsettled, 1);
        error = pthread_mutex_consistent(&lock->mutex);
    }
    if (error == EBUSY || error == ETIMEDOUT)
        return SHMQ_BUSY;
    return error ? SHMQ_DAMAGED : SHMQ_OK;
}

void shmq_robust_drop(union shmq_mutex *lock) { (void)pthread_mutex_unlock(&lock->mutex); }
