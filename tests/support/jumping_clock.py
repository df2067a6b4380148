"""A wall clock that jumps, for processes that a test starts.

They run with a small library before the C library, which adds a number of seconds to the wall
clock; the monotonic clock is the real one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE

#: Reads the offset, in seconds, from the file that JUMP names, at every call, and counts
#: behind it: waits by the wall clock, for a semaphore by the monotonic one, for a lock.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset;

enum { BY_WALL = 1, SEMAPHORES, MUTEXES };

static void count(int kind) { __atomic_add_fetch(&offset[kind], 1, __ATOMIC_SEQ_CST); }

__attribute__((constructor)) static void begin(void)
{
    offset = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                  open(getenv("JUMP"), O_RDWR), 0);
}

static long jump(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? *offset : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, t);

    t->tv_sec += jump(clock);
    return status;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int status = real(t, zone);

    t->tv_sec += jump(CLOCK_REALTIME);
    return status;
}

time_t time(time_t *to)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return to ? *to = t.tv_sec : t.tv_sec;
}

static int is_over(const struct timespec *until)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec > until->tv_sec ||
           (t.tv_sec == until->tv_sec && t.tv_nsec >= until->tv_nsec);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
    count(BY_WALL);
    while (sem_trywait(semaphore)) {
        if (errno == EAGAIN && is_over(until))
            errno = ETIMEDOUT;
        if (errno != EAGAIN)
            return -1;
        usleep(1000);
    }
    return 0;
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
{
    int (*real)(sem_t *, clockid_t, const struct timespec *) = dlsym(RTLD_NEXT, "sem_clockwait");

    if (clock == CLOCK_REALTIME)
        return sem_timedwait(semaphore, until);
    count(SEMAPHORES);
    return real(semaphore, clock, until);
}

long syscall(long number, ...)
{
    long (*real)(long, ...) = dlsym(RTLD_NEXT, "syscall");
    long given[6];
    va_list all;

    va_start(all, number);
    for (int i = 0; i < 6; i++)
        given[i] = va_arg(all, long);
    va_end(all);
    if (number == SYS_futex && given[1] == FUTEX_WAIT)
        count(MUTEXES);
    if (number == SYS_futex && given[1] & FUTEX_CLOCK_REALTIME)
        count(BY_WALL);
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
"""

CC = shutil.which("cc")

needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler, called cc, is there")


def build_shim(folder: Path) -> Path:
    """Build the library that makes the wall clock jump."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SHIM)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def run_jumping(shim: Path, code: str, *arguments: str) -> None:
    """Run a script under a wall clock that it can let jump: JUMP names the file of the offset."""
    offset = shim.with_suffix(".offset")
    offset.write_bytes(bytes(4096))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=environment(LD_PRELOAD=shim, JUMP=offset),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
