#define _GNU_SOURCE
#include "base/mutex.h"

#include <endian.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AT_ONCE 100000000ll /* ns */
#define FOR_ONE_AT_WORK 1000000000ll

/* The half of the word with SHMQ_AWAITED: a futex is 32 bits. */
static uint32_t *futex_of(struct shmq_mutex *mutex)
{
    return (uint32_t *)&mutex->word + (BYTE_ORDER == BIG_ENDIAN);
}

int shmq_mutex_spin(struct shmq_mutex *mutex, const struct shmq_process *self)
{
    int status = shmq_mutex_try(mutex, self);

    for (int spin = 0; status == SHMQ_BUSY && spin < SHMQ_LOCK_SPINS; spin++) {
        shmq_pause();
        if (!GET_RELAXED(mutex->word))
            status = shmq_mutex_try(mutex, self);
    }
    return status;
}

/* One swap of `word`, as it was seen, by the caller's number, for one that has slept: others may
 * sleep still. */
static bool swap_in(struct shmq_mutex *mutex, const struct shmq_process *self, uint64_t word)
{
    uint64_t mine = GET_RELAXED(self->number) << 1 | SHMQ_AWAITED;
    bool taken = mine != SHMQ_AWAITED &&
                 atomic_compare_exchange_strong_explicit(
                     &mutex->word, &word, mine, memory_order_acquire, memory_order_relaxed);

    if (taken)
        shmq_mark();
    return taken;
}

/* Sleeps for up to `ns` while the mutex is held, and tries once more. */
static int sleep_for(struct shmq_mutex *mutex, const struct shmq_process *self, int64_t ns)
{
    struct timespec most = {ns / 1000000000, ns % 1000000000};
    uint64_t word = GET_RELAXED(mutex->word);

    if (word && !(word & SHMQ_AWAITED)) {
        if (!atomic_compare_exchange_strong_explicit(&mutex->word, &word, word | SHMQ_AWAITED,
                                                     memory_order_relaxed, memory_order_relaxed))
            return SHMQ_BUSY;
        shmq_mark();
    }
    if (word)
        (void)syscall(SYS_futex, futex_of(mutex), FUTEX_WAIT, (uint32_t)(word | SHMQ_AWAITED),
                      &most, NULL, 0);
    return swap_in(mutex, self, 0) ? SHMQ_OK : SHMQ_BUSY;
}

/* Takes the mutex from a dead holder. */
static int judge(struct shmq_mutex *mutex, const struct shmq_process *self)
{
    uint64_t word = GET_RELAXED(mutex->word);

    if (!word || !shmq_has_died(self, word >> 1))
        return SHMQ_BUSY;
    return swap_in(mutex, self, word) ? SHMQ_INHERITED : SHMQ_BUSY;
}

int shmq_mutex_wait(struct shmq_mutex *mutex, const struct shmq_process *self, int64_t end)
{
    int64_t at = shmq_read_clock(CLOCK_MONOTONIC), step = SHMQ_JUDGE_AFTER, judge_at = at + step;
    int status = shmq_mutex_try(mutex, self);

    if (status == SHMQ_BUSY && at >= end)
        return judge(mutex, self);
    while (status == SHMQ_BUSY && at < end) {
        status = sleep_for(mutex, self, (judge_at < end ? judge_at : end) - at);
        at = shmq_read_clock(CLOCK_MONOTONIC);
        if (status == SHMQ_BUSY && at >= judge_at) {
            status = judge(mutex, self);
            step = 2 * step < SHMQ_MOST_SLEEP ? 2 * step : SHMQ_MOST_SLEEP;
            judge_at = at + step;
        }
    }
    return status;
}

int shmq_mutex_take(struct shmq_mutex *mutex, const struct shmq_process *self, int64_t ns)
{
    int status = shmq_mutex_spin(mutex, self);

    return status == SHMQ_BUSY && ns
               ? shmq_mutex_wait(mutex, self, shmq_read_clock(CLOCK_MONOTONIC) + ns)
               : status;
}

void shmq_mutex_wake(struct shmq_mutex *mutex)
{
    (void)syscall(SYS_futex, futex_of(mutex), FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* ---- how long to wait ---- */

static _Thread_local int64_t thread_limit; /* ns; 0: none */

void shmq_limit_patience(int64_t ns) { thread_limit = ns; }

int64_t shmq_patience(int64_t waited, int64_t until, const struct shmq_process *self,
                      uint64_t holder)
{
    int64_t left = AT_ONCE - waited, own;

    if (thread_limit)
        return waited < thread_limit ? thread_limit - waited : 0;
    if (until == INT64_MAX)
        return SHMQ_MOST_SLEEP;
    own = until ? until - shmq_read_clock(CLOCK_MONOTONIC) : 0;
    if (own > left)
        left = own;
    if (left <= 0 && shmq_is_at_work(self, holder))
        left = FOR_ONE_AT_WORK - waited;
    return left <= 0 ? 0 : left < SHMQ_MOST_SLEEP ? left : SHMQ_MOST_SLEEP;
}
