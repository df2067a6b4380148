/* Spinning before a sleep.
 *
 * A spin lasts as long as a sleep and its wake-up cost here, as measured once (shmq_sleep_cost).
 * Then a wait costs at most twice what the better of the two would have cost, whatever happens.
 *
 * Whether to spin at all depends on how often spins have ended a wait lately, and not on how long
 * the last ones took. Each success adds credit, each failure takes some, and the credit has a limit:
 * a single long wait, or a few of them, change nothing. Without credit, as where another program
 * takes the core of the partner, a spin is tried now and then, more and more seldom while it fails.
 *
 * A spin that has taken some microseconds lets other processes run on its core: the partner may be
 * waiting for that very core. If several spins in a row were not over by then, the next ones do so
 * from the start, except for one of them now and then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The success of the spins of one kind of wait. */
struct shmq_spin_rate {
    int64_t least;       /* the shortest spin, ns                                */
    int64_t yield_after; /* of the next spin, ns: when it begins to yield        */
    uint32_t credit;     /* 0: only now and then                                 */
    uint32_t until_try;  /* without credit: waits until a spin is tried          */
    uint32_t between;    /* without credit: waits from one try to the next       */
    uint32_t late;       /* spins in a row that had to yield                     */
    uint32_t turns;      /* spins that yielded from the start                    */
};

void shmq_spin_init(struct shmq_spin_rate *rate, int64_t least);

/* How long to spin now, ns; 0: not at all. Sets `yield_after` for that spin. The first call takes up
 * to some ms, to measure, so call it without the GIL. */
int64_t shmq_spin_time(struct shmq_spin_rate *rate);

/* Learns from a spin of at most `ns` that ended the wait after `took` ns; -1: it did not. */
void shmq_spin_learn(struct shmq_spin_rate *rate, int64_t ns, int64_t took);

/* What two sleeps, each ended by a wake-up from another core, cost here: ns. */
int64_t shmq_sleep_cost(void);
