/* Wakeups: which sleepers are woken, how often, and what a death or a departure leaves. */
#define _GNU_SOURCE
#include "queue/wait.h"
#include "queue/wakeup.h"
#include "queue/segment.h"
#include "base/clock.h"
#include "fixture.h"
#include "queue/lock.h"
#include "queue/recover.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct shmq_watch watch(enum shmq_event event, uint32_t n)
{
    return (struct shmq_watch){.event = event, .n = n, .party = SHMQ_NIL};
}

/* Party n of the handle's process arms; its watch. */
static struct shmq_watch arm(struct shmq_queue *q, enum shmq_event event, uint32_t n)
{
    struct shmq_watch w = watch(event, n);

    CHECK_EQ(shmq_arm(q, &w, PROCESS), SHMQ_OK);
    return w;
}

/* Ends the critical section and begins the next one: the parties that it woke. */
static uint64_t parties_woken(struct shmq_queue *q)
{
    uint32_t post[2];
    uint64_t woken;

    shmq_unlock(q, post);
    woken = atomic_exchange(&q->to_wake, 0);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_WELL(q);
    return woken;
}

static uint64_t armed(struct shmq_queue *q)
{
    return shmq_armed(q->h, SHMQ_NOT_EMPTY) | shmq_armed(q->h, SHMQ_NOT_FULL);
}

TEST("nobody is woken where nothing came")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 0);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(parties_woken(q), 0);
    arm(q, SHMQ_NOT_EMPTY, 1);
    arm(q, SHMQ_NOT_FULL, 2);
    CHECK_EQ(parties_woken(q), 0);
    CHECK_EQ(armed(q), 3);
}

TEST("each message wakes one party, and each party once")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);

    for (uint32_t n = 0; n < 3; n++)
        arm(q, SHMQ_NOT_EMPTY, n);
    put_text(q, "a");
    CHECK_EQ(__builtin_popcountll(parties_woken(q)), 1);
    CHECK_EQ(__builtin_popcountll(armed(q)), 2);
    put_text(q, "b");
    put_text(q, "c");
    put_text(q, "d");
    CHECK_EQ(__builtin_popcountll(parties_woken(q)), 2);
    CHECK_EQ(parties_woken(q), 0);
    CHECK_EQ(armed(q), 0);
}

TEST("a party that arms twice has one entry, and is woken once")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 5);

    CHECK_EQ(arm(q, SHMQ_NOT_EMPTY, 5).party, w.party);
    CHECK_EQ(shmq_arm(q, &w, PROCESS), SHMQ_OK);
    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 1ull << w.party);
    CHECK_EQ(parties_woken(q), 0);
}

TEST("parties are woken in turn, in whatever order they arm")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    uint32_t times[3] = {0};

    for (int round = 0; round < 30; round++) {
        uint64_t woken;

        for (uint32_t n = 0; n < 3; n++)
            arm(q, SHMQ_NOT_EMPTY, n);
        put_text(q, "a");
        woken = parties_woken(q);
        CHECK_EQ(__builtin_popcountll(woken), 1);
        times[__builtin_ctzll(woken)]++;
        CHECK_EQ(drain(q), 1);
    }
    for (uint32_t n = 0; n < 3; n++)
        CHECK_EQ(times[n], 10);
}

TEST("a sleeper on the queue is served before any party")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1);

    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 0);
    put_text(q, "b");
    CHECK_EQ(parties_woken(q), 1ull << w.party);
    shmq_wake_up(q, SHMQ_NOT_EMPTY, true, 0);
}

TEST("a post that its sleeper took with it into death keeps nobody from being woken")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8), *dead = another_handle(q);
    struct shmq_watch w;

    shmq_fall_asleep(dead, SHMQ_NOT_EMPTY);
    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 0);
    shmq_reclaim(q, dead->attachment, q->attachments[dead->attachment].process, now);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(q->h->posted[SHMQ_NOT_EMPTY], 1);
    w = arm(q, SHMQ_NOT_EMPTY, 1);
    put_text(q, "b");
    CHECK_EQ(parties_woken(q), 1ull << w.party);
}

