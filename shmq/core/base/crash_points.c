#include "base/crash_points.h"

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
#else
typedef int shmq_crash_is_empty; /* ISO C requires a declaration */
#endif
