#define _GNU_SOURCE
#include "queue/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/semaphore.h"
#include "queue/index.h"

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* While there are free slots, other bodies than the waiter's may have room, so waiters for room look
 * every 50 ms. Those that sleep long fell asleep when there was no slot. One of them is woken for each
 * slot that becomes free; if it cannot use it, it wakes the next one. */
int64_t shmq_look_for_room(struct shmq_queue *q, bool slept_long)
{
    if (!shmq_looks_roomy(q, 1))
        return INT64_MAX;
    if (slept_long)
        q->freed++;
    return shmq_now() + SHMQ_SHORT_SLEEP;
}

void shmq_fall_asleep(struct shmq_queue *q, enum shmq_event event)
{
    q->due = shmq_set_alarm(q);
    if (event == SHMQ_NOT_FULL)
        q->due = earlier(q->due, shmq_look_for_room(q, q->slept_long));
    q->slept_long = false;
    SET_ATOMIC(q->h->asleep[event], q->h->asleep[event] + 1);
    if (q->attachment != SHMQ_NIL) {
        struct shmq_attachment *a = &q->attachments[q->attachment];

        SET(a->asleep[event], a->asleep[event] + 1);
    }
}

void shmq_wake_up(struct shmq_queue *q, enum shmq_event event, bool taken, int left)
{
    struct shmq_header *h = q->h;
    uint32_t tokens = left > 0 ? (uint32_t)left : 0;

    SET(h->alarm, INT64_MAX);
    q->looks = true;
    if (h->asleep[event])
        SET_ATOMIC(h->asleep[event], h->asleep[event] - 1);
    if (q->attachment != SHMQ_NIL && q->attachments[q->attachment].asleep[event]) {
        struct shmq_attachment *a = &q->attachments[q->attachment];

        SET(a->asleep[event], a->asleep[event] - 1);
    }
    if (taken) {
        if (h->posted[event])
            SET_ATOMIC(h->posted[event], h->posted[event] - 1);
    } else if (h->posted[event] > tokens) {
        SET_ATOMIC(h->posted[event], tokens);
    }
}

void shmq_post_anew(struct shmq_queue *q)
{
    SET_ATOMIC(q->h->posted[SHMQ_NOT_EMPTY], 0);
    SET_ATOMIC(q->h->posted[SHMQ_NOT_FULL], 0);
    SET(q->h->alarm, INT64_MAX);
    q->freed = SHMQ_MAX_CAPACITY;
    q->arrived = true;
    shmq_select_unposted(q);
}

void shmq_pass_on(struct shmq_queue *q, enum shmq_event event)
{
    if (event == SHMQ_NOT_FULL)
        q->freed++;
}

/* A limit for damaged counts; sleepers beyond it are posted by the next unlock. */
#define MOST_POSTS SHMQ_MAX_ATTACHMENTS

static uint32_t posts_for(struct shmq_header *h, enum shmq_event event, uint32_t something)
{
    uint32_t unposted, count;

    if (h->asleep[event] <= h->posted[event])
        return 0;
    unposted = h->asleep[event] - h->posted[event];
    count = unposted < something ? unposted : something;
    if (count > MOST_POSTS)
        count = MOST_POSTS;
    if (count)
        SET_ATOMIC(h->posted[event], h->posted[event] + count);
    return count;
}

/* ---- what becomes due ---- */

/* A lease that begins later ends no earlier than the visibility timeout from now, so leases alone
 * do not set off the alarm. */
int64_t shmq_set_alarm(struct shmq_queue *q)
{
    int64_t lease = q->h->options.visibility, due = shmq_next_due(q);

    lease = lease < SHMQ_SHORT_SLEEP ? SHMQ_SHORT_SLEEP : lease;
    due = earlier(due, shmq_now() + lease);
    if (due < q->h->alarm)
        SET(q->h->alarm, due);
    return due;
}

/* Whether something is due before any waiter looks. One that is due later than the longest slice
 * is of no interest yet. An alarm that has passed was for a waiter that did not look. */
