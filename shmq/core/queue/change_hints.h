/* The queue's interface to its journal: hints that tell the persistence writer where to look, and
 * waiting for the writer.
 *
 * Memory has no log: the slots are the truth here, too. The writer (change_scan.h) is one
 * more attached process. It reads without a lock and follows hints, which are slot indexes, in two
 * rings, one for each side of the queue:
 *
 *   fresh   puts ──► writer   by sequence number: the slot of each completed put
 *   spent   gets ──► writer   slots that were settled, or came back, after they were logged
 *
 * From the slot it decides what to write. Hints are derived, and may be lost: if a ring has
 * overflowed, or the epoch was raised, the writer looks at every slot.
 *
 * `logged[slot]` names the message of the slot that the journal has, or is about to have: the
 * writer claims a message with it before it reads the body. A process that settles a message
 * commits SPENT first and then looks at the claim; the writer claims first and then looks at the
 * word again. Both have a full fence in between, so at least one of them sees the other (Dekker).
 * An unclaimed message is FREE at once: a message that is acknowledged before it was written is
 * never written. A claimed message stays SPENT, its bytes untouched, until its settlement is on
 * disk and the writer frees it. So a slow writer fills the queue, which is the backpressure; a
 * writer that never ran claims nothing.
 *
 * A slot that was MOVED to another queue stays SPENT even if nothing was logged, and the writer
 * still treats it as a message: this journal must have the original until the other queue's
 * journal has the copy. */
#pragma once

#include "queue/queue.h"

/* Which events must wake the writer. */
enum shmq_awake { SHMQ_AWAKE = 0, SHMQ_IDLE = 1, SHMQ_LINGERING = 2 };

static inline uint64_t shmq_synced(const struct shmq_queue *q)
{
    return GET_ACQUIRE(q->h->journal.synced);
}

/* The claim of a slot. A process that reads a claim as given up reads nothing that the writer still
 * has to look at. */
static inline uint64_t shmq_logged_seq(const struct shmq_logged *logged)
{
    return __atomic_load_n(&logged->seq, __ATOMIC_ACQUIRE);
}

static inline void shmq_set_logged(struct shmq_logged *logged, uint64_t seq)
{
    __atomic_store_n(&logged->seq, seq, __ATOMIC_RELEASE);
    shmq_mark();
}

/* Limits the size to a power of two within the ring, whatever the header says. */
static inline uint64_t shmq_hint_of(const struct shmq_queue *q, uint64_t counter)
{
    return counter & (GET_ATOMIC(q->h->hints) - 1) & (q->geo.hints_max - 1);
}

/* The put with that sequence number is complete: its message is in slot `at`. Holds the put-side
 * lock. */
static inline void shmq_hint_fresh(struct shmq_queue *q, uint64_t seq, uint32_t at)
{
    if (__builtin_expect(!q->journaled, 1))
        return;
    SET_ATOMIC(q->fresh[shmq_hint_of(q, seq)], at);
    SET_RELEASE(q->h->fresh_tail, seq);
}

/* The message, which may have been logged, came back: if it was not logged, it will be in its
 * present state. Holds the get-side lock. */
void shmq_hint_changed(struct shmq_queue *q, const struct shmq_slot *s);

/* Ends a message: commits SPENT if the journal has it or may have it; false if the caller must free
 * the slot at once. Holds the get-side lock. */
bool shmq_spend(struct shmq_queue *q, struct shmq_slot *s);

/* Ends a message while every index is about to be rebuilt: SPENT, ZOMBIE or FREE. Holds both
 * locks. */
void shmq_conclude(struct shmq_queue *q, struct shmq_slot *s);

/* Tells the writer that hints may have been lost. Holds both locks. */
void shmq_lose_hints(struct shmq_queue *q);

/* Wakes the writer if it sleeps for lack of work. Call it after the lock under which the hints were
 * added is released. */
static inline void shmq_wake_idle_writer(struct shmq_queue *q);

/* Asks the writer to write that sequence number without lingering. Never blocks. Without the
 * lock. */
void shmq_request_sync(struct shmq_queue *q, uint64_t seq);

/* The errno with which the disk of the journal fails; 0: it works, or the writer that it failed has
 * died, so that nothing is known of the disk. Without the lock. */
uint32_t shmq_journal_error(const struct shmq_queue *q);

/* Waits at most `ns` until that sequence number is on disk: SHMQ_OK, SHMQ_TIMED_OUT,
 * SHMQ_INTERRUPTED, SHMQ_DELETED; SHMQ_NO_SPACE if shmq_journal_error has any errno. Without the
 * lock; call it without the GIL. */
int shmq_wait_synced(struct shmq_queue *q, uint64_t seq, int64_t ns);

/* Wakes all threads in shmq_wait_synced. */
void shmq_wake_synced(struct shmq_queue *q);

/* The bit with which a thread sleeps that waits for that number: one for 4 numbers in a row, so
 * that a commit of few numbers wakes few others, and so that the numbers of about a hundred threads
 * have different bits. */
#define SHMQ_NUMBERS_A_BIT 4u

static inline uint32_t shmq_wakeup_bit(uint64_t seq)
{
    return 1u << (seq / SHMQ_NUMBERS_A_BIT % 32);
}

/* The bits of the numbers behind `after` up to `upto`, of which there is at least one. */
static inline uint32_t shmq_wakeup_bits(uint64_t after, uint64_t upto)
{
    uint32_t bits = shmq_wakeup_bit(upto);

    if (upto - after > 30 * SHMQ_NUMBERS_A_BIT)
        return UINT32_MAX;
    for (uint64_t seq = after + 1; seq <= upto; seq += SHMQ_NUMBERS_A_BIT)
        bits |= shmq_wakeup_bit(seq);
    return bits;
}

/* Wakes those that wait for the numbers behind `after` up to `upto`, with one call of the kernel,
 * and at most 3 of the next numbers: the rest sleep on until their own commit. */
void shmq_wake_numbers(struct shmq_queue *q, uint64_t after, uint64_t upto);

void shmq_wake_writer(struct shmq_queue *q);

static inline void shmq_wake_idle_writer(struct shmq_queue *q)
{
    if (__builtin_expect(!q->journaled, 1))
        return;
    shmq_fence();
    if (__builtin_expect(GET_RELAXED(q->h->journal_asleep) == SHMQ_IDLE, 0))
        shmq_wake_writer(q);
}
