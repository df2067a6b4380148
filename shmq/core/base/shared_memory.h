/* Access to shared memory: counted stores, fences and prefetches.
 *
 * Crash points: a build with SHMQ_CRASHPOINTS counts every store to shared memory, and the process
 * kills itself with SIGKILL right after the k-th one. Every shared store of the core goes through
 * SET, or is followed by shmq_mark, so running an operation with each k visits every state that a
 * death inside it can leave.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

extern uint64_t shmq_stores;   /* so far                              */
extern uint64_t shmq_crash_at; /* die after this one; 0: never        */

#ifdef SHMQ_CRASHPOINTS
#define SHMQ_HAS_CRASHPOINTS 1
void shmq_mark(void);
#else
#define SHMQ_HAS_CRASHPOINTS 0
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

/* The same for members of an _Atomic type. */
#define SET_RELAXED(member, value)                                       \
    do {                                                                 \
        atomic_store_explicit(&(member), (value), memory_order_relaxed); \
        shmq_mark();                                                     \
    } while (0)

/* Release: a reader that gets the value with GET_ACQUIRE also sees all that was stored before. */
#define SET_RELEASE(member, value)                                       \
    do {                                                                 \
        atomic_store_explicit(&(member), (value), memory_order_release); \
        shmq_mark();                                                     \
    } while (0)

#define GET_RELAXED(member) atomic_load_explicit(&(member), memory_order_relaxed)
#define GET_ACQUIRE(member) atomic_load_explicit(&(member), memory_order_acquire)

/* Add to a counter that several processes share, with or without any lock. */
static inline void shmq_add(uint64_t *counter, uint64_t number)
{
    __atomic_fetch_add(counter, number, __ATOMIC_RELAXED);
    shmq_mark();
}

/* ---- fences ---- */

/* A full fence. ThreadSanitizer does not know fences, and the processor treats an atomic operation
 * as one. */
static inline void shmq_fence(void)
{
#ifdef __SANITIZE_THREAD__
    static _Atomic uint32_t anything;

    atomic_fetch_add_explicit(&anything, 1, memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Orders earlier reads before later reads. */
static inline void shmq_read_fence(void)
{
#ifdef __SANITIZE_THREAD__
    shmq_fence();
#else
    atomic_thread_fence(memory_order_acquire);
#endif
}

/* ---- prefetches ---- */

/* Prefetch a line into this core's cache, for reading or for writing. In assembly, because gcc
 * treats a function that only calls __builtin_prefetch as free of effects, and drops its calls. */
#if defined(__x86_64__)
static inline void shmq_fetch(const void *line)
{
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)line));
}

static inline void shmq_fetch_to_write(const void *line)
{
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
}
#else
static inline void shmq_fetch(const void *line) { __builtin_prefetch(line, 0, 3); }

static inline void shmq_fetch_to_write(const void *line) { __builtin_prefetch(line, 1, 3); }
#endif
