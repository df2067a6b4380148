/* Robust mutexes between processes: a thread that gets one from a dead holder is told so.
 *
 * The kernel marks the mutexes of a thread that dies, by the list that the thread keeps of them.
 * What is in shared memory may be damaged, and then the holder's death may never be marked: so a
 * thread that waits in vain looks at the one that the mutex names, and takes over from one that is
 * not inside (shmq_robust_mutex_judge). */
#ifndef SHMQ_BASE_ROBUST_MUTEX_H
#define SHMQ_BASE_ROBUST_MUTEX_H

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/crash_points.h"

#define SHMQ_LOCK_BYTES 48    /* room for a pthread_mutex_t on every machine          */

/* A robust mutex that the processes share. */
union shmq_mutex {
    pthread_mutex_t mutex;
    char room[SHMQ_LOCK_BYTES];
};

_Static_assert(sizeof(pthread_mutex_t) <= SHMQ_LOCK_BYTES, "the locks have room");

/* What glibc has in `__kind` of a robust mutex that processes share; any other would be locked
 * in another way, perhaps one that never ends. And what it has in `__owner` of one that it would
 * refuse for ever, and not even set free: nobody leaves one so. */
#define SHMQ_ROBUST_MUTEX_KIND (16 | 128)
#define SHMQ_NOT_RECOVERABLE 0x7FFFFFFE

#define SHMQ_LOCK_SPINS 200
#define SHMQ_JUDGE_AFTER 1000000 /* ns waited in vain before the holder is looked at */

/* Makes the mutex in shared memory: SHMQ_OK, SHMQ_DAMAGED. */
int shmq_robust_mutex_init(union shmq_mutex *lock);

/* 0; EBUSY; EOWNERDEAD: it is held, and its holder before us died; all else: it is damaged. */
static inline int shmq_robust_mutex_try(union shmq_mutex *lock)
{
    if (__builtin_expect(GET_ATOMIC(lock->mutex.__data.__kind) != SHMQ_ROBUST_MUTEX_KIND ||
                             GET_ATOMIC(lock->mutex.__data.__owner) == SHMQ_NOT_RECOVERABLE,
                         0))
        return EINVAL;
    return pthread_mutex_trylock(&lock->mutex);
}

/* The same, spinning for at most some microseconds. */
static inline int shmq_robust_mutex_spin(union shmq_mutex *lock)
{
    int error = shmq_robust_mutex_try(lock);

    for (int spin = 0; error == EBUSY && spin < SHMQ_LOCK_SPINS; spin++) {
        shmq_pause();
        error = shmq_robust_mutex_try(lock);
    }
    return error;
}

/* The same, waiting in the kernel until `end`, monotonic ns; to be called without the GIL. Who
 * has waited in vain, for SHMQ_JUDGE_AFTER at least, has looked at the holder. */
int shmq_robust_mutex_wait(union shmq_mutex *lock, int64_t end);

/* Looks at the thread that the mutex names: EBUSY if it may be inside; 0 if it is to be had now,
 * from one that was not and has left it locked; EINVAL if it is damaged beyond that. */
int shmq_robust_mutex_judge(union shmq_mutex *lock);

/* After EOWNERDEAD, once it is written down that there is something to put right: the mutex
 * is good again. 0, or an error. */
int shmq_robust_mutex_mend(union shmq_mutex *lock);

/* The thread that the mutex names; 0: none. */
uint32_t shmq_robust_mutex_holder(const union shmq_mutex *lock);

void shmq_robust_mutex_drop(union shmq_mutex *lock);

/* SHMQ_OK, SHMQ_BUSY or SHMQ_DAMAGED of what these return. */
int shmq_robust_mutex_status(int error);

#endif
