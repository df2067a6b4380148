/* Sleeping until a message or space is available. The semaphores only wake; the truth is in the
 * header.
 *
 * `asleep` counts the sleepers, `posted` the posts that no sleeper has taken. A process that
 * releases the lock posts once for each message or free slot, but never more often than there are
 * sleepers without a post, so a semaphore's value does not grow without limit. If a waker dies
 * between counting and posting, the sleeper only sleeps for the rest of its slice: a sleeper whose
 * slice ended corrects `posted` from the semaphore's value. */
#ifndef SHMQ_QUEUE_WAIT_H
#define SHMQ_QUEUE_WAIT_H

#include <semaphore.h>

#include "queue/queue.h"

/* Counts the caller as a sleeper. Holds the lock. */
void shmq_fall_asleep(struct shmq_queue *q, enum shmq_event event);

/* Removes it from the count; `taken`: it took a post; `left`: the semaphore's value. Holds the
 * lock. */
void shmq_wake_up(struct shmq_queue *q, enum shmq_event event, bool taken, int left);

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

/* Spins until the wait seems to be over, at most `ns`: how long that took, in ns, or -1. */
int64_t shmq_spin(struct shmq_queue *q, enum shmq_event event, int64_t ns);

#endif
