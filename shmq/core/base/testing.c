/* What only tests set: the clock, and where to crash. */
#include "base/clock.h"
#include "base/shared_memory.h"

int64_t shmq_clock_set;

uint64_t shmq_stores;
uint64_t shmq_crash_at;

#ifdef SHMQ_CRASHPOINTS
#include <signal.h>
#include <unistd.h>

void shmq_mark(void)
{
    if (++shmq_stores == shmq_crash_at)
        kill(getpid(), SIGKILL);
}
#endif
