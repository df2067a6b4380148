/* Processes, each with an attachment of its own; some die at any moment, also inside. */
#include "queue/segment.h"
#include "base/clock.h"
#include "workers.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS (WORKERS_PRODUCERS + WORKERS_CONSUMERS)

struct worker {
    pid_t pid;
    uint64_t process;
    bool consumes;
};

static void work(struct shmq_queue *q, struct workers *c, const struct worker *w, uint32_t number,
                 uint64_t seed)
{
    struct shmq_queue *own = bare_handle(q);

    CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL)); /* a test that failed leaves nobody behind */
    workers_lock(own);
    CHECK_EQ(shmq_attach(own, w->process, (uint32_t)getpid(), "worker"), SHMQ_OK);
    workers_unlock(own, c);
    if (w->consumes)
        workers_consume(own, c, seed + w->process);
    else
        workers_produce(own, c, number, seed + w->process);
    workers_lock(own);
    shmq_reclaim(own, own->attachment, w->process, shmq_now());
    workers_unlock(own, c);
    _exit(0);
}

static void start(struct shmq_queue *q, struct workers *c, struct worker *w, uint32_t number,
                  uint64_t seed)
{
    static uint64_t processes = 500;

    w->process = ++processes;
    w->consumes = number >= WORKERS_PRODUCERS;
    w->pid = fork();
    CHECK(w->pid >= 0);
    if (!w->pid)
        work(q, c, w, number, seed);
}

/* Gives back what the dead one held. */
static void bury(struct shmq_queue *q, struct workers *c, uint64_t process)
{
    workers_lock(q);
    for (uint32_t at = 0; at < q->h->attachments_made; at++)
        if (q->attachments[at].process == process)
            shmq_reclaim(q, at, process, shmq_now());
    CHECK_WELL(q);
    workers_unlock(q, c);
}

/* What became of one worker; true if it is done. */
static bool ended(struct shmq_queue *q, struct workers *c, struct worker *w, int how)
{
    w->pid = 0;
    if (WIFEXITED(how)) {
        CHECK_EQ(WEXITSTATUS(how), 0);
        return true;
    }
    CHECK(c->deaths && WTERMSIG(how) == SIGKILL);
    bury(q, c, w->process);
    return false;
}

static void run_together(struct shmq_queue *q, uint64_t seed, uint32_t deaths)
{
    struct workers *c = workers_new(deaths);
    struct worker workers[WORKERS];
    uint32_t left = WORKERS, died = 0;

    seed = seed_or(seed);
    shmq_clock_set = 0; /* these live in real time */
    workers_unlock(q, c);
    for (uint32_t i = 0; i < WORKERS; i++)
        start(q, c, &workers[i], i, seed);
    while (left) {
        int how;
        pid_t pid = wait(&how);
        uint32_t i = 0;

        while (i < WORKERS && workers[i].pid != pid)
            i++;
        CHECK(i < WORKERS);
        if (ended(q, c, &workers[i], how)) {
            left--;
        } else {
            died++;
            start(q, c, &workers[i], i, seed);
        }
    }
    CHECK((died != 0) == (deaths != 0));
    CHECK((q->h->recoveries != 0) == (deaths != 0));
    workers_verify(q, c);
    workers_free(c);
}

TEST("processes get every message once, one of a group at a time and in order")
{
    run_together(NEW_QUEUE(.capacity = 64, .policies[0].visibility = 3600 * SECOND), 41, 0);
}

TEST("whichever process dies, inside the lock or with leases in hand, no message is lost")
{
    run_together(NEW_QUEUE(.capacity = 64, .policies[0].visibility = 3600 * SECOND), 42, 100);
}
