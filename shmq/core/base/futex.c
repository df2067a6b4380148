#define _GNU_SOURCE
#include "base/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "base/status.h"

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *time,
                  uint32_t bits)
{
    return syscall(SYS_futex, word, what, value, time, NULL, bits);
}

int shmq_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    return shmq_futex_wait_bits(word, value, FUTEX_BITSET_MATCH_ANY, ns);
}

/* futex_waitv(2), since Linux 5.16; C libraries do not declare it. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define FUTEX_OF_32_BITS 2u

struct futex_to_wait_for {
    uint64_t value, address;
    uint32_t flags, reserved;
};

int shmq_futex_wait_two(_Atomic uint32_t *const words[2], const uint32_t values[2], int64_t ns)
{
    int64_t until = shmq_read_clock(CLOCK_MONOTONIC) + ns;
    struct timespec time = {until / 1000000000, until % 1000000000};
    struct futex_to_wait_for both[2];

    for (int i = 0; i < 2; i++)
        both[i] = (struct futex_to_wait_for){values[i], (uintptr_t)words[i], FUTEX_OF_32_BITS, 0};
    if (syscall(SYS_futex_waitv, both, 2, 0, &time, CLOCK_MONOTONIC) >= 0 || errno == EAGAIN)
        return SHMQ_OK;
    if (errno == EINTR || errno == ETIMEDOUT)
        return errno == EINTR ? SHMQ_INTERRUPTED : SHMQ_TIMED_OUT;
    if (GET_RELAXED(*words[1]) != values[1])
        return SHMQ_OK;
    return shmq_futex_wait(words[0], values[0], ns < SHMQ_BLIND_SLEEP ? ns : SHMQ_BLIND_SLEEP);
}

void shmq_futex_wake(_Atomic uint32_t *word) { shmq_futex_wake_bits(word, FUTEX_BITSET_MATCH_ANY); }

int shmq_futex_wait_bits(_Atomic uint32_t *word, uint32_t value, uint32_t bits, int64_t ns)
{
    int64_t until = shmq_read_clock(CLOCK_MONOTONIC) + ns;
    struct timespec time = {until / 1000000000, until % 1000000000};

    if (!futex(word, FUTEX_WAIT_BITSET, value, &time, bits) || errno == EAGAIN)
        return SHMQ_OK;
    return errno == EINTR ? SHMQ_INTERRUPTED : SHMQ_TIMED_OUT;
}

void shmq_futex_wake_bits(_Atomic uint32_t *word, uint32_t bits)
{
    (void)futex(word, FUTEX_WAKE_BITSET, INT_MAX, NULL, bits);
}
