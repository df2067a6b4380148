/* A lock between processes: taken, waited for, and taken over from the dead alone. */
#define _GNU_SOURCE
#include "harness.h"
#include "registered.h"

#include "base/mutex.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ll
#define SECOND 1000000000ll

static struct shmq_mutex *new_mutex(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    return page;
}

static int64_t monotonic(void) { return shmq_read_clock(CLOCK_MONOTONIC); }

static int take(struct shmq_mutex *mutex, int64_t ns)
{
    return shmq_mutex_take(mutex, registered(), ns);
}

/* A process that holds the mutex, and is stopped inside. */
static pid_t stop_inside(struct shmq_mutex *mutex)
{
    struct shmq_process *self = registered();
    pid_t child = fork();
    int how;

    CHECK(child >= 0);
    if (!child) {
        if (shmq_mutex_take(mutex, self, SECOND) == SHMQ_OK)
            raise(SIGSTOP);
        _exit(0);
    }
    CHECK(waitpid(child, &how, WUNTRACED) == child && WIFSTOPPED(how));
    return child;
}

static void kill_it(pid_t child)
{
    CHECK(!kill(child, SIGKILL));
    CHECK(waitpid(child, NULL, 0) == child);
}

/* ---- without a death ---- */

TEST("a free mutex is taken and named, and free again once it is dropped")
{
    struct shmq_mutex *mutex = new_mutex();

    CHECK_EQ(take(mutex, 0), SHMQ_OK);
    CHECK_EQ(shmq_mutex_holder(mutex), registered()->number);
    CHECK_EQ(take(mutex, 0), SHMQ_BUSY);
    shmq_mutex_drop(mutex);
    CHECK_EQ(mutex->word, 0);
}

TEST("a process without a number takes no lock, and judges nobody")
{
    struct shmq_process nobody = {.fd = -1};
    struct shmq_mutex *mutex = new_mutex();

    CHECK_EQ(shmq_mutex_take(mutex, &nobody, SECOND), SHMQ_UNREGISTERED);
    CHECK_EQ(mutex->word, 0);
    CHECK(!shmq_has_died(&nobody, dead_number()));
}

TEST("a stopped holder is waited for to the end, not longer, and keeps its lock")
{
    struct shmq_mutex *mutex = new_mutex();
    pid_t child = stop_inside(mutex);
    uint64_t holder = shmq_mutex_holder(mutex);
    int64_t begun = monotonic();

    CHECK(holder && holder != registered()->number);
    CHECK_EQ(take(mutex, 0), SHMQ_BUSY);
    CHECK_EQ(take(mutex, 20 * MS), SHMQ_BUSY);
    CHECK(monotonic() - begun >= 20 * MS);
    CHECK_EQ(shmq_mutex_wait(mutex, registered(), 0), SHMQ_BUSY);
    CHECK_EQ(shmq_mutex_holder(mutex), holder);
    CHECK_EQ(shmq_pid_of(registered(), holder), child);
    CHECK(!shmq_is_at_work(registered(), holder));
    CHECK_EQ(shmq_patience(0, 0, registered(), holder), 50 * MS);
    CHECK_EQ(shmq_patience(100 * MS, 0, registered(), holder), 0);
    CHECK_EQ(shmq_patience(100 * MS, INT64_MAX, registered(), holder), 50 * MS);
    kill_it(child);
}

TEST("a process that is at work is waited for longer")
{
    uint64_t own = registered()->number;

    CHECK_EQ(shmq_pid_of(registered(), own), getpid());
    CHECK(shmq_is_at_work(registered(), own));
    CHECK(shmq_patience(100 * MS, 0, registered(), own) > 0);
    CHECK_EQ(shmq_patience(SECOND, 0, registered(), own), 0);
    /* A deadline that has passed makes it no shorter. */
    CHECK(shmq_patience(100 * MS, 1, registered(), own) > 0);
    CHECK_EQ(shmq_patience(SECOND, 1, registered(), own), 0);
}

struct contest {
    struct shmq_mutex *mutex;
    uint64_t count; /* not atomic: the mutex guards it                                  */
};

#define TURNS 20000

static void *contend(void *given)
{
    struct contest *contest = given;

    for (int i = 0; i < TURNS; i++) {
        CHECK_EQ(take(contest->mutex, 10 * SECOND), SHMQ_OK);
        contest->count++;
        shmq_mutex_drop(contest->mutex);
    }
    return NULL;
}

TEST("of threads that contend, one is inside at a time, and none is forgotten")
{
    struct contest contest = {.mutex = new_mutex()};
    pthread_t threads[4];

    (void)registered();
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, contend, &contest));
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK_EQ(contest.count, 4 * TURNS);
    CHECK_EQ(contest.mutex->word & ~SHMQ_AWAITED, 0);
}

static void *hold_a_moment(void *given)
{
    struct contest *contest = given;

    while (!(atomic_load_explicit(&contest->mutex->word, memory_order_relaxed) & SHMQ_AWAITED))
        sched_yield();
    shmq_mutex_drop(contest->mutex);
    return NULL;
}

