/* Sleepers, and who wakes them. */
#include "base/clock.h"
#include "fixture.h"
#include "queue/lock.h"
#include "queue/recover.h"
#include "queue/segment.h"
#include "queue/wait.h"

#include <signal.h>
#include <time.h>

/* Ends the critical section and begins the next one: what it posted. */
static uint32_t posts(struct shmq_queue *q, enum shmq_event event)
{
    uint32_t post[2];

    shmq_unlock(q, post);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_EQ(post[!event], 0);
    return post[event];
}

TEST("nobody is posted where nobody sleeps")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    put_text(q, "a");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 0);
}

TEST("a put posts one sleeper for each message, and none twice")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);

    for (int i = 0; i < 3; i++)
        shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    put_text(q, "a");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    put_text(q, "b");
    put_text(q, "c");
    put_text(q, "d");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 2);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    for (int i = 0; i < 3; i++)
        shmq_wake_up(q, SHMQ_NOT_EMPTY, true, 0);
    CHECK_EQ(q->h->asleep[SHMQ_NOT_EMPTY], 0);
    CHECK_EQ(q->h->posted[SHMQ_NOT_EMPTY], 0);
}

TEST("who only looks takes no wakeup from a sleeper")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    put_text(q, "a"); /* its producer has not released the lock to wake yet          */
    shmq_unlock_unchanged(q);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

TEST("a message that becomes due is posted for, by whoever notices")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    PUT(q, .delay = SECOND);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    now += SECOND;
    PUT(q, .delay = SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

TEST("a message behind a blocked group posts nobody until it can be served")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    PUT(q, .group = 1);
    view = take_next(q);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    PUT(q, .group = 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

TEST("each slot that becomes free posts one who waits for room")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    for (int i = 0; i < 4; i++)
        put_text(q, "a");
    for (int i = 0; i < 4; i++)
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 0);
    CHECK_EQ(shmq_ack(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 1);
    CHECK_EQ(drain(q), 3);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 3);
}

TEST("a purge posts everyone who waits for room")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    uint64_t removed;

    for (int i = 0; i < 4; i++)
        put_text(q, "a");
    for (int i = 0; i < 4; i++)
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 4);
}

TEST("a post that was lost with its waker is made again once the sleeper has looked")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    put_text(q, "a");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1); /* and the waker dies before it posts */
    shmq_wake_up(q, SHMQ_NOT_EMPTY, false, 0);
    CHECK_EQ(q->h->posted[SHMQ_NOT_EMPTY], 0);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

TEST("a post that the semaphore still holds is not made again")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    put_text(q, "a");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    shmq_wake_up(q, SHMQ_NOT_EMPTY, false, 1);
    CHECK_EQ(q->h->posted[SHMQ_NOT_EMPTY], 1);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("a post for room that its taker does not use goes to another sleeper")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);

    put_text(q, "a");
    for (int i = 0; i < 2; i++)
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 1);
    shmq_wake_up(q, SHMQ_NOT_FULL, true, 0);
    shmq_pass_on(q, SHMQ_NOT_FULL);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 0);
}

TEST("a post for a message that its taker does not use goes to another sleeper")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);

    for (int i = 0; i < 2; i++)
        shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    put_text(q, "a");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    shmq_wake_up(q, SHMQ_NOT_EMPTY, true, 0);
    shmq_pass_on(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

TEST("after a recovery all who wait for room are posted, whatever the same hand sets free")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    for (int i = 0; i < 4; i++)
        put_text(q, "a");
    view = take_next(q);
    for (int i = 0; i < 3; i++)
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 3);
}

TEST("to wake up more often than to fall asleep counts nothing below zero")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    shmq_wake_up(q, SHMQ_NOT_EMPTY, true, 0);
    shmq_wake_up(q, SHMQ_NOT_FULL, false, -1);
    CHECK_EQ(q->h->asleep[SHMQ_NOT_EMPTY] + q->h->posted[SHMQ_NOT_EMPTY], 0);
    CHECK_EQ(q->h->asleep[SHMQ_NOT_FULL] + q->h->posted[SHMQ_NOT_FULL], 0);
}

/* ---- what becomes due ---- */

