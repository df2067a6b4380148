#define _GNU_SOURCE
#include "lock.h"

#include <errno.h>
#include <sched.h>

#include "clock.h"
#include "recover.h"
#include "sleep.h"

#define SPINS 200

int shmq_lock_init(struct shmq_header *h)
{
    pthread_mutexattr_t attributes;
    int error;

    if (pthread_mutexattr_init(&attributes))
        return SHMQ_DAMAGED;
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    error = pthread_mutex_init(&h->lock, &attributes);
    shmq_mark();
    pthread_mutexattr_destroy(&attributes);
    return error ? SHMQ_DAMAGED : SHMQ_OK;
}

static void drop(struct shmq_queue *q) { (void)pthread_mutex_unlock(&q->h->lock); }

/* We hold the lock, and the holder before us died inside; until it is made consistent our
 * own death counts the same. What cannot be recovered is marked as broken: a mutex left
 * inconsistent would not refuse whoever comes next, as glibc has it, but hang them. */
static void recover(struct shmq_queue *q)
{
    if (shmq_recover(q))
        SET(q->h->state, SHMQ_BROKEN);
    (void)pthread_mutex_consistent(&q->h->lock);
}

/* The marks that bound every loop over a region. */
static bool within_bounds(const struct shmq_queue *q)
{
    const struct shmq_header *h = q->h;

    return h->slots_made <= h->slots_backed && h->slots_backed <= h->options.capacity &&
           h->units_backed <= q->geo.units && h->units_used <= q->geo.units &&
           h->order_len <= h->slots_made && h->timer_len <= h->slots_made &&
           h->groups_made <= h->groups_backed && h->groups_backed <= h->options.capacity &&
           h->attachments_made <= SHMQ_MAX_ATTACHMENTS;
}

/* What became of an attempt to take the lock. */
static int settle(struct shmq_queue *q, int error, bool even_deleted)
{
    uint32_t state;

    if (error == EBUSY || error == ETIMEDOUT)
        return SHMQ_BUSY;
    q->damaged = false;
    if (__builtin_expect(error == EOWNERDEAD, 0)) {
        recover(q);
        error = 0;
    }
    if (error)
        return SHMQ_DAMAGED;
    state = atomic_load_explicit(&q->h->state, memory_order_relaxed);
    if (__builtin_expect((state == SHMQ_OPEN || (state == SHMQ_GONE && even_deleted)) &&
                             within_bounds(q), 1))
        return SHMQ_OK;
    drop(q);
    return state == SHMQ_GONE && !even_deleted ? SHMQ_DELETED : SHMQ_DAMAGED;
}

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int shmq_lock(struct shmq_queue *q)
{
    int error = pthread_mutex_trylock(&q->h->lock);

    for (int spin = 0; error == EBUSY && spin < SPINS; spin++) {
        pause_briefly();
        error = pthread_mutex_trylock(&q->h->lock);
    }
    return settle(q, error, false);
}

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer does not know that pthread_mutex_clocklock takes a lock, nor that
 * pthread_mutex_timedlock takes a dead holder's: it is made to see trylocks alone. */
static int take_slowly(struct shmq_queue *q, int64_t ns)
{
    int64_t end = shmq_read_clock(CLOCK_MONOTONIC) + ns;
    int error;

    while ((error = pthread_mutex_trylock(&q->h->lock)) == EBUSY &&
           shmq_read_clock(CLOCK_MONOTONIC) < end)
        sched_yield();
    return error;
}
#else
static int take_slowly(struct shmq_queue *q, int64_t ns)
{
    int64_t end = shmq_read_clock(CLOCK_MONOTONIC) + ns;
    struct timespec until = {end / 1000000000, end % 1000000000};

    return pthread_mutex_clocklock(&q->h->lock, CLOCK_MONOTONIC, &until);
}
#endif

int shmq_lock_slowly(struct shmq_queue *q, int64_t ns)
{
    return settle(q, take_slowly(q, ns), false);
}

int shmq_lock_even_deleted(struct shmq_queue *q, int64_t ns)
{
    return settle(q, take_slowly(q, ns), true);
}

void shmq_unlock(struct shmq_queue *q, uint32_t post[2])
{
    shmq_choose_posts(q, post);
    drop(q);
}
