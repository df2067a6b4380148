#define _GNU_SOURCE
#include "queue/lock.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "queue/change_hints.h"
#include "queue/put_ring.h"
#include "queue/recover.h"
#include "queue/wait.h"
#include "queue/wakeup.h"

#define EVERYTHING UINT32_MAX

static void drop_gets(struct shmq_queue *q) { shmq_mutex_drop(&q->h->lock); }

static void drop_puts(struct shmq_queue *q) { shmq_mutex_drop(&q->h->put_lock); }

static void drop(struct shmq_queue *q)
{
    if (q->whole)
        drop_puts(q);
    drop_gets(q);
}

/* We hold the mutex, and its last holder died. Before anything else, `unsettled` records that the
 * indexes must be rebuilt, because one that has only the put side releases it without that. */
static int inherit(struct shmq_queue *q, int status)
{
    if (__builtin_expect(status != SHMQ_INHERITED, 1))
        return status;
    SET_RELAXED(q->h->unsettled, 1);
    return SHMQ_OK;
}

/* Holds both locks. A queue that cannot be rebuilt is marked as broken. */
static void recover(struct shmq_queue *q)
{
    if (shmq_recover(q))
        SET(q->h->state, SHMQ_BROKEN);
    SET_RELAXED(q->h->unsettled, 0);
}

/* The marks that bound every loop over a region. */
static bool within_bounds(const struct shmq_queue *q)
{
    const struct shmq_header *h = q->h;

    return h->slots_made <= h->slots_backed && h->slots_backed <= q->geo.slots_max &&
           h->units_backed <= q->geo.units && h->units_used <= q->geo.units &&
           h->order_len <= h->slots_made && h->timer_len <= h->slots_made &&
           h->groups_made <= h->groups_backed && h->groups_backed <= q->geo.slots_max &&
           h->attachments_made <= SHMQ_MAX_ATTACHMENTS;
}

/* Takes the mutex after spinning for at most a few microseconds. */
static inline int take(struct shmq_queue *q, struct shmq_mutex *lock)
{
    return shmq_mutex_spin(lock, q->self);
}

/* The same until `end`, monotonic ns; 0: after spinning, without waiting in the kernel. */
static inline int take_by(struct shmq_queue *q, struct shmq_mutex *lock, int64_t end)
{
    return end ? inherit(q, shmq_mutex_wait(lock, q->self, end)) : take(q, lock);
}

/* The get-side lock is held, and if `whole` the other one, too: makes the queue usable, or releases
 * it. */
static int settle(struct shmq_queue *q, bool even_deleted)
{
    uint32_t state;

    q->damaged = false;
    if (__builtin_expect(GET_RELAXED(q->h->unsettled), 0)) {
        if (!q->whole)
            return SHMQ_BUSY;
        recover(q);
    }
    state = GET_RELAXED(q->h->state);
    if (__builtin_expect(
            (state != SHMQ_OPEN && (state != SHMQ_GONE || !even_deleted)) || !within_bounds(q), 0))
        return state == SHMQ_GONE && !even_deleted ? SHMQ_DELETED : SHMQ_DAMAGED;
    if (q->whole)
        shmq_inbox_take(q, EVERYTHING);
    return SHMQ_OK;
}

/* The result of taking one lock, or both. */
static int conclude(struct shmq_queue *q, bool even_deleted)
{
    int status = settle(q, even_deleted);

    if (__builtin_expect(status != SHMQ_OK, 0))
        drop(q);
    return status;
}

/* Takes both in order. The get-side lock is not held while waiting for the other in the kernel: the
 * holder of that may be stopped, and leases and settlements continue meanwhile. */
static int take_both(struct shmq_queue *q, int64_t end)
{
    int status;

    do {
        if ((status = take_by(q, &q->h->lock, end)))
            return status;
        if ((status = take(q, &q->h->put_lock)) != SHMQ_BUSY)
            break;
        drop_gets(q);
        if (!end || (status = take_by(q, &q->h->put_lock, end)))
            return status;
        drop_puts(q);
        status = SHMQ_BUSY;
    } while (shmq_read_clock(CLOCK_MONOTONIC) < end);
    if (status && status != SHMQ_BUSY)
        drop_gets(q);
    return status;
}

/* Of a lock that was not taken. A process leaves its namespace with the last queue. */
static int refuse(const struct shmq_queue *q, int status)
{
    return status == SHMQ_UNREGISTERED && GET_RELAXED(q->h->state) == SHMQ_GONE ? SHMQ_DELETED
                                                                                : status;
}

static int lock_whole(struct shmq_queue *q, int64_t end, bool even_deleted)
{
    int status = take_both(q, end);

    if (__builtin_expect(status != SHMQ_OK, 0))
        return refuse(q, status);
    q->whole = true;
    return conclude(q, even_deleted);
}

int shmq_lock(struct shmq_queue *q) { return lock_whole(q, 0, false); }

int shmq_lock_gets(struct shmq_queue *q)
{
    int status = take(q, &q->h->lock);

    if (__builtin_expect(status != SHMQ_OK, 0))
        return refuse(q, status);
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

uint64_t shmq_lock_holder(const struct shmq_queue *q)
{
    uint64_t gets = shmq_mutex_holder(&q->h->lock), puts = shmq_mutex_holder(&q->h->put_lock);

    return !gets || (puts && puts != gets && shmq_is_at_work(q->self, gets)) ? puts : gets;
}

void shmq_unlock(struct shmq_queue *q, uint32_t post[2])
{
    bool hinted = q->hinted;

    shmq_select_posts(q, post);
    q->hinted = false;
    drop(q);
    if (__builtin_expect(hinted, 0))
        shmq_wake_idle_writer(q);
}

void shmq_unlock_unchanged(struct shmq_queue *q)
{
    bool hinted = q->hinted;

    q->freed = 0;
    q->arrived = q->looks = q->hinted = false;
    drop(q);
    if (hinted) /* the lock was taken over, and the indexes rebuilt */
        shmq_wake_idle_writer(q);
}

int shmq_lock_puts(struct shmq_queue *q)
{
    int status = take(q, &q->h->put_lock);

    if (status)
        return status;
    if (__builtin_expect(GET_RELAXED(q->h->state) != SHMQ_OPEN || GET_RELAXED(q->h->unsettled),
                         0)) {
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
    shmq_wake_idle_writer(q);
    asleep = GET_ATOMIC(h->asleep[SHMQ_NOT_EMPTY]);
    return shmq_armed(h, SHMQ_NOT_EMPTY) ||
           (asleep && asleep > GET_ATOMIC(h->posted[SHMQ_NOT_EMPTY]));
}
