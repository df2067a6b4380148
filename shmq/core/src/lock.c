#define _GNU_SOURCE
#include "lock.h"

#include <errno.h>
#include <sched.h>

#include "bell.h"
#include "clock.h"
#include "exchange.h"
#include "journal.h"
#include "recover.h"
#include "robust.h"
#include "sleep.h"

#define SPINS 200
#define EVERYTHING UINT32_MAX

int shmq_lock_init(struct shmq_header *h)
{
    int status = shmq_robust_init(&h->lock);

    return status ? status : shmq_robust_init(&h->put_lock);
}

static void drop_gets(struct shmq_queue *q) { (void)pthread_mutex_unlock(&q->h->lock.mutex); }

static void drop_puts(struct shmq_queue *q) { (void)pthread_mutex_unlock(&q->h->put_lock.mutex); }

static void drop(struct shmq_queue *q)
{
    if (q->whole)
        drop_puts(q);
    drop_gets(q);
}

/* We hold the mutex, and its holder before us died. That the indexes are to be rebuilt is
 * written down before the mutex is good again: until then our own death counts the same. A
 * mutex left inconsistent would not refuse whoever comes next, as glibc has it, but hang
 * them. */
static int inherit(struct shmq_queue *q, pthread_mutex_t *mutex, int error)
{
    if (__builtin_expect(error != EOWNERDEAD, 1))
        return error;
    atomic_store_explicit(&q->h->unsettled, 1, memory_order_relaxed);
    shmq_mark();
    return pthread_mutex_consistent(mutex);
}

/* Holds both locks. What cannot be rebuilt is marked as broken. */
static void recover(struct shmq_queue *q)
{
    if (shmq_recover(q))
        SET(q->h->state, SHMQ_BROKEN);
    atomic_store_explicit(&q->h->unsettled, 0, memory_order_relaxed);
    shmq_mark();
}

/* The marks that bound every loop over a region. */
static bool within_bounds(const struct shmq_queue *q)
{
    const struct shmq_header *h = q->h;

    return h->slots_made <= h->slots_backed && h->slots_backed <= q->capacity &&
           h->units_backed <= q->geo.units && h->units_used <= q->geo.units &&
           h->order_len <= h->slots_made && h->timer_len <= h->slots_made &&
           h->groups_made <= h->groups_backed && h->groups_backed <= q->capacity &&
           h->attachments_made <= SHMQ_MAX_ATTACHMENTS;
}

static int status_of(int error)
{
    if (error == EBUSY || error == ETIMEDOUT)
        return SHMQ_BUSY;
    return error ? SHMQ_DAMAGED : SHMQ_OK;
}

/* Takes the mutex after spinning at most some microseconds. */
static inline int take(struct shmq_queue *q, union shmq_mutex *lock)
{
    int error = pthread_mutex_trylock(&lock->mutex);

    for (int spin = 0; error == EBUSY && spin < SPINS; spin++) {
        shmq_pause();
        error = pthread_mutex_trylock(&lock->mutex);
    }
    return inherit(q, &lock->mutex, error);
}

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer does not know that pthread_mutex_clocklock takes a lock, nor that
 * pthread_mutex_timedlock takes a dead holder's: it is made to see trylocks alone. */
static int take_until(struct shmq_queue *q, union shmq_mutex *lock, int64_t end)
{
    int error;

    while ((error = pthread_mutex_trylock(&lock->mutex)) == EBUSY &&
           shmq_read_clock(CLOCK_MONOTONIC) < end)
        sched_yield();
    return inherit(q, &lock->mutex, error);
}
#else
static int take_until(struct shmq_queue *q, union shmq_mutex *lock, int64_t end)
{
    struct timespec until = {end / 1000000000, end % 1000000000};

    return inherit(q, &lock->mutex,
                   pthread_mutex_clocklock(&lock->mutex, CLOCK_MONOTONIC, &until));
}
#endif

/* Until `end`, monotonic ns; 0: after spinning, without the kernel. */
static inline int take_by(struct shmq_queue *q, union shmq_mutex *lock, int64_t end)
{
    return end ? take_until(q, lock, end) : take(q, lock);
}

/* The lock of the gets is held, and with it, if `whole`, the other one: makes the queue fit
 * to be worked on, or drops it. */
static int settle(struct shmq_queue *q, bool even_deleted)
{
    uint32_t state;

    q->damaged = false;
    if (__builtin_expect(atomic_load_explicit(&q->h->unsettled, memory_order_relaxed), 0)) {
        if (!q->whole)
            return SHMQ_BUSY;
        recover(q);
    }
    state = atomic_load_explicit(&q->h->state, memory_order_relaxed);
    if (__builtin_expect((state != SHMQ_OPEN && (state != SHMQ_GONE || !even_deleted)) ||
                             !within_bounds(q), 0))
        return state == SHMQ_GONE && !even_deleted ? SHMQ_DELETED : SHMQ_DAMAGED;
    if (q->whole)
        shmq_inbox_take(q, EVERYTHING);
    return SHMQ_OK;
}

/* What became of taking one lock, or both. */
static int conclude(struct shmq_queue *q, bool even_deleted)
{
    int status = settle(q, even_deleted);

    if (__builtin_expect(status != SHMQ_OK, 0))
        drop(q);
    return status;
}

static int lock_whole(struct shmq_queue *q, int64_t end, bool even_deleted)
{
    int error = take_by(q, &q->h->lock, end);

    if (error)
        return status_of(error);
    q->whole = true;
    error = take_by(q, &q->h->put_lock, end);
    if (error) {
        drop_gets(q);
        return status_of(error);
    }
    return conclude(q, even_deleted);
}

int shmq_lock(struct shmq_queue *q) { return lock_whole(q, 0, false); }

int shmq_lock_gets(struct shmq_queue *q)
{
    int error = take(q, &q->h->lock), status;

    if (error)
        return status_of(error);
    q->whole = false;
    status = conclude(q, false);
    return status == SHMQ_BUSY ? shmq_lock(q) : status;
}

int shmq_lock_slowly(struct shmq_queue *q, int64_t ns)
{
    return lock_whole(q, shmq_read_clock(CLOCK_MONOTONIC) + ns, false);
}

int shmq_lock_even_deleted(struct shmq_queue *q, int64_t ns)
{
    return lock_whole(q, shmq_read_clock(CLOCK_MONOTONIC) + ns, true);
}

void shmq_unlock(struct shmq_queue *q, uint32_t post[2])
{
    bool hinted = q->hinted;

    shmq_choose_posts(q, post);
    q->hinted = false;
    drop(q);
    if (__builtin_expect(hinted, 0))
        shmq_stir_writer(q);
}

int shmq_lock_puts(struct shmq_queue *q)
{
    int error = take(q, &q->h->put_lock);

    if (error)
        return status_of(error);
    if (__builtin_expect(atomic_load_explicit(&q->h->state, memory_order_relaxed) != SHMQ_OPEN ||
                             atomic_load_explicit(&q->h->unsettled, memory_order_relaxed), 0)) {
        drop_puts(q);
        return SHMQ_BUSY;
    }
    return SHMQ_OK;
}

bool shmq_unlock_puts(struct shmq_queue *q)
{
    const struct shmq_header *h = q->h;
    uint32_t asleep;

    drop_puts(q);
    shmq_stir_writer(q);
    asleep = GET_ATOMIC(h->asleep[SHMQ_NOT_EMPTY]);
    return shmq_armed(h, SHMQ_NOT_EMPTY) ||
           (asleep && asleep > GET_ATOMIC(h->posted[SHMQ_NOT_EMPTY]));
}
