/* Wakeups: how an event loop, or a thread that waits for many queues, learns of an event.
 *
 * A wakeup is a FIFO of a process that one of its loops or threads polls, for any number of queues.
 * In each of these queues the wakeup has an entry, a party, which its owner arms: it sets a bit in
 * `armed`, under the lock, after it found nothing to take. A process that makes something available
 * clears one bit for each thing that no sleeper gets. Once it has released the lock, it posts the
 * wakeups of those parties: it writes a byte into each. So there is no system call unless a party
 * waits, and no more bytes than times that the owner armed.
 *
 * The bit is the truth for the waiting thread: as long as it is set, no event has occurred. A waker
 * that dies between clearing and posting leaves it cleared, and the waiting thread sees that at the
 * end of a slice (shmq_is_woken). A party that finds no free entry is only late.
 *
 * A thread that waits with a filter has an entry of its own, with SHMQ_FILTERED: the messages in
 * the queue may not match, and another consumer takes those that do not. All filtered parties are
 * woken for each message that enters the order of service, and never in the place of a party that
 * would have taken any message. */
#pragma once

#include "queue/queue.h"

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

/* Selects the parties of this handle, which is about to close. Holds the lock. */
void shmq_select_own(struct shmq_queue *q);

/* Selects those that a process which died may have selected, and not woken. Holds the lock. */
void shmq_select_unposted(struct shmq_queue *q);

/* ---- cleanup ---- */

/* Frees the entries of attachment `at`. Holds the lock. */
void shmq_forget_parties(struct shmq_queue *q, uint32_t at);

/* Frees entries without an attachment, and clears bits without an entry. Holds the lock. */
void shmq_settle_parties(struct shmq_queue *q);

bool shmq_party_is_attached(const struct shmq_queue *q, const struct shmq_party *p);

/* ---- the FIFOs ---- */

/* A process opens each wakeup of others once by its name, and keeps a limited number of them open.
 * All open them for reading and writing: so a post never meets a FIFO without a reader, which would
 * kill the poster by SIGPIPE, and the owner never reads an end of file. */

#define SHMQ_WAKEUP_NAME 192 /* bytes */

/* Whether the last critical section selected parties to wake: one read of private memory. */
static inline bool shmq_must_wake(struct shmq_queue *q) { return GET_RELAXED(q->to_wake) != 0; }

/* The path of wakeup `n` of process `process`. */
void shmq_wakeup_name(char name[SHMQ_WAKEUP_NAME], const char *prefix, uint64_t process,
                      uint32_t n);

/* The descriptor of a wakeup; -1 with errno. */
int shmq_open_wakeup(const char *name);

/* Posts a wakeup: it is readable until it is cleared. One that is full is so anyway. The caller
 * stores what the owner must find before the call. */
void shmq_post_wakeup(int fd);

/* Takes all posts; whether there were any. The owner looks at its watches after the call. */
bool shmq_clear_wakeup(int fd);

/* Sleeps until it is posted, a signal arrives, or `ns` have passed. */
void shmq_await_wakeup(int fd, int64_t ns);

/* Posts wakeup `n` of process `process`, whose path has that prefix; process 0 has none. Skips one
 * that is gone. */
void shmq_post_named(const char *prefix, uint64_t process, uint32_t n);

/* Wakes the parties in q->to_wake. Without the lock. Skips a wakeup that is gone: it belonged to a
 * process that died. */
void shmq_wake_parties(struct shmq_queue *q);

/* Tells this module that the process is a forked child: a lock that a thread of the parent held is
 * free here. */
void shmq_wakeups_forked(void);
