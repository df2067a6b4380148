/* The queue's side of its journal: what tells the persistence writer where to look, and what
 * waits for it.
 *
 * There is no log in memory: the slots are the truth here too. The writer (change_scan.h) is one
 * more attached process. It takes no lock to read; it goes by hints, indexes of slots, in two
 * rings, one for each side of the queue:
 *
 *   fresh   puts ──► writer   by sequence number: the slot of each put that is over
 *   spent   gets ──► writer   slots that were settled, or came back, after they were logged
 *
 * and decides by the slot what to write. Hints are derived, and may be lost: where a ring has
 * overflowed, or the epoch was raised, the writer looks at every slot.
 *
 * `logged[slot]` says which message of the slot the journal has, or is about to have: the
 * writer claims a message with it before it reads the body. A process that settles a message
 * commits SPENT first and then looks at the claim, and the writer claims first and then looks at the
 * word again, both with a full fence between, so at least one of them sees the other (Dekker).
 * A message that was not claimed is FREE at once: what was put and acknowledged before it was
 * written is never written. A claimed one stays SPENT, its bytes untouched, until its
 * settlement is on disk and the writer sets it free. So a writer that is behind fills the
 * queue, which is the back-pressure; one that was never there claims nothing.
 *
 * A slot that was MOVED to another queue stays SPENT even if nothing was logged, and the
 * writer takes it for a message still: until the other queue's journal has the copy, this one
 * has to have the original. */
#ifndef SHMQ_QUEUE_CHANGE_HINTS_H
#define SHMQ_QUEUE_CHANGE_HINTS_H

#include "queue/queue.h"

/* What the writer is to be woken for. */
enum shmq_awake { SHMQ_AWAKE = 0, SHMQ_IDLE = 1, SHMQ_LINGERING = 2 };

static inline uint64_t shmq_synced(const struct shmq_queue *q)
{
    return atomic_load_explicit(&q->h->journal.synced, memory_order_acquire);
}

/* The claim of a slot. A process that reads that it was given up reads nothing that the writer has
 * still to look at. */
static inline uint64_t shmq_logged_seq(const struct shmq_logged *logged)
{
    return __atomic_load_n(&logged->seq, __ATOMIC_ACQUIRE);
}

static inline void shmq_set_logged(struct shmq_logged *logged, uint64_t seq)
{
    __atomic_store_n(&logged->seq, seq, __ATOMIC_RELEASE);
    shmq_mark();
}

/* The size is a power of two and within the ring, whatever stands in the header. */
static inline uint64_t shmq_hint_of(const struct shmq_queue *q, uint64_t counter)
{
    return counter & (GET_ATOMIC(q->h->hints) - 1) & (q->geo.hints_max - 1);
}

/* The put of that sequence number is over: its message stands in slot `at`. Holds the lock of
 * the puts. */
static inline void shmq_hint_fresh(struct shmq_queue *q, uint64_t seq, uint32_t at)
{
    if (__builtin_expect(!q->journaled, 1))
        return;
    SET_ATOMIC(q->fresh[shmq_hint_of(q, seq)], at);
    atomic_store_explicit(&q->h->fresh_tail, seq, memory_order_release);
    shmq_mark();
}

/* The message in slot `at`, which may have been logged, is settled, or has changed. Holds the
 * lock of the gets. */
void shmq_hint_spent(struct shmq_queue *q, uint32_t at);

/* The same of one that came back: what was not logged will be, as it is then. */
void shmq_hint_changed(struct shmq_queue *q, const struct shmq_slot *s);

/* A message's end: commits SPENT if the journal has it or may have it; false if the slot is
 * to be set free at once. Holds the lock of the gets. */
bool shmq_spend(struct shmq_queue *q, struct shmq_slot *s);

/* A message's end where every index is about to be derived anew: SPENT, or ZOMBIE, or FREE.
 * Holds both locks. */
void shmq_conclude(struct shmq_queue *q, struct shmq_slot *s);

/* Hints may have been lost. Holds both locks. */
void shmq_lose_hints(struct shmq_queue *q);

/* Ensures: the rings of hints, and what is logged of `slots` slots, have memory. Holds both
 * locks. */
int shmq_back_journal(struct shmq_queue *q, uint32_t from, uint32_t slots);

/* Wakes the writer if it sleeps because there was nothing to do. After the lock was released,
 * of what was hinted under it. */
static inline void shmq_wake_idle_writer(struct shmq_queue *q);

/* Somebody waits for that sequence number to be on disk: the writer does not linger. Never
 * blocks. Without the lock. */
void shmq_request_sync(struct shmq_queue *q, uint64_t seq);

/* Waits at most `ns` until that sequence number is on disk: SHMQ_OK, SHMQ_TIMED_OUT,
 * SHMQ_INTERRUPTED, SHMQ_DELETED; SHMQ_NO_SPACE, whatever journal.error says, when the disk
 * refused. Without the lock; to be called without the GIL. */
int shmq_wait_synced(struct shmq_queue *q, uint64_t seq, int64_t ns);

/* Wakes the threads in shmq_wait_synced. */
void shmq_wake_synced(struct shmq_queue *q);

/* Sleeps while *word == value, at most `ns`. SHMQ_OK: woken, or it was another value. */
int shmq_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns);
void shmq_futex_wake(_Atomic uint32_t *word);

void shmq_wake_writer(struct shmq_queue *q);

static inline void shmq_wake_idle_writer(struct shmq_queue *q)
{
    if (__builtin_expect(!q->journaled, 1))
        return;
    shmq_fence();
    if (__builtin_expect(shmq_peek(&q->h->journal_asleep) == SHMQ_IDLE, 0))
        shmq_wake_writer(q);
}

#endif
