/* Sleeping until a message or space is available. The semaphores only wake; the truth is in the
 * header.
 *
 * While nothing happens, nobody wakes. A sleep lasts until a post, until something is due in the
 * queue, or for a slice. The slice is 50 ms as long as no process of the namespace watches for
 * deaths, and SHMQ_LONG_SLEEP while one does (shmq/client/local/waiting/guardian.py). What happens
 * during a long sleep wakes the sleeper:
 *
 *  - A process dies. The guardian returns what it held, as an active process would, and then posts
 *    again (shmq_post_anew), because the dead process may have counted posts that it never made.
 *  - Something becomes due earlier than the sleeper knew when it fell asleep. `alarm` is a time by
 *    which some waiter looks without a post. A process that releases the lock, and finds that
 *    something is due before, posts one more waiter, which then sleeps until that time.
 *
 * So a slice only bounds what is left: a waker, or the waiter of the alarm, that is stopped at the
 * wrong moment, and the death of all guardians at once. It is enough that some look for all: the
 * first SHMQ_WATCHERS that fall asleep are watchers, but at most half of them through one handle.
 * The others of a crowd promise no look but for what is due within a slice. Once they have slept for
 * a slice, they sleep for as long as shmq_crowd_sleep says, which grows with their number, so that
 * all of them together wake seldom; it is random, so that one of a large crowd wakes soon at any
 * time. Where watchers are lacking, because they were woken, died or are stopped, the next process
 * that releases the lock posts one sleeper more, which then becomes one.
 *
 * `asleep` counts the sleepers, `posted` the posts that no sleeper has taken. A process that
 * releases the lock posts once for each message or free slot, but never more often than there are
 * sleepers without a post, so a semaphore's value does not grow without limit. If a waker dies
 * between counting and posting, its death is noticed; and a sleeper whose slice ended corrects
 * `posted` from the semaphore's value. */
#pragma once

#include <semaphore.h>

#include "queue/queue.h"

#define SHMQ_SHORT_SLEEP 50000000ll  /* ns: a slice while nobody watches for deaths      */
#define SHMQ_LONG_SLEEP 2000000000ll /* ns: a slice while somebody does                  */
#define SHMQ_WATCHERS 8              /* sleepers of an event that look at each slice     */

/* Counts the caller as a sleeper, which must look again at q->due, and if q->watches as a watcher.
 * Holds the lock. */
void shmq_fall_asleep(struct shmq_queue *q, enum shmq_event event);

/* Removes it from the count; `taken`: it took a post; `left`: the semaphore's value. Holds the
 * lock. */
void shmq_wake_up(struct shmq_queue *q, enum shmq_event event, bool taken, int left);

/* Removes a watcher of the attachment from the count, apart from shmq_wake_up. Holds the lock. */
void shmq_stop_watching(struct shmq_queue *q, struct shmq_attachment *a, enum shmq_event event);

/* How long a sleeper that does not watch sleeps, in ns, once nothing happened for a slice: on average
 * 75 ms for each sleeper, and SHMQ_LONG_SLEEP at least. Needs no lock. */
int64_t shmq_crowd_sleep(const struct shmq_queue *q, enum shmq_event event);

/* After the death of an attached process: posts again what it may have counted and not posted, so
 * that every waiter for which there is something looks. Holds the lock. */
void shmq_post_anew(struct shmq_queue *q);

/* Computes how many sleepers of each event to post once the lock is released, and sets q->to_wake
 * to the parties to wake: those for which something is left after the sleepers. Holds the lock. */
void shmq_select_posts(struct shmq_queue *q, uint32_t post[2]);

/* Posts them, each event on its semaphore. Without the lock. */
void shmq_post(sem_t *const semaphores[2], const uint32_t post[2]);

/* Sleeps on the semaphore for at most `ns`, on the monotonic clock: SHMQ_OK if posted,
 * SHMQ_TIMED_OUT, SHMQ_INTERRUPTED. Call it without the GIL. */
int shmq_sleep(sem_t *semaphore, int64_t ns);

/* Spins until the wait seems to be over, at most `ns`, and after `yield_after` ns lets others run:
 * how long that took, in ns, or -1. See base/spin.h. */
int64_t shmq_spin(struct shmq_queue *q, enum shmq_event event, int64_t ns, int64_t yield_after);

/* ---- alarm.c ---- */

/* Promises that the caller will look by the returned time, at which something may be due. Holds the
 * lock. */
int64_t shmq_set_alarm(struct shmq_queue *q);

/* The same for what is due within a slice and before all promised looks; otherwise nothing is
 * promised, and INT64_MAX returned: the watchers look. Holds the lock. */
int64_t shmq_set_early_alarm(struct shmq_queue *q);

/* When a waiter for room that found too little must look again. Holds the lock. */
int64_t shmq_look_for_room(struct shmq_queue *q, bool slept_long);

/* For a thread that took a post and leaves without a try: posts another sleeper in its place. For a
 * message that happens anyway, because the message is still there. Holds the lock. */
void shmq_pass_on(struct shmq_queue *q, enum shmq_event event);