TEST("what is due before any sleeper looks posts one of them")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    for (int i = 0; i < 2; i++)
        shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK(q->due > now + SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    PUT(q, .delay = SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    shmq_wake_up(q, SHMQ_NOT_EMPTY, true, 0);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0); /* it will look again */
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(q->due, now + SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    PUT(q, .delay = SECOND / 10);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

TEST("what is due after the longest slice posts nobody")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    PUT(q, .delay = 3 * SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("a sleeper that leaves passes the alarm on, and so does one that does not heed it in time")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    PUT(q, .delay = SECOND);
    for (int i = 0; i < 2; i++)
        shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    shmq_wake_up(q, SHMQ_NOT_EMPTY, false, 0);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    shmq_clock_set = now += SECOND + SECOND / 2;
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

TEST("a waiter for room is posted for what is due, too")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2);

    put_text(q, "a");
    shmq_fall_asleep(q, SHMQ_NOT_FULL);
    PUT(q, .delay = SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 1);
}

TEST("a long sleeper that cannot use a free slot wakes the next one, and looks more often")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 2);

    put_text(q, "a");
    put_text(q, "b");
    for (int i = 0; i < 2; i++)
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
    CHECK(q->due > now + SHMQ_SHORT_SLEEP);
    CHECK_EQ(shmq_ack(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_EQ(posts(q, SHMQ_NOT_FULL), 1);
    for (int i = 0; i < 2; i++) {
        shmq_wake_up(q, SHMQ_NOT_FULL, true, 0);
        q->slept_long = i == 0;
        shmq_fall_asleep(q, SHMQ_NOT_FULL);
        CHECK_EQ(q->due, now + SHMQ_SHORT_SLEEP);
        CHECK_EQ(posts(q, SHMQ_NOT_FULL), i == 0);
    }
}

/* ---- a crowd ---- */

/* So many fall asleep; how many of them watch. */
static uint32_t sleepers(struct shmq_queue *q, int count)
{
    uint32_t before = q->h->watchers[SHMQ_NOT_EMPTY];

    while (count--)
        shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    return q->h->watchers[SHMQ_NOT_EMPTY] - before;
}

#define HALF (SHMQ_WATCHERS / 2)

/* Another handle, through which half of the watchers sleep, and `others`. */
static struct shmq_queue *half_a_crowd(struct shmq_queue *q, int others)
{
    struct shmq_queue *other = another_handle(q);

    CHECK_EQ(sleepers(other, HALF + others), HALF);
    return other;
}

static void wake(struct shmq_queue *q, bool watched, bool posted)
{
    if (watched)
        shmq_stop_watching(q, &q->attachments[q->attachment], SHMQ_NOT_EMPTY);
    shmq_wake_up(q, SHMQ_NOT_EMPTY, posted, 0);
}

TEST("the first of a crowd watch, and the others promise no look")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    half_a_crowd(q, 0);
    CHECK_EQ(sleepers(q, HALF), HALF);
    CHECK(q->watches && q->due < INT64_MAX);
    CHECK_EQ(sleepers(q, 5), 0);
    CHECK(!q->watches);
    CHECK_EQ(q->due, INT64_MAX);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("a handle with many sleepers leaves half of the places to others, and calls nobody")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    CHECK_EQ(sleepers(q, 12), HALF);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    half_a_crowd(q, 3);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("one of a crowd that is posted for what is due sleeps until then")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    half_a_crowd(q, 0);
    sleepers(q, HALF + 2);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    PUT(q, .delay = SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    wake(q, false, true);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK(!q->watches);
    CHECK_EQ(q->due, now + SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("what is due later than a slice is left to the watchers")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    half_a_crowd(q, 0);
    sleepers(q, HALF + 1);
    PUT(q, .delay = 3 * SECOND);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    CHECK_EQ(sleepers(q, 1), 0);
    CHECK_EQ(q->due, INT64_MAX);
    wake(q, true, false);
    CHECK_EQ(sleepers(q, 1), 1);
    CHECK_EQ(q->due, now + 3 * SECOND);
}

TEST("others of a crowd are called when most watchers have left, one after the other")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = half_a_crowd(q, 0);

    sleepers(q, HALF + 9);
    for (int i = 0; i < HALF; i++) {
        wake(other, true, true);
        other->looks = false;
        CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    }
    for (int i = 0; i < HALF - 1; i++) {
        CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
        wake(q, true, true);
        CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0); /* this one itself looks again */
    }
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    wake(q, false, true);
    CHECK_EQ(sleepers(q, 1), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("a crowd without watchers gets one at the next release of the lock")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *one = half_a_crowd(q, 0);
    struct shmq_queue *two = half_a_crowd(q, 0);

    CHECK_EQ(sleepers(q, 3), 0);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    shmq_reclaim(q, one->attachment, one->attachments[one->attachment].process, now);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    shmq_reclaim(q, two->attachment, two->attachments[two->attachment].process, now);
    shmq_post_anew(q);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("watchers that are stopped are replaced")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    half_a_crowd(q, 0);
    half_a_crowd(q, 0);
    sleepers(q, 2);
    shmq_clock_set = now += 3 * SECOND;
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    shmq_clock_set = now += 2 * SECOND;
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    wake(q, false, true);
    CHECK_EQ(sleepers(q, 1), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("sleepers that all watch are not called, however long nobody has looked")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    sleepers(q, 1);
    shmq_clock_set = now += 60 * SECOND;
    put_text(q, "a");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
}

TEST("the larger a crowd, the longer its members sleep, each for a time of its own")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    int64_t sum = 0, least = INT64_MAX;

    sleepers(q, 20);
    CHECK_EQ(shmq_crowd_sleep(q, SHMQ_NOT_EMPTY), SHMQ_LONG_SLEEP);
    q->h->asleep[SHMQ_NOT_EMPTY] = 1000;
    for (int i = 0; i < 1000; i++) {
        int64_t ns = shmq_crowd_sleep(q, SHMQ_NOT_EMPTY);

        CHECK(ns >= SHMQ_LONG_SLEEP && ns < 150 * SECOND);
        least = ns < least ? ns : least;
        sum += ns;
        shmq_clock_set = now += 1234567;
    }
    CHECK(sum / 1000 > 65 * SECOND && sum / 1000 < 85 * SECOND);
    CHECK(least < 4 * SECOND);
}

TEST("a watcher that was taken for another sleeper is not counted once it wakes up")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    sleepers(q, 2);
    wake(q, false, true);
    CHECK_EQ(q->h->watchers[SHMQ_NOT_EMPTY], 1);
    wake(q, false, true);
    CHECK_EQ(q->h->watchers[SHMQ_NOT_EMPTY], 0);
}