TEST("each slot that becomes free wakes one sleeper for room, a purge all of them")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    uint64_t removed;

    for (uint32_t n = 0; n < 4; n++)
        put_text(q, "a");
    for (uint32_t n = 0; n < 4; n++)
        arm(q, SHMQ_NOT_FULL, n);
    CHECK_EQ(parties_woken(q), 0);
    CHECK_EQ(shmq_ack(q, take_next(q).receipt, now), SHMQ_OK);
    CHECK_EQ(__builtin_popcountll(parties_woken(q)), 1);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(__builtin_popcountll(parties_woken(q)), 3);
}

TEST("the end of the queue wakes everybody")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1);
    uint32_t post[2];

    arm(q, SHMQ_NOT_FULL, 2);
    CHECK(!shmq_is_woken(q, &w, true));
    SET(q->h->state, SHMQ_GONE);
    shmq_unlock(q, post);
    CHECK_EQ(atomic_exchange(&q->to_wake, 0), 3);
    CHECK(shmq_is_woken(q, &w, false));
}

TEST("a party beyond the last entry is refused, and still sees what comes")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch late = watch(SHMQ_NOT_EMPTY, 1000);

    for (uint32_t n = 0; n < SHMQ_PARTIES; n++)
        arm(q, SHMQ_NOT_EMPTY, n);
    CHECK_EQ(shmq_arm(q, &late, PROCESS), SHMQ_CROWDED);
    CHECK(!shmq_is_woken(q, &late, false) && !shmq_is_woken(q, &late, true));
    put_text(q, "a");
    CHECK_EQ(__builtin_popcountll(parties_woken(q)), 1);
    CHECK(!shmq_is_woken(q, &late, false) && shmq_is_woken(q, &late, true));
    shmq_disarm(q, &late);
    CHECK_EQ(__builtin_popcountll(armed(q)), SHMQ_PARTIES - 1);
}

TEST("a party that was chosen counts as woken, even if the waker died before the post")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1);

    CHECK(!shmq_is_woken(q, &w, true));
    put_text(q, "a");
    CHECK(!shmq_is_woken(q, &w, false) && shmq_is_woken(q, &w, true));
    CHECK_EQ(parties_woken(q), 1ull << w.party); /* and nobody posts */
    CHECK_EQ(drain(q), 1);
    CHECK(shmq_is_woken(q, &w, false));
    CHECK_EQ(shmq_arm(q, &w, PROCESS), SHMQ_OK);
    CHECK(!shmq_is_woken(q, &w, true));
}

TEST("a party that waits for room counts as woken while there is some")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_watch w;

    put_text(q, "a");
    w = arm(q, SHMQ_NOT_FULL, 1);
    CHECK(!shmq_is_woken(q, &w, true));
    CHECK_EQ(drain(q), 1);
    CHECK(shmq_is_woken(q, &w, true));
}

TEST("a party that disarms is not woken, and keeps its entry")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1), other = arm(q, SHMQ_NOT_EMPTY, 2);

    shmq_disarm(q, &w);
    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 1ull << other.party);
    CHECK_EQ(arm(q, SHMQ_NOT_EMPTY, 1).party, w.party);
}

TEST("who leaves after it was woken has another one told, as long as there is something")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_watch other, w;

    put_text(q, "a");
    other = arm(q, SHMQ_NOT_FULL, 1);
    w = arm(q, SHMQ_NOT_FULL, 2);
    CHECK_EQ(drain(q), 1);
    CHECK_EQ(parties_woken(q), 1ull << w.party);
    shmq_disarm(q, &w);
    CHECK_EQ(parties_woken(q), 1ull << other.party);

    other = arm(q, SHMQ_NOT_FULL, 1);
    put_text(q, "b");
    shmq_disarm(q, &w);
    CHECK_EQ(parties_woken(q), 0);
    CHECK_EQ(armed(q), 1ull << other.party);
}

