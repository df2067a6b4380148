/* Time: leases, delays and timeouts use the monotonic clock, in ns. Wall time is only shown or
 * stored. */
#pragma once

#include <stdint.h>
#include <time.h>

extern int64_t shmq_clock_set; /* tests: the monotonic time of this process; 0: the real one */

static inline int64_t shmq_read_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t shmq_now(void)
{
    if (__builtin_expect(shmq_clock_set != 0, 0))
        return shmq_clock_set;
    return shmq_read_clock(CLOCK_MONOTONIC);
}

/* The most that shmq_coarse_now may lag behind shmq_now: a tick of the slowest kernel. */
#define SHMQ_COARSE 10000000ll

static inline int64_t shmq_coarse_now(void)
{
    if (__builtin_expect(shmq_clock_set != 0, 0))
        return shmq_clock_set;
    return shmq_read_clock(CLOCK_MONOTONIC_COARSE);
}

/* One turn of a spin. */
static inline void shmq_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The most that it may lag behind now: a lease that begins at it is made longer by that. */
static inline int64_t shmq_coarse_lag(void) { return shmq_clock_set ? 0 : SHMQ_COARSE; }

static inline int64_t shmq_wall(void) { return shmq_read_clock(CLOCK_REALTIME); }
