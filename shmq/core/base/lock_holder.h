/* The thread that a lock's word names, as the kernel knows it. Reads /proc: for those who have
 * waited for a lock in vain, and not for every operation. */
#ifndef SHMQ_BASE_LOCK_HOLDER_H
#define SHMQ_BASE_LOCK_HOLDER_H

#include <stdbool.h>
#include <stdint.h>

enum shmq_holding {
    SHMQ_HOLDS_NOT, /* it does not live, or has not mapped the segment: it is not inside */
    SHMQ_HOLDS,     /* it lives and has mapped it                                         */
    SHMQ_HOLDS_MAYBE, /* it lives, and its mappings cannot be read                         */
};

/* Whether another thread than the caller's, of the id `thread`, may be inside a critical
 * section of the segment that the caller has mapped at `address`. */
enum shmq_holding shmq_may_hold(uint32_t thread, const void *address);

/* Whether the thread works, or waits for a CPU or a disk: then it goes on by itself. One that is
 * stopped, or sleeps, does not. */
bool shmq_is_at_work(uint32_t thread);

/* How long a thread that has waited `waited` ns for a lock may wait for it in the kernel now,
 * before it looks for signals; 0: no longer. `until` is the end of its operation, monotonic ns.
 * INT64_MAX is without end; 0 is an operation that is to be done at once, and waits for 100 ms, or
 * up to 1 s where the thread that holds the lock is at work. No end is nearer than 100 ms, as
 * nobody can say that a lock is free. */
int64_t shmq_patience(int64_t waited, int64_t until, uint32_t holder);

/* From now on the calling thread waits for so many ns at most, whatever the operation; 0: no
 * such limit. */
void shmq_limit_patience(int64_t ns);

#endif
