/* Crash points: a build with SHMQ_CRASHPOINTS counts every store to shared memory, and the process
 * kills itself with SIGKILL right after the k-th one. Every shared store of the core goes through
 * SET, or is followed by shmq_mark, so running an operation with each k visits every state that a
 * death inside it can leave.
 */
#ifndef SHMQ_BASE_CRASH_POINTS_H
#define SHMQ_BASE_CRASH_POINTS_H

#include <stdint.h>

#ifdef SHMQ_CRASHPOINTS
extern uint64_t shmq_marks;    /* stores so far                       */
extern uint64_t shmq_crash_at; /* die after this one; 0: never        */
void shmq_mark(void);
#else
static inline void shmq_mark(void) {}
#endif

#define SET(target, value)  \
    do {                    \
        (target) = (value); \
        shmq_mark();        \
    } while (0)

/* The same for a member that is also read without the lock: the store is merely atomic. */
#define SET_ATOMIC(target, value)                               \
    do {                                                        \
        __atomic_store_n(&(target), (value), __ATOMIC_RELAXED); \
        shmq_mark();                                            \
    } while (0)

#define GET_ATOMIC(target) __atomic_load_n(&(target), __ATOMIC_RELAXED)

#endif
