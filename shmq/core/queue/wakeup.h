/* Bells: how an event loop, or a wait on many queues, learns that something came.
 *
 * A bell is a named semaphore of a process on which one of its threads sleeps, for any
 * number of queues. In each of these its party has an entry, and arms it: a bit in
 * `armed`, set under the lock after there was nothing to take. Whoever makes something
 * available clears one bit for each thing that no sleeper gets, and rings those parties
 * once the lock is released, unless its bell is posted already.
 *
 * The bit is the truth for the one who waits: as long as it is set, nobody has come by
 * since. A waker that dies between clearing and ringing leaves it cleared, which is seen
 * at the end of a slice (shmq_stirs). A party that finds no free entry is only late.
 *
 * Who waits for messages that a filter lets through is choosy: what there is may be nothing
 * for it, and what it does not take is another's. So it has an entry of its own, is rung for
 * each message that comes into the order, with all others who are choosy, and never in the
 * place of somebody who would have taken it. */
#ifndef SHMQ_QUEUE_WAKEUP_H
#define SHMQ_QUEUE_WAKEUP_H

#include "queue/queue.h"

/* What a party remembers of one event of one queue. */
struct shmq_watch {
    enum shmq_bell event;
    bool choosy;    /* of SHMQ_NOT_EMPTY: not every message will do                    */
    uint32_t n;     /* its bell                                                        */
    uint32_t place; /* of its entry; SHMQ_NIL: it has none                             */
    int64_t seen;   /* next_tick, if it had passed at the last look under the lock     */
    int64_t due;    /* when something is due, as of that look                          */
};

static inline uint64_t shmq_armed(const struct shmq_header *h, enum shmq_bell event)
{
    return atomic_load_explicit(&((struct shmq_header *)h)->armed[event], memory_order_acquire);
}

/* ---- the party's side ---- */

/* Has the event rung on bell w->n of process `process`, once. SHMQ_CROWDED: the queue has
 * no entry left, so nobody will ring. Holds the lock, and is attached. */
int shmq_arm(struct shmq_queue *q, struct shmq_watch *w, uint64_t process);

/* No longer, after shmq_arm. Where it was rung already, another one is told of the room in
 * its place; of a message, the unlock tells one anyway. Holds both locks. */
void shmq_disarm(struct shmq_queue *q, const struct shmq_watch *w);

/* Whether the event may have come: its arm was rung, or the queue has ended. With
 * `closely` also if it looks so from the numbers alone: for the end of a slice. Without
 * the lock. */
bool shmq_stirs(const struct shmq_queue *q, const struct shmq_watch *w, bool closely);

/* The time until which nothing is due in the queue. Without the lock: in an idle queue it
 * is what shmq_watch_time learnt. */
int64_t shmq_watch_due(const struct shmq_queue *q, const struct shmq_watch *w);

/* Does what is due, and learns when something will be. Holds the lock. */
void shmq_watch_time(struct shmq_queue *q, struct shmq_watch *w, int64_t now);

/* ---- the waker's side ---- */

/* Chooses the parties to ring, into q->ring. `freed`: slots and blocks set free that no
 * sleeper was posted for. Holds the lock. */
void shmq_select_bells(struct shmq_queue *q, uint32_t freed);

/* ---- the ends ---- */

/* Frees the entries of attachment `at`. Holds the lock. */
void shmq_forget_parties(struct shmq_queue *q, uint32_t at);

/* Frees entries of no attachment, and clears bits of no entry. Holds the lock. */
void shmq_settle_parties(struct shmq_queue *q);

bool shmq_party_is_attached(const struct shmq_queue *q, const struct shmq_party *p);

#endif