static bool is_late(struct shmq_queue *q)
{
    int64_t now = shmq_coarse_now(), due = shmq_next_due(q);
    bool passed = q->h->alarm < now - SHMQ_COARSE;

    if (due > now + SHMQ_LONG_SLEEP || (due >= q->h->alarm && !passed))
        return false;
    SET(q->h->alarm, due < now ? now : due);
    return true;
}

/* Posts one more sleeper, or else tells shmq_select_parties to wake one. */
static bool set_off(struct shmq_queue *q, uint32_t post[2])
{
    struct shmq_header *h = q->h;

    for (int event = 0; event < 2; event++)
        if (h->asleep[event] > h->posted[event]) {
            SET_ATOMIC(h->posted[event], h->posted[event] + 1);
            post[event]++;
            return false;
        }
    return !post[SHMQ_NOT_EMPTY] && !post[SHMQ_NOT_FULL];
}

void shmq_select_posts(struct shmq_queue *q, uint32_t post[2])
{
    struct shmq_header *h = q->h;
    bool late = false;

    post[SHMQ_NOT_EMPTY] = post[SHMQ_NOT_FULL] = 0;
    if (__builtin_expect(h->asleep[SHMQ_NOT_EMPTY] != 0, 0))
        post[SHMQ_NOT_EMPTY] = posts_for(h, SHMQ_NOT_EMPTY, shmq_ready(h));
    if (__builtin_expect(h->asleep[SHMQ_NOT_FULL] != 0, 0) && q->freed)
        post[SHMQ_NOT_FULL] = posts_for(h, SHMQ_NOT_FULL, q->freed);
    if (__builtin_expect(h->asleep[SHMQ_NOT_EMPTY] | h->asleep[SHMQ_NOT_FULL] |
                             shmq_armed(h, SHMQ_NOT_EMPTY) | shmq_armed(h, SHMQ_NOT_FULL),
                         0)) {
        uint32_t room = q->freed - post[SHMQ_NOT_FULL];

        late = !q->looks && is_late(q) && set_off(q, post);
        shmq_select_parties(q, room, late);
    }
    q->freed = 0;
    q->arrived = q->looks = false;
}

void shmq_post(sem_t *const semaphores[2], const uint32_t post[2])
{
    for (int event = 0; event < 2; event++)
        for (uint32_t i = 0; i < post[event]; i++)
            sem_post(semaphores[event]);
}

int shmq_sleep(sem_t *semaphore, int64_t ns)
{
    int64_t end = shmq_read_clock(CLOCK_MONOTONIC) + (ns > 0 ? ns : 0);

    if (!shmq_semaphore_wait(semaphore, end))
        return SHMQ_OK;
    return errno == EINTR ? SHMQ_INTERRUPTED : SHMQ_TIMED_OUT;
}

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
    return shmq_futex_wait(words[0], values[0], earlier(ns, SHMQ_BLIND_SLEEP));
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

/* A spin on a full queue goes on until there is room for some messages: using each free place at
 * once would take the cache lines from the process that makes the room. */
#define A_FEW 16u

int64_t shmq_spin(struct shmq_queue *q, enum shmq_event event, int64_t ns, int64_t yield_after)
{
    int64_t start = shmq_read_clock(CLOCK_MONOTONIC), now = start;
    int pauses = event == SHMQ_NOT_EMPTY ? 4 : 32;
    uint32_t room = q->capacity / 8 < A_FEW ? q->capacity / 8 + 1 : A_FEW;

    do {
        if (now - start >= yield_after)
            (void)sched_yield();
        for (int i = 0; i < 8; i++) {
            if (event == SHMQ_NOT_EMPTY ? shmq_looks_ready(q->h) : shmq_looks_roomy(q, room))
                return now - start;
            for (int pause = 0; pause < pauses; pause++)
                shmq_pause();
        }
        now = shmq_read_clock(CLOCK_MONOTONIC);
    } while (now - start < ns);
    return event == SHMQ_NOT_FULL && shmq_looks_roomy(q, 1) ? now - start : -1;
}
