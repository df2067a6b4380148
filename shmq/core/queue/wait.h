/* Sleeping until a message or space is available. The semaphores only wake; the truth is in the
 * header.
 *
 * While nothing happens, nobody wakes. A sleep lasts until a post, until something is due in the
 * queue, or for a slice. The slice is 50 ms as long as no process of the namespace watches for
 * deaths, and SHMQ_LONG_SLEEP while one does (shmq/client/local/waiting/guardian.py). What happens
 * during a long sleep wakes the sleeper:
 *
 *  - A process dies. The guardian returns what it held, as an active process would, and then posts
 *    anew (shmq_post_anew), because the dead process may have counted posts that it never made.
 *  - Something becomes due earlier than the sleeper knew when it fell asleep. `alarm` is a time by
 *    which some waiter looks without a post. A process that releases the lock, and finds that
 *    something is due before, posts one more waiter, which then sleeps until that time.
 *
 * So a slice only bounds what is left: a waker, or the waiter of the alarm, that is stopped at the
 * wrong moment, and the death of all guardians at once.
 *
 * `asleep` counts the sleepers, `posted` the posts that no sleeper has taken. A process that
 * releases the lock posts once for each message or free slot, but never more often than there are
 * sleepers without a post, so a semaphore's value does not grow without limit. If a waker dies
 * between counting and posting, its death is noticed; and a sleeper whose slice ended corrects
 * `posted` from the semaphore's value. */
#ifndef SHMQ_QUEUE_WAIT_H
#define SHMQ_QUEUE_WAIT_H

#include <semaphore.h>

#include "queue/queue.h"

#define SHMQ_SHORT_SLEEP 50000000ll  /* ns: a slice while nobody watches for deaths      */
#define SHMQ_LONG_SLEEP 2000000000ll /* ns: a slice while somebody does                  */
#define SHMQ_BLIND_SLEEP 20000000ll  /* ns: a slice if one of the words cannot wake      */

/* Counts the caller as a sleeper, which must look again at q->due. Holds the lock. */
void shmq_fall_asleep(struct shmq_queue *q, enum shmq_event event);

/* Removes it from the count; `taken`: it took a post; `left`: the semaphore's value. Holds the
 * lock. */
void shmq_wake_up(struct shmq_queue *q, enum shmq_event event, bool taken, int left);

/* After the death of an attached process: posts again what it may have counted and not posted, so
 * that every waiter for which there is something looks. Holds the lock. */
void shmq_post_anew(struct shmq_queue *q);

/* For a thread that took a post and leaves without a try: posts another sleeper in its place. For a
 * message that happens anyway, because the message is still there. Holds the lock. */
void shmq_pass_on(struct shmq_queue *q, enum shmq_event event);

/* Computes how many sleepers of each event to post once the lock is released, and sets q->to_wake
 * to the parties to wake: those for which something is left after the sleepers. Holds the lock. */
void shmq_select_posts(struct shmq_queue *q, uint32_t post[2]);

/* Posts them, each event on its semaphore. Without the lock. */
void shmq_post(sem_t *const semaphores[2], const uint32_t post[2]);

/* Sleeps on the semaphore for at most `ns`, on the monotonic clock: SHMQ_OK if posted,
 * SHMQ_TIMED_OUT, SHMQ_INTERRUPTED. Call it without the GIL. */
int shmq_sleep(sem_t *semaphore, int64_t ns);

/* Sleeps while *word == value, at most `ns`. SHMQ_OK: woken, or the value differs. */
int shmq_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns);

/* The same for two words: sleeps while both have these values. Where the kernel cannot do that, it
 * sleeps on the first one for SHMQ_BLIND_SLEEP at most. */
int shmq_futex_wait_two(_Atomic uint32_t *const words[2], const uint32_t values[2], int64_t ns);

/* Wakes all threads that sleep so. */
void shmq_futex_wake(_Atomic uint32_t *word);

/* The same for threads that sleep for different reasons, each with some of 32 bits: a wakeup reaches
 * those that have one of its bits. A process that wakes raises the word first. */
int shmq_futex_wait_bits(_Atomic uint32_t *word, uint32_t value, uint32_t bits, int64_t ns);
void shmq_futex_wake_bits(_Atomic uint32_t *word, uint32_t bits);

/* Spins until the wait seems to be over, at most `ns`, and after `yield_after` ns lets others run:
 * how long that took, in ns, or -1. See base/spin.h. */
int64_t shmq_spin(struct shmq_queue *q, enum shmq_event event, int64_t ns, int64_t yield_after);

/* ---- wakeup.c ---- */

