/* Threads, each with a handle of its own, over one mapping. Also what ThreadSanitizer is
 * for: it sees every access to the segment that is not ordered by the lock or an atomic. */
#include "base/clock.h"
#include "workers.h"

#include <pthread.h>

#define WORKERS (WORKERS_PRODUCERS + WORKERS_CONSUMERS)
#define MOST_THREADS (WORKERS + 2)
#define FOLLOWER 100u

struct worker {
    pthread_t thread;
    struct shmq_queue *q;
    struct workers *c;
    uint32_t number;
    uint64_t seed;
};

static void *produce(void *argument)
{
    struct worker *w = argument;

    workers_produce(w->q, w->c, w->number, w->seed + w->number);
    return NULL;
}

static void *consume(void *argument)
{
    struct worker *w = argument;

    workers_consume(w->q, w->c, w->seed + w->number);
    return NULL;
}

static void *peek(void *argument)
{
    struct worker *w = argument;

    workers_peek(w->q, w->c, w->seed + w->number);
    return NULL;
}

static void *follow(void *argument)
{
    struct worker *w = argument;

    workers_follow(w->q, w->c, w->seed + w->number);
    return NULL;
}

static void *pass_by(void *argument)
{
    struct worker *w = argument;

    workers_pass_by(w->q, w->c, w->seed + w->number);
    return NULL;
}

static void *(*role_of(uint32_t number))(void *)
{
    if (number < WORKERS_PRODUCERS)
        return produce;
    if (number == FOLLOWER)
        return follow;
    return number < WORKERS ? consume : peek;
}

/* `passing` may be NULL: one more thread, which has its handle, recovers and passes by. */
static void run_beside(struct shmq_queue *q, uint64_t seed, bool peeking, bool sharing,
                       struct worker *passing)
{
    struct workers *c = workers_new(0);
    struct worker workers[MOST_THREADS];
    uint32_t count = WORKERS + peeking;

    seed = seed_or(seed);
    for (uint32_t i = 0; i < count; i++)
        workers[i] = (struct worker){
            .q = sharing ? q : another_handle(q), .c = c, .number = i, .seed = seed};
    if (q->journaled) {
        workers[count] = workers[0];
        workers[count].q = another_handle(q);
        workers[count++].number = FOLLOWER;
    }
    c->recovers = passing != NULL;
    shmq_clock_set = 0; /* these live in real time */
    workers_unlock(q, c);
    for (uint32_t i = 0; i < count; i++)
        CHECK(!pthread_create(&workers[i].thread, NULL, role_of(workers[i].number), &workers[i]));
    if (passing) {
        passing->c = c;
        passing->seed = seed;
        CHECK(!pthread_create(&passing->thread, NULL, pass_by, passing));
        CHECK(!pthread_join(passing->thread, NULL));
    }
    for (uint32_t i = 0; i < count; i++)
        CHECK(!pthread_join(workers[i].thread, NULL));
    workers_verify(q, c);
    CHECK((q->h->recoveries != 0) == c->recovers);
    workers_free(c);
}

static void run_together(struct shmq_queue *q, uint64_t seed, bool peeking, bool sharing)
{
    run_beside(q, seed, peeking, sharing, NULL);
}

#define HOUR (3600 * SECOND)

TEST("threads get every message once, one of a group at a time and in order")
{
    run_together(NEW_QUEUE(.capacity = 64, .policies[0].visibility = HOUR), 31, false, false);
}

TEST("threads do so though others look at the messages as they pass")
{
    run_together(NEW_QUEUE(.capacity = 200, .policies[0].visibility = HOUR), 32, true, false);
}

TEST("threads do so where the queue is nearly always full, and everyone sleeps")
{
    run_together(NEW_QUEUE(.capacity = 3, .policies[0].visibility = HOUR), 33, false, false);
}

TEST("threads do so while the queue grows")
{
    run_together(NEW_QUEUE(.capacity = WORKERS_MESSAGES, .policies[0].visibility = HOUR,
                           .arena_bytes = WORKERS_MESSAGES * 64),
                 34, false, false);
}

TEST("threads do so on one handle, too")
{
    run_together(NEW_QUEUE(.capacity = 64, .policies[0].visibility = HOUR), 35, false, true);
}

TEST("threads do so while handles come and go with leases, and the queue is recovered")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64, .policies[0].visibility = HOUR);
    struct worker passing = {.q = bare_handle(q)};

    run_beside(q, 36, false, false, &passing);
}

TEST("threads do so while a writer follows what they do, and is killed now and then")
{
    run_together(
        NEW_QUEUE(.capacity = 64, .policies[0].visibility = HOUR, .durability = SHMQ_JOURNAL), 37,
        true, false);
}

TEST("threads do so in a queue that is nearly always full, and waits for its writer")
{
    run_together(
        NEW_QUEUE(.capacity = 5, .policies[0].visibility = HOUR, .durability = SHMQ_JOURNAL), 38,
        false, false);
}

TEST("threads do so while the rings of hints grow")
{
    run_together(NEW_QUEUE(.capacity = WORKERS_MESSAGES, .policies[0].visibility = HOUR,
                           .arena_bytes = WORKERS_MESSAGES * 64, .durability = SHMQ_JOURNAL),
                 39, false, true);
}

TEST("threads do so while a writer follows, and the queue is recovered")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64, .policies[0].visibility = HOUR,
                                     .durability = SHMQ_JOURNAL);
    struct worker passing = {.q = bare_handle(q)};

    run_beside(q, 40, false, false, &passing);
}

/* ---- one lease, two threads ---- */

struct lease {
    pthread_t thread;
    struct shmq_queue *q;
    struct workers *c;
    uint64_t receipt;
    _Atomic bool ended;
};

static void *extend(void *argument)
{
    struct lease *l = argument;

    while (!atomic_load(&l->ended)) {
        workers_lock(l->q);
        CHECK_EQ(shmq_extend(l->q, l->receipt, HOUR, shmq_now()), SHMQ_OK);
        workers_unlock(l->q, l->c);
    }
    return NULL;
}

TEST("a lease that one thread extends holds all the time for the other")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].visibility = HOUR);
    struct lease l = {.q = another_handle(q), .c = workers_new(0)};

    shmq_clock_set = 0;
    put_text(q, "a");
    workers_unlock(q, l.c);
    workers_lock(q);
    now = shmq_now();
    l.receipt = take_next(q).receipt;
    workers_unlock(q, l.c);
    CHECK(!pthread_create(&l.thread, NULL, extend, &l));
    for (int i = 0; i < 20000; i++) {
        CHECK(shmq_holds(q, l.receipt, shmq_now()));
        CHECK_EQ(shmq_hand(q, l.receipt, shmq_now()), SHMQ_OK);
    }
    atomic_store(&l.ended, true);
    CHECK(!pthread_join(l.thread, NULL));
    CHECK_EQ(shmq_mark_acked(q, l.receipt, shmq_now()), SHMQ_OK);
    workers_free(l.c);
}
