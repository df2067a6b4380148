/* Wakeups: how an event loop, or a thread that waits on many queues, learns of an event.
 *
 * A wakeup is a named semaphore of a process on which one of its threads sleeps, for any
 * number of queues. In each of these queues the wakeup has an entry, a party, and the thread
 * arms it: it sets a bit in `armed`, under the lock, after it found nothing to take. A process
 * that makes something available clears one bit for each thing that no sleeper gets, and posts
 * the wakeups of those parties once the lock is released, unless they are posted already.
 *
 * The bit is the truth for the waiting thread: as long as it is set, no event has occurred.
 * A waker that dies between clearing and posting leaves it cleared, and the waiting thread sees
 * that at the end of a slice (shmq_is_woken). A party that finds no free entry is only late.
 *
 * A thread that waits with a filter has an entry of its own, with SHMQ_FILTERED: the messages
 * that are there may not match, and another consumer takes those that do not. All filtered
 * parties are woken for each message that enters the order of service, and never in the place
 * of a party that would have taken any message. */
#ifndef SHMQ_QUEUE_WAKEUP_H
#define SHMQ_QUEUE_WAKEUP_H

#include "queue/queue.h"

/* A waiting thread's side of one event of one queue. */
struct shmq_watch {
    enum shmq_event event;
    bool filtered;  /* of SHMQ_NOT_EMPTY: it takes only messages that match                 */
    uint32_t n;     /* the number of its wakeup                                              */
    uint32_t party; /* of its entry; SHMQ_NIL: it has none                             */
    int64_t seen;   /* next_tick, if it had passed at the last look under the lock     */
    int64_t due;    /* when something is due, as of that look                          */
};

static inline uint64_t shmq_armed(const struct shmq_header *h, enum shmq_event event)
{
    return atomic_load_explicit(&((struct shmq_header *)h)->armed[event], memory_order_acquire);
}

/* ---- the party's side ---- */

/* Arms: the event will post wakeup w->n of process `process`, once. SHMQ_CROWDED: the queue has
 * no entry left, so no event will. The caller holds the lock, and is attached. */
int shmq_arm(struct shmq_queue *q, struct shmq_watch *w, uint64_t process);

/* Ends what shmq_arm began. If the event was room and has come already, another sleeper is told
 * of the room instead; of a message the unlock tells one anyway. Holds both locks. */
void shmq_disarm(struct shmq_queue *q, const struct shmq_watch *w);

/* Whether the event may have come: the party's bit is cleared, or the queue has ended. With
 * `closely` also if the counters say so: for the end of a slice. Without the lock. */
bool shmq_is_woken(const struct shmq_queue *q, const struct shmq_watch *w, bool closely);

/* The time until which nothing is due in the queue. Without the lock: in an idle queue it
 * is what shmq_watch_time learnt. */
int64_t shmq_watch_due(const struct shmq_queue *q, const struct shmq_watch *w);

/* Does what is due, and learns when something will be. Holds the lock. */
void shmq_watch_time(struct shmq_queue *q, struct shmq_watch *w, int64_t now);

/* ---- the waker's side ---- */

/* Chooses the parties to wake, into q->to_wake. `freed`: slots and blocks set free that no
 * sleeper was posted for. Holds the lock. */
void shmq_select_parties(struct shmq_queue *q, uint32_t freed);

/* ---- the ends ---- */

/* Frees the entries of attachment `at`. Holds the lock. */
void shmq_forget_parties(struct shmq_queue *q, uint32_t at);

/* Frees entries of no attachment, and clears bits of no entry. Holds the lock. */
void shmq_settle_parties(struct shmq_queue *q);

bool shmq_party_is_attached(const struct shmq_queue *q, const struct shmq_party *p);

#endif
