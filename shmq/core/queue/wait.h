/* Sleeping until a message comes, or space. The semaphores only wake; what is true is in
 * the header.
 *
 * `asleep` counts the sleepers, `posted` the posts that none of them has taken. A process
 * that releases the lock posts one for each message or free slot, but never more than there
 * are sleepers without a post, so a semaphore does not grow. A waker that dies between
 * counting and posting costs the sleeper the rest of its slice, no more: a sleeper whose
 * slice ended sets `posted` right by the semaphore's value. */
#ifndef SHMQ_QUEUE_WAIT_H
#define SHMQ_QUEUE_WAIT_H

#include <semaphore.h>

#include "queue/queue.h"

/* Counts the caller in. Holds the lock. */
void shmq_fall_asleep(struct shmq_queue *q, enum shmq_event event);

/* Counts it out again; `taken` says whether it took a post, `left` is the semaphore's
 * value. Holds the lock. */
void shmq_wake_up(struct shmq_queue *q, enum shmq_event event, bool taken, int left);

/* For a thread that took a post and leaves without having tried: another sleeper is posted in its
 * place. For a message that is so anyway, since it is still there. Holds the lock. */
void shmq_pass_on(struct shmq_queue *q, enum shmq_event event);

/* How many sleepers of each event to post once the lock is released, and in q->to_wake which
 * parties to wake: those for whom something is left after the sleepers got theirs. Holds the
 * lock. */
void shmq_select_posts(struct shmq_queue *q, uint32_t post[2]);

/* Posts them, each event's on its semaphore. Without the lock. */
void shmq_post(sem_t *const semaphores[2], const uint32_t post[2]);

/* Sleeps on the semaphore for at most `ns`, on the monotonic clock: SHMQ_OK if posted,
 * SHMQ_TIMED_OUT, SHMQ_INTERRUPTED. To be called without the GIL. */
int shmq_sleep(sem_t *semaphore, int64_t ns);

/* Spins until the queue looks as if the wait were over, at most `ns`: how long that took, in
 * ns, or -1. */
int64_t shmq_spin(struct shmq_queue *q, enum shmq_event event, int64_t ns);

#endif