/* ---- time ---- */

TEST("what is due is done by who watches, once it is due")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1);

    PUT(q, .delay = SECOND / 2);
    shmq_watch_time(q, &w, now);
    CHECK_EQ(w.due, now + SECOND / 2);
    now += SECOND / 4; /* the next tick has passed, and nothing is due */
    shmq_watch_time(q, &w, now);
    CHECK_EQ(w.due, now + SECOND / 4);
    CHECK_EQ(parties_woken(q), 0);
    now += SECOND / 4;
    shmq_watch_time(q, &w, now);
    CHECK_EQ(parties_woken(q), 1ull << w.party);
}

TEST("what comes later and is due earlier wakes one party, which then knows")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1), other = arm(q, SHMQ_NOT_EMPTY, 2);

    PUT(q, .delay = SECOND);
    shmq_watch_time(q, &w, now);
    shmq_watch_time(q, &other, now);
    CHECK_EQ(parties_woken(q), 0);
    PUT(q, .delay = SECOND / 10);
    CHECK_EQ(__builtin_popcountll(parties_woken(q)), 1);
    CHECK_EQ(parties_woken(q), 0);
    CHECK_EQ(shmq_arm(q, &w, PROCESS), SHMQ_OK);
    shmq_watch_time(q, &w, now);
    CHECK_EQ(w.due, now + SECOND / 10);
    CHECK_EQ(parties_woken(q), 0);
}

TEST("a party that leaves passes the alarm on")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1), other = arm(q, SHMQ_NOT_EMPTY, 2);

    PUT(q, .delay = SECOND);
    shmq_watch_time(q, &w, now);
    CHECK_EQ(parties_woken(q), 0);
    shmq_disarm(q, &w);
    CHECK_EQ(parties_woken(q), 1ull << other.party);
}

TEST("after a death the parties are woken that the dead process may have selected")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1), other = arm(q, SHMQ_NOT_EMPTY, 2);

    put_text(q, "a");
    CHECK_EQ(__builtin_popcountll(parties_woken(q)), 1);
    shmq_post_anew(q);
    CHECK_EQ(parties_woken(q), 1ull << w.party | 1ull << other.party);
}

TEST("a waiter for room looks every 50 ms while there are free slots")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_watch w = arm(q, SHMQ_NOT_FULL, 1);

    shmq_watch_time(q, &w, now);
    CHECK_EQ(w.due, now + SHMQ_SHORT_SLEEP);
    put_text(q, "a");
    shmq_watch_time(q, &w, now);
    CHECK(w.due > now + SHMQ_SHORT_SLEEP);
}

TEST("a handle that is about to close wakes its own parties")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = another_handle(q);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1);

    arm(other, SHMQ_NOT_EMPTY, 1);
    shmq_select_own(q);
    CHECK_EQ(parties_woken(q), 1ull << w.party);
}

/* ---- the ends ---- */

TEST("a handle that closes or died leaves neither entry nor bit")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = another_handle(q);
    struct shmq_watch w = arm(other, SHMQ_NOT_EMPTY, 1);

    arm(other, SHMQ_NOT_FULL, 2);
    CHECK_EQ(arm(q, SHMQ_NOT_EMPTY, 1).party, 2);
    shmq_reclaim(q, other->attachment, q->attachments[other->attachment].process, now);
    CHECK_EQ(armed(q), 1ull << 2);
    CHECK_EQ(q->h->parties[w.party].process, 0);
    CHECK_WELL(q);
    shmq_retire(q, now);
    CHECK_EQ(armed(q), 0);
    CHECK_EQ(q->h->parties[2].process, 0);
}

