/* Shared by the loops: two processes on a core each, shared memory, a clock.
 *
 * The loops are the limits with which the queue is compared: they only pass bytes, and do
 * nothing else that a queue does. Each verifies what arrives and ends with 1 if it is wrong. */
#ifndef BENCH_SIDES_H
#define BENCH_SIDES_H

#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

/* A core below 0 means any core. */
static inline void pin(int core)
{
    cpu_set_t set;

    if (core < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set))
        fail("the process cannot be pinned to its core");
}

/* Waits a moment; on one core it lets the other side run. */
static inline void relax(bool alone)
{
    if (alone)
        sched_yield();
#if defined(__x86_64__)
    else
        __builtin_ia32_pause();
#elif defined(__aarch64__)
    else
        __asm__ volatile("yield");
#endif
}

/* Zeroed memory shared by both sides, with every page touched. */
static inline void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (memory == MAP_FAILED)
        fail("there is no memory to share");
    return memory;
}

/* The child runs `there` and exits; the parent runs `here`, then checks the child's result. */
static inline void two_sides(void (*here)(void), int here_core, void (*there)(void), int there_core)
{
    int status;
    pid_t child = fork();

    if (child < 0)
        fail("no process can be forked");
    if (child == 0) {
        pin(there_core);
        there();
        _exit(0);
    }
    pin(here_core);
    here();
    if (waitpid(child, &status, 0) < 0 || status)
        fail("the other side failed");
}

#endif
