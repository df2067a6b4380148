/* Locks between processes, in shared memory, which are taken over from dead holders.
 *
 * A lock is one 64-bit word: 0, or the number of the process that holds it, and a bit that says that
 * others sleep for it. One compare-and-swap takes it, from 0, and one exchange releases it.
 *
 * **How a dead holder is judged.** A thread that has waited for SHMQ_JUDGE_AFTER, and then again and
 * again, asks the kernel for the record lock of the process that the word names (base/process.h). If
 * there is none, that process is dead, and a compare-and-swap of exactly the word that was seen takes
 * the lock from it. The result SHMQ_INHERITED tells the new holder to repair what the lock guards.
 *
 *  - **Nobody takes the lock from a living process.** The kernel drops record locks with the last
 *    thread's table of files, after all threads of the process have left user code for ever. exec
 *    unmaps the segment before it closes the file, which is close-on-exec. A child of a fork has none
 *    of its parent's locks and none of its numbers. A process closes the namespace's file only when
 *    the namespace is empty. One whose file somebody removed by hand keeps it open, and numbers of
 *    another file are not judged. What is unknown counts as living.
 *  - **Two judges.** Both saw the same word, so one swap succeeds. The other finds a living holder.
 *  - **ABA.** A number is never given out twice, and a dead process takes no lock. So a word that
 *    names a dead process stays until it is taken over, and needs no generation.
 *  - **A death at any store.** The swap that takes the lock also names its holder: there is no state
 *    between. A process that dies after it, also if it took over and recorded nothing yet, is found
 *    dead, and the next holder gets SHMQ_INHERITED. So an owner of the result must not release
 *    the lock before it has repaired, or recorded that a repair is due.
 *  - **Waiters.** One that is about to sleep sets the bit in the word, with a swap, and sleeps only
 *    while the word is as it left it. One that has slept takes the lock with the bit set, because
 *    others may sleep still. A release that finds the bit wakes one. If that one dies, or gives up,
 *    the others wake by themselves: no sleep is longer than SHMQ_MOST_SLEEP.
 *  - **Threads and handles of one process** have the same number, so the lock does not say which of
 *    them holds it: one that waits for another waits for a living process. A thread that ends inside
 *    keeps the lock until its process ends. A thread of the interpreter ends inside only where it
 *    waits for the interpreter's lock, and only because its process ends.
 *  - **A damaged word** that names no process is taken over like that of a dead one. One that names
 *    a number that this namespace's file has not given out is waited for in vain (LockTimeout). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/shared_memory.h"
#include "base/status.h"

/* All 0: free. */
struct shmq_mutex {
    _Atomic uint64_t word; /* the holder's number << 1 | SHMQ_AWAITED; 0: free            */
};

#define SHMQ_AWAITED 1ull

#define SHMQ_LOCK_SPINS 200
#define SHMQ_JUDGE_AFTER 1000000 /* ns of failed waiting before the holder is examined  */
#define SHMQ_MOST_SLEEP 50000000 /* ns in the kernel between two looks                  */

/* SHMQ_OK, SHMQ_BUSY, SHMQ_UNREGISTERED. */
static inline int shmq_mutex_try(struct shmq_mutex *mutex, const struct shmq_process *self)
{
    uint64_t mine = GET_RELAXED(self->number) << 1, word = 0;

    if (__builtin_expect(!mine, 0))
        return SHMQ_UNREGISTERED;
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
                             &mutex->word, &word, mine, memory_order_acquire, memory_order_relaxed),
                         0))
        return SHMQ_BUSY;
    shmq_mark();
    return SHMQ_OK;
}

/* The same, spinning for at most a few microseconds while it is held. */
int shmq_mutex_spin(struct shmq_mutex *mutex, const struct shmq_process *self);

/* The same as shmq_mutex_try, waiting in the kernel until `end`, monotonic ns, and SHMQ_INHERITED:
 * taken from a holder that died. Call it without the GIL. A wait of SHMQ_JUDGE_AFTER or more that
 * fails has examined the holder, and so has one whose `end` has passed already: the holder lives, or
 * that is unknown. */
int shmq_mutex_wait(struct shmq_mutex *mutex, const struct shmq_process *self, int64_t end);

/* Spins, then waits in the kernel for up to `ns`; 0: the holder is not examined; less: at once. */
int shmq_mutex_take(struct shmq_mutex *mutex, const struct shmq_process *self, int64_t ns);

/* Wakes one that sleeps for the mutex. */
void shmq_mutex_wake(struct shmq_mutex *mutex);

static inline void shmq_mutex_drop(struct shmq_mutex *mutex)
{
    uint64_t word = atomic_exchange_explicit(&mutex->word, 0, memory_order_release);

    shmq_mark();
    if (__builtin_expect(word & SHMQ_AWAITED, 0))
        shmq_mutex_wake(mutex);
}

/* The number of the process that the mutex names; 0 if none. */
static inline uint64_t shmq_mutex_holder(const struct shmq_mutex *mutex)
{
    return GET_RELAXED(mutex->word) >> 1;
}

/* How long a thread that has waited `waited` ns for a lock may now wait for it in the kernel before
 * it checks for signals; 0: it must give up. `until` is its operation's deadline, monotonic ns.
 * INT64_MAX means no limit, and 0 an operation without a timeout. Every operation waits for at least
 * 100 ms, and for at least 1 s while the process `holder` is at work: no caller can know that a lock
 * is free, nor when the scheduler lets its holder go on. */
int64_t shmq_patience(int64_t waited, int64_t until, const struct shmq_process *self,
                      uint64_t holder);

/* Limits every lock wait of the calling thread to `ns` from now on, whatever the operation; 0
 * removes the limit. */
void shmq_limit_patience(int64_t ns);
