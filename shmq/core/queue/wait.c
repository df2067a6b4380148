#define _GNU_SOURCE
#include "queue/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

void shmq_fall_asleep(struct shmq_queue *q, enum shmq_event event)
{
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

void shmq_select_posts(struct shmq_queue *q, uint32_t post[2])
{
    struct shmq_header *h = q->h;

    post[SHMQ_NOT_EMPTY] = post[SHMQ_NOT_FULL] = 0;
    if (__builtin_expect(h->asleep[SHMQ_NOT_EMPTY] != 0, 0))
        post[SHMQ_NOT_EMPTY] = posts_for(h, SHMQ_NOT_EMPTY, shmq_ready(h));
    if (__builtin_expect(h->asleep[SHMQ_NOT_FULL] != 0, 0) && q->freed)
        post[SHMQ_NOT_FULL] = posts_for(h, SHMQ_NOT_FULL, q->freed);
    if (__builtin_expect(shmq_armed(h, SHMQ_NOT_EMPTY) | shmq_armed(h, SHMQ_NOT_FULL), 0))
        shmq_select_parties(q, q->freed - post[SHMQ_NOT_FULL]);
    q->freed = 0;
    q->arrived = false;
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
    struct timespec until = {end / 1000000000, end % 1000000000};

    if (!sem_clockwait(semaphore, CLOCK_MONOTONIC, &until))
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

int64_t shmq_spin(struct shmq_queue *q, enum shmq_event event, int64_t ns)
{
    int64_t start = shmq_read_clock(CLOCK_MONOTONIC), now = start;
    int pauses = event == SHMQ_NOT_EMPTY ? 4 : 32;
    uint32_t room = q->capacity / 8 < A_FEW ? q->capacity / 8 + 1 : A_FEW;

    do {
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