TEST("a recovery keeps what is armed, but for bits that are nobody's")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_watch w = arm(q, SHMQ_NOT_EMPTY, 1);

    atomic_store(&q->h->armed[SHMQ_NOT_FULL], 0xFFull << 8);
    SET(q->h->parties[20].process, 9);
    SET(q->h->parties[20].attachment, 77);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(armed(q), 1ull << w.party);
    CHECK_EQ(q->h->parties[20].process, 0);
    CHECK_WELL(q);
}

TEST("an entry that is another's by now is not touched by who had it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = another_handle(q);
    struct shmq_watch w = arm(other, SHMQ_NOT_EMPTY, 1), mine;

    shmq_reclaim(q, other->attachment, q->attachments[other->attachment].process, now);
    mine = arm(q, SHMQ_NOT_EMPTY, 3);
    CHECK_EQ(mine.party, w.party);
    shmq_disarm(other, &w);
    CHECK_EQ(armed(q), 1ull << mine.party);
}

/* ---- real FIFOs ---- */

static char stem[64];

static int new_wakeup(uint32_t n)
{
    char name[SHMQ_WAKEUP_NAME];
    int fd;

    (void)snprintf(stem, sizeof stem, "/dev/shm/shmq-core-test-%d@wakeup.", getpid());
    shmq_wakeup_name(name, stem, PROCESS, n);
    CHECK(!mkfifo(name, 0600));
    fd = shmq_open_wakeup(name);
    CHECK(fd >= 0);
    return fd;
}

static void remove_wakeup(uint32_t n)
{
    char name[SHMQ_WAKEUP_NAME];

    shmq_wakeup_name(name, stem, PROCESS, n);
    CHECK(!unlink(name));
}

static int posts_of(int fd)
{
    int count;

    CHECK(!ioctl(fd, FIONREAD, &count));
    return count;
}

TEST("more wakeups than are kept open are all woken, and one that is gone is passed over")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    int wakeups[SHMQ_PARTIES + 10];

    for (uint32_t n = 0; n < SHMQ_PARTIES + 10; n++) {
        uint32_t post[2];

        wakeups[n] = new_wakeup(n);
        q->wakeup_prefix = stem;
        arm(q, SHMQ_NOT_EMPTY, n);
        put_text(q, "a");
        shmq_unlock(q, post);
        CHECK(shmq_must_wake(q));
        shmq_wake_parties(q);
        CHECK(!shmq_must_wake(q));
        CHECK_EQ(shmq_lock(q), SHMQ_OK);
        CHECK_EQ(drain(q), 1);
        q->h->parties[0].process = 0; /* its place is free again */
        CHECK_EQ(posts_of(wakeups[n]), 1);
    }
    arm(q, SHMQ_NOT_EMPTY, 99999);
    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 1);
    atomic_store(&q->to_wake, 1);
    shmq_wake_parties(q);
    CHECK_EQ(drain(q), 1);
    for (uint32_t n = 0; n < SHMQ_PARTIES + 10; n++) {
        CHECK_EQ(posts_of(wakeups[n]), 1);
        CHECK(shmq_clear_wakeup(wakeups[n]));
        CHECK(!shmq_clear_wakeup(wakeups[n]));
        remove_wakeup(n);
        CHECK(!close(wakeups[n]));
    }
}

static void put_and_wake(struct shmq_queue *q)
{
    arm(q, SHMQ_NOT_EMPTY, 7);
    put_text(q, "a");
    atomic_store(&q->to_wake, parties_woken(q));
    shmq_wake_parties(q);
    CHECK_EQ(drain(q), 1);
}

TEST("a file that the program opened in the place of a wakeup gets no byte")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    int wakeup = new_wakeup(7), file, next;
    char path[96], byte;

    (void)snprintf(path, sizeof path, "%s.file", stem);
    file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0);
    next = dup(file);
    CHECK(!close(next));
    q->wakeup_prefix = stem;
    put_and_wake(q); /* opens it under the number `next` */
    CHECK_EQ(posts_of(wakeup), 1);
    CHECK_EQ(dup2(file, next), next);
    put_and_wake(q);
    CHECK_EQ(posts_of(wakeup), 2);
    CHECK_EQ(pread(file, &byte, 1, 0), 0);
    CHECK(!close(file));
    CHECK(!close(next));
    CHECK(!unlink(path));
    remove_wakeup(7);
    CHECK(!close(wakeup));
}

