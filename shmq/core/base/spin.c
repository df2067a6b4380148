#define _GNU_SOURCE
#include "base/spin.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/semaphore.h"

#define MOST_CREDIT 16u
#define CREDIT_OF_SUCCESS 2u
#define CREDIT_OF_DELAY 4u /* what it costs if the core was taken from the spin       */
#define LEAST_BETWEEN 8u
#define MOST_BETWEEN 256u

#define YIELD_AFTER 4000 /* ns */
#define MOST_LATE 3u
#define TURNS 16u /* of these that might yield from the start, one does not        */
#define LEAST_COST 10000 /* ns */
#define MOST_COST 100000
#define DEFAULT_COST 50000 /* where it cannot be measured                             */
#define TRIPS 7
#define PATIENCE 2000000 /* ns for each of them */

/* ---- what a sleep costs ---- */

struct court {
    sem_t ping, pong;
    int core;      /* of the other thread; -1: there is one core         */
    bool is_there; /* it was let on that core                            */
};

static pthread_once_t measured = PTHREAD_ONCE_INIT;
static int64_t cost = DEFAULT_COST;

static bool wait_for(sem_t *semaphore)
{
    return !shmq_semaphore_wait(semaphore, shmq_read_clock(CLOCK_MONOTONIC) + PATIENCE);
}

static void *play_back(void *data)
{
    struct court *court = data;
    cpu_set_t set;

    CPU_ZERO(&set);
    if (court->core >= 0)
        CPU_SET((unsigned)court->core, &set);
    court->is_there = !sched_setaffinity(0, sizeof set, &set);
    for (int trip = 0; trip < TRIPS && wait_for(&court->ping); trip++)
        (void)sem_post(&court->pong);
    return NULL;
}

/* A core other than the one that the thread runs on, which the partner may run on even if this
 * process may not. */
static int other_core(void)
{
    int here = sched_getcpu();

    return sysconf(_SC_NPROCESSORS_ONLN) < 2 ? -1 : here == 0;
}

/* The median; those that took too long are the longest. */
static int64_t usual_trip(struct court *court)
{
    int64_t trips[TRIPS];

    for (int trip = 0, at; trip < TRIPS; trip++) {
        int64_t begun = shmq_read_clock(CLOCK_MONOTONIC), took;

        (void)sem_post(&court->ping);
        if (!wait_for(&court->pong))
            return DEFAULT_COST;
        took = shmq_read_clock(CLOCK_MONOTONIC) - begun;
        for (at = trip; at > 0 && trips[at - 1] > took; at--)
            trips[at] = trips[at - 1];
        trips[at] = took;
    }
    return trips[TRIPS / 2];
}

static void measure(void)
{
    struct court court = {.core = other_core()};
    sigset_t all, before;
    pthread_t thread;
    int64_t found;
    int error;

    if (court.core < 0 || sem_init(&court.ping, 0, 0) || sem_init(&court.pong, 0, 0))
        return;
    sigfillset(&all); /* signals are for the threads of the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, play_back, &court);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) {
        found = usual_trip(&court);
        pthread_join(thread, NULL);
        if (court.is_there)
            cost = found < LEAST_COST ? LEAST_COST : found > MOST_COST ? MOST_COST : found;
    }
    sem_destroy(&court.ping);
    sem_destroy(&court.pong);
}

int64_t shmq_sleep_cost(void)
{
    (void)pthread_once(&measured, measure);
    return cost;
}

/* ---- whether to spin ---- */

void shmq_spin_init(struct shmq_spin_rate *rate, int64_t least)
{
    rate->least = least;
    rate->credit = MOST_CREDIT;
    rate->until_try = rate->between = LEAST_BETWEEN;
    rate->yield_after = YIELD_AFTER;
    rate->late = rate->turns = 0;
}

int64_t shmq_spin_time(struct shmq_spin_rate *rate)
{
    int64_t ns = shmq_sleep_cost();

    if (!rate->credit && --rate->until_try)
        return 0;
    rate->yield_after = YIELD_AFTER;
    if (rate->late == MOST_LATE && ++rate->turns % TURNS)
        rate->yield_after = 0;
    return ns < rate->least ? rate->least : ns;
}

static void fail(struct shmq_spin_rate *rate, uint32_t credit)
{
    if (rate->credit > credit) {
        rate->credit -= credit;
        return;
    }
    if (!rate->credit && rate->between < MOST_BETWEEN)
        rate->between *= 2;
    rate->credit = 0;
    rate->until_try = rate->between;
}

void shmq_spin_learn(struct shmq_spin_rate *rate, int64_t ns, int64_t took)
{
    if (rate->yield_after && took >= 0 && took < YIELD_AFTER)
        rate->late = 0;
    else if (rate->yield_after && rate->late < MOST_LATE)
        rate->late++;
    if (took < 0 || took > 2 * ns) {
        fail(rate, took < 0 ? 1 : CREDIT_OF_DELAY);
        return;
    }
    rate->credit += CREDIT_OF_SUCCESS;
    if (rate->credit > MOST_CREDIT)
        rate->credit = MOST_CREDIT;
    rate->between = LEAST_BETWEEN;
}