/* Wakeups: how an event loop, or a thread that waits for many queues, learns of an event.
 *
 * A wakeup is a named semaphore of a process on which one of its threads sleeps, for any number of
 * queues. In each of these queues the wakeup has an entry, a party, which the thread arms: it sets
 * a bit in `armed`, under the lock, after it found nothing to take. A process that makes something
 * available clears one bit for each thing that no sleeper gets. Once it has released the lock, it
 * posts the wakeups of those parties, unless they are posted already.
 *
 * The bit is the truth for the waiting thread: as long as it is set, no event has occurred. A waker
 * that dies between clearing and posting leaves it cleared, and the waiting thread sees that at the
 * end of a slice (shmq_is_woken). A party that finds no free entry is only late.
 *
 * A thread that waits with a filter has an entry of its own, with SHMQ_FILTERED: the messages in
 * the queue may not match, and another consumer takes those that do not. All filtered parties are
 * woken for each message that enters the order of service, and never in the place of a party that
 * would have taken any message. */

/* A waiting thread's side of one event of one queue. */
struct shmq_watch {
    enum shmq_event event;
    bool filtered;  /* of SHMQ_NOT_EMPTY: it takes only matching messages                   */
    uint32_t n;     /* the number of its wakeup                                              */
    uint32_t party; /* of its entry; SHMQ_NIL: it has none                             */
    int64_t due;    /* when it must look again: something is due                       */
};

static inline uint64_t shmq_armed(const struct shmq_header *h, enum shmq_event event)
{
    return GET_ACQUIRE(h->armed[event]);
}

/* ---- the party's side ---- */

/* Arms: the event will post wakeup w->n of process `process`, once. SHMQ_CROWDED: the queue has
 * no entry left, so no event will. The caller holds the lock, and is attached. */
int shmq_arm(struct shmq_queue *q, struct shmq_watch *w, uint64_t process);

/* Ends what shmq_arm began. If the event was room and has come already, another sleeper is woken
 * for the room instead; for a message the unlock wakes one anyway. Holds both locks. */
void shmq_disarm(struct shmq_queue *q, const struct shmq_watch *w);

/* Whether the event may have come: the party's bit is cleared, or the queue has ended. With
 * `closely` also if the counters suggest it: for the end of a slice. Without the lock. */
bool shmq_is_woken(const struct shmq_queue *q, const struct shmq_watch *w, bool closely);

/* Does what is due, and sets w->due to when something will be due next. Holds the lock. */
void shmq_watch_time(struct shmq_queue *q, struct shmq_watch *w, int64_t now);

/* ---- the waker's side ---- */

/* Selects the parties to wake, into q->to_wake. `freed`: freed slots and blocks for which no
 * sleeper was posted; `late`: one must be woken for the alarm. Holds the lock. */
void shmq_select_parties(struct shmq_queue *q, uint32_t freed, bool late);

/* When a waiter for room that found too little must look again. Holds the lock. */
int64_t shmq_look_for_room(struct shmq_queue *q, bool slept_long);

/* Selects the parties of this handle, which is about to close. Holds the lock. */
void shmq_select_own(struct shmq_queue *q);

/* Selects those that a process which died may have selected, and not woken. Holds the lock. */
void shmq_select_unposted(struct shmq_queue *q);

/* Promises that the caller will look by the returned time, at which something may be due. Holds the
 * lock. */
int64_t shmq_set_alarm(struct shmq_queue *q);

/* ---- cleanup ---- */

/* Frees the entries of attachment `at`. Holds the lock. */
void shmq_forget_parties(struct shmq_queue *q, uint32_t at);

/* Frees entries without an attachment, and clears bits without an entry. Holds the lock. */
void shmq_settle_parties(struct shmq_queue *q);

bool shmq_party_is_attached(const struct shmq_queue *q, const struct shmq_party *p);

/* ---- posting ---- */

/* Posting the wakeups of other processes. A process opens each of them once by its name, and
 * keeps a limited number of them open. */

#define SHMQ_WAKEUP_NAME 192 /* bytes */

/* Whether the last critical section selected parties to wake: one read of private memory. */
static inline bool shmq_must_wake(struct shmq_queue *q) { return GET_RELAXED(q->to_wake) != 0; }

/* Posts a wakeup unless it is posted already: then its owner has not looked yet, and will look at
 * everything. So the semaphore's value is one, plus one for each process that posts at the same
 * moment. The caller stores what the owner must find before the call. */
void shmq_post_wakeup(sem_t *wakeup);

/* Wakes the parties in q->to_wake. Without the lock. Skips a wakeup that is gone: it belonged to a
 * process that died. */
void shmq_wake_parties(struct shmq_queue *q);

/* The name of wakeup `n` of process `process`. */
void shmq_wakeup_name(char name[SHMQ_WAKEUP_NAME], const char *prefix, uint64_t process,
                      uint32_t n);

/* Tells this module that the process is a forked child: a lock that a thread of the parent held is
 * free here. */
void shmq_wakeups_forked(void);

#endif