TEST("a wakeup that is full does not hold the poster up")
{
    int wakeup = new_wakeup(8);

    for (int i = 0; i < 100000; i++)
        shmq_post_wakeup(wakeup);
    CHECK(shmq_clear_wakeup(wakeup));
    CHECK(!shmq_clear_wakeup(wakeup));
    remove_wakeup(8);
    CHECK(!close(wakeup));
}

/* ---- threads: each waits on two queues at once, with one wakeup ---- */

#define QUEUES 2
#define PRODUCERS 2u
#define CONSUMERS 3u
#define EACH 3000u
#define SLICE 50000000ll /* ns */

struct worker {
    pthread_t thread;
    struct shmq_queue *q[QUEUES];
    uint32_t n;
    int wakeup;
    _Atomic uint32_t *taken;
};

static void enter(struct shmq_queue *q)
{
    int status = shmq_lock(q);

    while (status == SHMQ_BUSY)
        status = shmq_lock_slowly(q, SLICE);
    CHECK_EQ(status, SHMQ_OK);
}

static void leave(struct shmq_queue *q)
{
    uint32_t post[2];

    shmq_unlock(q, post);
    CHECK_EQ(post[0] + post[1], 0);
    if (shmq_must_wake(q))
        shmq_wake_parties(q);
}

static bool try_put(struct shmq_queue *q)
{
    struct shmq_put put = {.body = "x", .body_bytes = 1};
    uint64_t seq;
    int status;

    enter(q);
    status = shmq_put(q, &put, shmq_now(), &seq);
    leave(q);
    return status == SHMQ_OK;
}

static bool try_take(struct shmq_queue *q)
{
    struct shmq_view view;
    int status;

    enter(q);
    status = shmq_lease(q, shmq_now(), true, &view);
    if (status == SHMQ_OK)
        CHECK_EQ(shmq_ack(q, view.receipt, shmq_now()), SHMQ_OK);
    leave(q);
    return status == SHMQ_OK;
}

/* One round of waiting. The wakeup has at most a post for each time that it was armed. */
static void wait_for(struct worker *w, struct shmq_watch watches[QUEUES],
                     bool (*attempt)(struct shmq_queue *))
{
    bool done = false;

    for (int i = 0; i < QUEUES; i++) {
        enter(w->q[i]);
        CHECK_EQ(shmq_arm(w->q[i], &watches[i], PROCESS), SHMQ_OK);
        shmq_watch_time(w->q[i], &watches[i], shmq_now());
        leave(w->q[i]);
    }
    for (int i = 0; i < QUEUES && !done; i++)
        if ((done = attempt(w->q[i])))
            atomic_fetch_add(w->taken, 1);
    if (done)
        return;
    shmq_await_wakeup(w->wakeup, SLICE);
    (void)shmq_clear_wakeup(w->wakeup);
    for (int i = 0; i < QUEUES; i++)
        (void)(shmq_is_woken(w->q[i], &watches[i], true) || watches[i].due);
}

static void work(struct worker *w, enum shmq_event event, uint32_t until,
                 bool (*attempt)(struct shmq_queue *))
{
    struct shmq_watch watches[QUEUES];

    for (int i = 0; i < QUEUES; i++)
        watches[i] = watch(event, w->n);
    for (uint32_t round = w->n; atomic_load(w->taken) < until; round++) {
        if (attempt(w->q[round % QUEUES]))
            atomic_fetch_add(w->taken, 1);
        else
            wait_for(w, watches, attempt);
    }
}

/* Consumers end together, producers each with its own share. */
static void *produce(void *argument)
{
    work(argument, SHMQ_NOT_FULL, EACH, try_put);
    return NULL;
}

