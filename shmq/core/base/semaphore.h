/* Waiting for a POSIX semaphore until a time of the monotonic clock.
 *
 * sem_clockwait does that, since glibc 2.30. musl does not have it, and a library that was built for
 * an older glibc may run on a newer one. So it is looked up when the library is loaded, and where it
 * is missing sem_timedwait takes its place, with the time translated to the wall clock. If that clock
 * is set back during such a wait, the wait is longer by as much; a post ends it in any case. */
#pragma once

#include <semaphore.h>
#include <stdint.h>

/* Takes a post, or waits for one until `end`: 0; or -1 with errno ETIMEDOUT or EINTR. */
int shmq_semaphore_wait(sem_t *semaphore, int64_t end);

/* The same without sem_clockwait. */
int shmq_semaphore_wait_wall(sem_t *semaphore, int64_t end);
