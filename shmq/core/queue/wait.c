#define _GNU_SOURCE
#include "queue/wait.h"

#include <errno.h>
#include <sched.h>

#include "base/clock.h"
#include "base/semaphore.h"
#include "queue/index.h"
#include "queue/wakeup.h"

/* Watchers that have not looked for so long are stopped: others take their places. */
#define UNWATCHED (2 * SHMQ_LONG_SLEEP)

static bool is_deserted(const struct shmq_header *h, enum shmq_event event)
{
    return h->watched_at[event] + UNWATCHED < shmq_coarse_now();
}

/* A handle leaves half of the places to others: its process may be stopped. */
static bool become_watcher(struct shmq_queue *q, enum shmq_event event)
{
    struct shmq_header *h = q->h;
    struct shmq_attachment *a = &q->attachments[q->attachment];

    if (a->watchers[event] >= SHMQ_WATCHERS / 2 ||
        (h->watchers[event] >= SHMQ_WATCHERS && !is_deserted(h, event)))
        return false;
    SET(h->watched_at[event], shmq_coarse_now());
    SET(h->watchers[event], h->watchers[event] + 1);
    SET(a->watchers[event], (uint8_t)(a->watchers[event] + 1));
    return true;
}

void shmq_stop_watching(struct shmq_queue *q, struct shmq_attachment *a, enum shmq_event event)
{
    if (q->h->watchers[event])
        SET(q->h->watchers[event], q->h->watchers[event] - 1);
    if (a->watchers[event])
        SET(a->watchers[event], (uint8_t)(a->watchers[event] - 1));
}

void shmq_fall_asleep(struct shmq_queue *q, enum shmq_event event)
{
    q->watches = q->attachment != SHMQ_NIL && become_watcher(q, event);
    q->due = q->watches ? shmq_set_alarm(q) : shmq_set_early_alarm(q);
    if (event == SHMQ_NOT_FULL) {
        int64_t due = shmq_look_for_room(q, q->slept_long);

        q->due = due < q->due ? due : q->due;
    }
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
        while (a->watchers[event] >
               a->asleep[event]) /* threads of a handle took each other's place */
            shmq_stop_watching(q, a, event);
    }
    if (taken) {
        if (h->posted[event])
            SET_ATOMIC(h->posted[event], h->posted[event] - 1);
    } else if (h->posted[event] > tokens) {
        SET_ATOMIC(h->posted[event], tokens);
    }
}

/* So 13 sleepers wake in a second, beside the watchers, however many there are. */
#define CROWD_SLEEP_EACH 75000000ull /* ns for each sleeper */

int64_t shmq_crowd_sleep(const struct shmq_queue *q, enum shmq_event event)
{
    uint64_t mean = GET_ATOMIC(q->h->asleep[event]) * CROWD_SLEEP_EACH;
    uint64_t mixed = (uint64_t)shmq_now() * 0x9e3779b97f4a7c15u >> 16; /* Knuth, TAOCP 6.4 */

    if (mean <= SHMQ_LONG_SLEEP)
        return SHMQ_LONG_SLEEP;
    return SHMQ_LONG_SLEEP + (int64_t)(mixed % (2 * (mean - SHMQ_LONG_SLEEP)));
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

#define FEWEST_WATCHERS 2

/* Whether one of the sleepers of a crowd must take the place of a watcher that was woken, died or
 * is stopped. */
static bool lacks_watchers(const struct shmq_header *h, enum shmq_event event)
{
    if (h->asleep[event] <= h->watchers[event])
        return false;
    if (h->watchers[event] < FEWEST_WATCHERS && !h->posted[event])
        return true;
    return h->asleep[event] > h->posted[event] && is_deserted(h, event);
}

static void call_watchers(struct shmq_queue *q, uint32_t post[2])
{
    struct shmq_header *h = q->h;

    for (int event = 0; event < 2; event++)
        if (lacks_watchers(h, event)) {
            SET_ATOMIC(h->posted[event], h->posted[event] + 1);
            post[event]++;
        }
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
        if (!q->looks)
            call_watchers(q, post);
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

/* A spin on a full queue goes on until there is room for some messages: using each free place at
 * once would take the cache lines from the process that makes the room. */
#define A_FEW 16u

int64_t shmq_spin(struct shmq_queue *q, enum shmq_event event, int64_t ns, int64_t yield_after)
{
    int64_t start = shmq_read_clock(CLOCK_MONOTONIC), now = start;
    int pauses = event == SHMQ_NOT_EMPTY ? 4 : 32;
    uint32_t room = shmq_capacity(q) / 8 < A_FEW ? shmq_capacity(q) / 8 + 1 : A_FEW;

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
