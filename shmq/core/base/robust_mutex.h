/* Robust mutexes between processes: a thread that takes one over from a dead holder is told so.
 *
 * When a thread dies, the kernel marks its mutexes, using a list that the thread maintains. If
 * shared memory is damaged, the holder's death may never be marked. So a thread that waits in vain
 * examines the thread that the mutex names, and takes the mutex over if that thread is not inside
 * (shmq_robust_mutex_judge). */
#ifndef SHMQ_BASE_ROBUST_MUTEX_H
#define SHMQ_BASE_ROBUST_MUTEX_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/shared_memory.h"

#define SHMQ_LOCK_BYTES 48    /* fits a pthread_mutex_t on every machine              */

/* A robust, process-shared mutex. */
union shmq_mutex {
    pthread_mutex_t mutex;
    char room[SHMQ_LOCK_BYTES];
};

_Static_assert(sizeof(pthread_mutex_t) <= SHMQ_LOCK_BYTES, "the locks have room");

/* glibc's `__kind` of a robust, process-shared mutex; with another value locking works differently
 * and may never end. And glibc's `__owner` of a mutex that can never be locked or unlocked again;
 * no thread leaves one in that state. */
#define SHMQ_ROBUST_MUTEX_KIND (16 | 128)
#define SHMQ_NOT_RECOVERABLE 0x7FFFFFFE

#define SHMQ_LOCK_SPINS 200
#define SHMQ_JUDGE_AFTER 1000000 /* ns of failed waiting before the holder is examined */

/* Initializes the mutex in shared memory: SHMQ_OK, SHMQ_DAMAGED. */
int shmq_robust_mutex_init(union shmq_mutex *lock);

/* Returns 0; EBUSY; EOWNERDEAD: taken from a holder that died; any other error: it is damaged. */
static inline int shmq_robust_mutex_try(union shmq_mutex *lock)
{
    if (__builtin_expect(GET_ATOMIC(lock->mutex.__data.__kind) != SHMQ_ROBUST_MUTEX_KIND ||
                             GET_ATOMIC(lock->mutex.__data.__owner) == SHMQ_NOT_RECOVERABLE,
                         0))
        return EINVAL;
    return pthread_mutex_trylock(&lock->mutex);
}

/* The same, spinning for at most a few microseconds. */
static inline int shmq_robust_mutex_spin(union shmq_mutex *lock)
{
    int error = shmq_robust_mutex_try(lock);

    for (int spin = 0; error == EBUSY && spin < SHMQ_LOCK_SPINS; spin++) {
        shmq_pause();
        error = shmq_robust_mutex_try(lock);
    }
    return error;
}

/* The same, waiting in the kernel until `end`, monotonic ns; call it without the GIL. A wait of
 * SHMQ_JUDGE_AFTER or more that fails has examined the holder. */
int shmq_robust_mutex_wait(union shmq_mutex *lock, int64_t end);

/* Spins, then waits in the kernel for up to `ns`. */
int shmq_robust_mutex_take(union shmq_mutex *lock, int64_t ns);

/* Examines the thread that the mutex names. EBUSY: it may be inside. 0: it is not inside, and the
 * mutex that it left locked can be taken now. EINVAL: the mutex is damaged beyond that. */
int shmq_robust_mutex_judge(union shmq_mutex *lock);

/* After EOWNERDEAD, once the need for recovery is recorded: makes the mutex consistent again. 0, or
 * an error. */
int shmq_robust_mutex_mend(union shmq_mutex *lock);

/* The thread that the mutex names; 0 if none. */
uint32_t shmq_robust_mutex_holder(const union shmq_mutex *lock);

void shmq_robust_mutex_drop(union shmq_mutex *lock);

/* Converts these results to SHMQ_OK, SHMQ_BUSY or SHMQ_DAMAGED. */
int shmq_robust_mutex_status(int error);

/* What the kernel knows about the thread that a lock's word names. Reads /proc, so it is called
 * only after a wait for a lock has failed. */

/* Whether the thread runs, or waits for a CPU or a disk, so that it will continue by itself. A
 * stopped or sleeping thread will not. */
bool shmq_is_at_work(uint32_t thread);

/* How long a thread that has waited `waited` ns for a lock may now wait for it in the kernel before
 * it checks for signals; 0: it must give up. `until` is its operation's deadline, monotonic ns.
 * INT64_MAX means no limit. 0 means an operation without a timeout: it waits for 100 ms, or up to
 * 1 s while the holder is running. The effective deadline is at least 100 ms away, because no
 * caller can know that a lock is free. */
int64_t shmq_patience(int64_t waited, int64_t until, uint32_t holder);

/* Limits every lock wait of the calling thread to `ns` from now on, whatever the operation; 0
 * removes the limit. */
void shmq_limit_patience(int64_t ns);

#endif