static void *consume(void *argument)
{
    work(argument, SHMQ_NOT_EMPTY, PRODUCERS * EACH, try_take);
    return NULL;
}

TEST("threads that wait on two queues with one wakeup each get everything")
{
    struct shmq_queue *queues[QUEUES] = {NEW_QUEUE(.capacity = 5), NEW_QUEUE(.capacity = 7)};
    struct worker workers[PRODUCERS + CONSUMERS];
    _Atomic uint32_t put[PRODUCERS] = {0}, taken = 0;

    shmq_clock_set = 0; /* these live in real time */
    for (uint32_t n = 0; n < PRODUCERS + CONSUMERS; n++) {
        struct worker *w = &workers[n];

        *w = (struct worker){
            .n = n, .wakeup = new_wakeup(n), .taken = n < PRODUCERS ? &put[n] : &taken};
        for (int i = 0; i < QUEUES; i++) {
            w->q[i] = another_handle(queues[i]);
            w->q[i]->wakeup_prefix = stem;
        }
    }
    for (int i = 0; i < QUEUES; i++)
        leave(queues[i]);
    for (uint32_t n = 0; n < PRODUCERS + CONSUMERS; n++)
        CHECK(!pthread_create(&workers[n].thread, NULL, n < PRODUCERS ? produce : consume,
                              &workers[n]));
    for (uint32_t n = 0; n < PRODUCERS + CONSUMERS; n++) {
        CHECK(!pthread_join(workers[n].thread, NULL));
        remove_wakeup(n);
        CHECK(!close(workers[n].wakeup));
    }
    for (int i = 0; i < QUEUES; i++) {
        enter(queues[i]);
        CHECK_EQ(queues[i]->h->live, 0);
        CHECK_WELL(queues[i]);
    }
}

static struct shmq_watch arm_filtered(struct shmq_queue *q, uint32_t n)
{
    struct shmq_watch w = watch(SHMQ_NOT_EMPTY, n);

    w.filtered = true;
    CHECK_EQ(shmq_arm(q, &w, PROCESS), SHMQ_OK);
    return w;
}

TEST("a filtered party is not woken for what was there, but for all that arrives")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_watch first, second;

    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 0);
    first = arm_filtered(q, 1);
    second = arm_filtered(q, 2);
    CHECK_EQ(parties_woken(q), 0);
    CHECK(!shmq_is_woken(q, &first, true));
    put_text(q, "b");
    CHECK_EQ(parties_woken(q), 1ull << first.party | 1ull << second.party);
    CHECK(shmq_is_woken(q, &first, false) && shmq_is_woken(q, &second, false));
    CHECK_EQ(parties_woken(q), 0);
}

TEST("a filtered party takes the place of no other in a wake or a post")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_watch plain = arm(q, SHMQ_NOT_EMPTY, 1), filtered = arm_filtered(q, 1);
    uint32_t post[2];

    CHECK(plain.party != filtered.party);
    put_text(q, "a");
    CHECK_EQ(parties_woken(q), 1ull << plain.party | 1ull << filtered.party);
    CHECK_EQ(drain(q), 1);
    (void)arm_filtered(q, 1);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    put_text(q, "b");
    shmq_unlock(q, post);
    CHECK_EQ(post[SHMQ_NOT_EMPTY], 1);
    CHECK_EQ(atomic_exchange(&q->to_wake, 0), 1ull << filtered.party);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
}

TEST("what comes back, is due, or follows in its group, arrives")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_watch w;
    struct shmq_view view;

    PUT(q, .group = 7);
    PUT(q, .group = 7);
    view = take_next(q);
    CHECK_EQ(parties_woken(q), 0);
    w = arm_filtered(q, 1);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(parties_woken(q), 1ull << w.party);
    view = take_next(q);
    w = arm_filtered(q, 1);
    CHECK_EQ(parties_woken(q), 0);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(parties_woken(q), 1ull << w.party);
}
