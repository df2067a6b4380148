/* What only tests set: the clock, and where to crash. */
#include "base/clock.h"
#include "base/shared_memory.h"

int64_t shmq_clock_set;

#ifdef SHMQ_CRASHPOINTS
#include <signal.h>
#include <unistd.h>

uint64_t shmq_marks;
uint64_t shmq_crash_at;

void shmq_mark(void)
{
    if (++shmq_marks == shmq_crash_at)
        kill(getpid(), SIGKILL);
}
#endif
