/* What the kernel knows about the thread that a lock's word names. Reads /proc, so it is called
 * only after a wait for a lock has failed. */
#ifndef SHMQ_BASE_LOCK_HOLDER_H
#define SHMQ_BASE_LOCK_HOLDER_H

#include <stdbool.h>
#include <stdint.h>

enum shmq_holding {
    SHMQ_HOLDS_NOT, /* it is dead, or has not mapped the segment: it is not inside       */
    SHMQ_HOLDS,     /* it lives and has mapped it                                         */
    SHMQ_HOLDS_MAYBE, /* it lives, and its mappings cannot be read                         */
};

/* Whether the thread with id `thread`, if it is not the caller's, may be inside a critical section
 * of the segment that the caller has mapped at `address`. */
enum shmq_holding shmq_may_hold(uint32_t thread, const void *address);

/* Whether the thread runs, or waits for a CPU or a disk, so that it will continue by itself. A
 * stopped or sleeping thread will not. */
bool shmq_is_at_work(uint32_t thread);

/* How long a thread that has waited `waited` ns for a lock may now wait for it in the kernel before
 * it checks for signals; 0: it must give up. `until` is its operation's deadline, monotonic ns.
 * INT64_MAX means no limit. 0 means an operation without a timeout: it waits for 100 ms, or up to
 * 1 s while the holder is running. The effective deadline is at least 100 ms away, because no
 * caller can know that a lock is free. */
int64_t shmq_patience(int64_t waited, int64_t until, uint32_t holder);

/* Limits every lock wait of the calling thread to `ns` from now on, whatever the operation; 0
 * removes the limit. */
void shmq_limit_patience(int64_t ns);

#endif