TEST("watchers are counted again after a death under the lock")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    sleepers(q, 3);
    q->h->watchers[SHMQ_NOT_EMPTY] = 7;
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(q->h->watchers[SHMQ_NOT_EMPTY], 3);
}

TEST("after a death what it may have counted is posted again")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    put_text(q, "a");
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 0);
    shmq_post_anew(q);
    CHECK_EQ(posts(q, SHMQ_NOT_EMPTY), 1);
}

static void do_nothing(int number) { (void)number; }

TEST("a sleep ends with a post or with its time")
{
    int64_t start = shmq_read_clock(CLOCK_MONOTONIC);
    sem_t semaphore;

    CHECK(!sem_init(&semaphore, 0, 1));
    CHECK_EQ(shmq_sleep(&semaphore, 60 * SECOND), SHMQ_OK);
    CHECK_EQ(shmq_sleep(&semaphore, 0), SHMQ_TIMED_OUT);
    CHECK_EQ(shmq_sleep(&semaphore, -5), SHMQ_TIMED_OUT);
    CHECK_EQ(shmq_sleep(&semaphore, 1000000), SHMQ_TIMED_OUT);
    CHECK(shmq_read_clock(CLOCK_MONOTONIC) - start >= 1000000);
    sem_destroy(&semaphore);
}

TEST("a sleep ends with a signal")
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {{0, 1000000}, {0, 1000000}}; /* the first may come too early */
    struct sigaction quiet = {.sa_handler = do_nothing};
    timer_t timer;
    sem_t semaphore;

    CHECK(!sem_init(&semaphore, 0, 0) && !sigaction(SIGUSR1, &quiet, NULL));
    CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer) && !timer_settime(timer, 0, &often, NULL));
    CHECK_EQ(shmq_sleep(&semaphore, 3600 * SECOND), SHMQ_INTERRUPTED);
    timer_delete(timer);
    sem_destroy(&semaphore);
}

TEST("to spin ends when there is something, or with its time")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);

    CHECK_EQ(shmq_spin(q, SHMQ_NOT_EMPTY, 1000, 0), -1);
    CHECK(shmq_spin(q, SHMQ_NOT_FULL, 1000, 1000) >= 0);
    put_text(q, "a");
    CHECK(shmq_spin(q, SHMQ_NOT_EMPTY, 1000, 0) >= 0);
    CHECK_EQ(shmq_spin(q, SHMQ_NOT_FULL, 1000, 1000), -1);
}