TEST("one that sleeps for the mutex is woken by its release, and leaves the mark for others")
{
    struct contest contest = {.mutex = new_mutex()};
    pthread_t thread;

    CHECK_EQ(take(contest.mutex, 0), SHMQ_OK);
    CHECK(!pthread_create(&thread, NULL, hold_a_moment, &contest));
    CHECK_EQ(take(contest.mutex, 10 * SECOND), SHMQ_OK);
    CHECK_EQ(contest.mutex->word, registered()->number << 1 | SHMQ_AWAITED);
    CHECK(!pthread_join(thread, NULL));
}

/* ---- with a death ---- */

TEST("a dead holder's mutex is inherited by one that waits, and by one that does not")
{
    struct shmq_mutex *mutex = new_mutex();

    kill_it(stop_inside(mutex));
    CHECK_EQ(take(mutex, 0), SHMQ_BUSY); /* it asks nobody */
    CHECK_EQ(take(mutex, SECOND), SHMQ_INHERITED);
    CHECK_EQ(shmq_mutex_holder(mutex), registered()->number);
    shmq_mutex_drop(mutex);
    kill_it(stop_inside(mutex));
    CHECK_EQ(take(mutex, -1), SHMQ_INHERITED);
}

TEST("one that dies as it inherits leaves it to be inherited again")
{
    struct shmq_mutex *mutex = new_mutex();
    pid_t child;

    kill_it(stop_inside(mutex));
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK_EQ(take(mutex, SECOND), SHMQ_INHERITED);
        raise(SIGKILL);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_EQ(take(mutex, SECOND), SHMQ_INHERITED);
    shmq_mutex_drop(mutex);
    CHECK_EQ(take(mutex, SECOND), SHMQ_OK);
}

static void *inherit(void *given)
{
    struct contest *contest = given;
    int status = take(contest->mutex, 10 * SECOND);

    CHECK(status == SHMQ_OK || status == SHMQ_INHERITED);
    contest->count += status == SHMQ_INHERITED;
    shmq_mutex_drop(contest->mutex);
    return NULL;
}

TEST("of many judges one inherits")
{
    struct contest contest = {.mutex = new_mutex()};
    pthread_t threads[8];

    for (uint64_t turn = 1; turn <= 50; turn++) {
        atomic_store(&contest.mutex->word, dead_number() << 1);
        for (int i = 0; i < 8; i++)
            CHECK(!pthread_create(&threads[i], NULL, inherit, &contest));
        for (int i = 0; i < 8; i++)
            CHECK(!pthread_join(threads[i], NULL));
        CHECK_EQ(contest.count, turn);
    }
}

TEST("the child of a fork neither holds its parent's mutex nor takes it")
{
    struct shmq_mutex *mutex = new_mutex();
    pid_t child;
    int how;

    CHECK_EQ(take(mutex, 0), SHMQ_OK);
    child = fork();
    CHECK(child >= 0);
    if (!child)
        _exit(take(mutex, 20 * MS) == SHMQ_BUSY &&
                      shmq_pid_of(registered(), shmq_mutex_holder(mutex)) == (uint32_t)getppid()
                  ? 0
                  : 1);
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && !WEXITSTATUS(how));
}

/* ---- what cannot be told, and damage ---- */

TEST("a word that names no process at all is taken over")
{
    struct shmq_mutex *mutex = new_mutex();
    uint64_t words[] = {SHMQ_AWAITED, 2, 4711 << 1, (SHMQ_FIRST_PROCESS - 1) << 1};

    for (int i = 0; i < 4; i++) {
        atomic_store(&mutex->word, words[i]);
        CHECK_EQ(take(mutex, SECOND), SHMQ_INHERITED);
    }
}

TEST("numbers that another file of the namespace gave out are not judged")
{
    struct shmq_mutex *mutex = new_mutex();
    uint64_t numbers[] = {registered()->first - 1, next_number(), next_number() + 99};

    for (int i = 0; i < 3; i++) {
        CHECK(!shmq_has_died(registered(), numbers[i]));
        CHECK_EQ(shmq_pid_of(registered(), numbers[i]), 0);
        atomic_store(&mutex->word, numbers[i] << 1);
        CHECK_EQ(take(mutex, 20 * MS), SHMQ_BUSY);
    }
    CHECK(shmq_has_died(registered(), dead_number()));
}

TEST("nobody is judged by a descriptor that was closed meanwhile")
{
    struct shmq_process *self = registered();
    int fd = self->fd, other = memfd_create("other", MFD_CLOEXEC);
    uint64_t dead = dead_number();

    CHECK(other >= 0 && !ftruncate(other, 4096));
    self->fd = other;
    CHECK(!shmq_has_died(self, dead));
    self->fd = -1;
    CHECK(!shmq_has_died(self, dead));
    self->fd = fd;
    CHECK(shmq_has_died(self, dead));
    CHECK(!close(other));
}
