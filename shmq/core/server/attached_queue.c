#include "server/server.h"

#include <stdlib.h>

#include "queue/lock.h"
#include "queue/wait.h"
#include "queue/wakeup.h"

#define MS 1000000ll
#define LOCK_MOST (2 * MS)    /* that this thread waits for a lock                         */
#define PARK_MOST (100 * MS)  /* that a request waits for one, before it is refused        */
#define RETRY_EVERY (3 * MS)
#define TEND_EVERY 50000000ll /* ns: as often as a blocking wait looks for dead processes */

/* ---- attached queues ---- */

static void dismantle(struct shmq_attached_queue *queue)
{
    queue->engine->hooks->detach(queue->engine, queue);
    free(queue->held_leases);
    free(queue->owed);
    free(queue);
}

void shmq_attached_queue_release(struct shmq_attached_queue *queue)
{
    if (--queue->users)
        return;
    queue->unused_at = shmq_coarse_now();
    if (queue->gone && !queue->touched)
        dismantle(queue);
}

void shmq_attached_queue_touch(struct shmq_attached_queue *queue)
{
    if (queue->touched || queue->gone)
        return;
    queue->touched = true;
    queue->users++;
    queue->next_touched = queue->engine->touched;
    queue->engine->touched = queue;
}

/* ---- the lock ---- */

void shmq_attached_queue_later(struct shmq_attached_queue *queue)
{
    struct shmq_engine *engine = queue->engine;
    int64_t at = shmq_coarse_now() + RETRY_EVERY;

    if (at < engine->retry_at)
        engine->retry_at = at;
    if (queue->pending)
        return;
    queue->pending = true;
    queue->users++;
    queue->next_pending = engine->pending;
    engine->pending = queue;
}

static void note_lock(struct shmq_attached_queue *queue, int status)
{
    if (__builtin_expect(status == SHMQ_BUSY, 0)) {
        if (!queue->held_since)
            queue->held_since = shmq_coarse_now();
        shmq_attached_queue_later(queue);
    } else if (__builtin_expect(queue->held_since != 0, 0)) {
        queue->held_since = 0;
    }
}

int shmq_attached_queue_lock(struct shmq_attached_queue *queue, bool whole)
{
    int status = whole ? shmq_lock(queue->q) : shmq_lock_gets(queue->q);

    if (status == SHMQ_BUSY)
        status = shmq_lock_slowly(queue->q, queue->held_since ? 0 : LOCK_MOST);
    note_lock(queue, status);
    return status;
}

static int lock_even_deleted(struct shmq_attached_queue *queue)
{
    int status = shmq_lock_even_deleted(queue->q, queue->held_since ? 0 : LOCK_MOST);

    note_lock(queue, status);
    return status;
}

bool shmq_attached_queue_is_awaited(const struct shmq_attached_queue *queue)
{
    return queue->held_since && shmq_coarse_now() - queue->held_since < PARK_MOST;
}

static void release_lock(struct shmq_attached_queue *queue)
{
    uint32_t post[2];

    shmq_unlock(queue->q, post);
    shmq_post(queue->semaphores, post);
    if (shmq_must_wake(queue->q))
        shmq_wake_parties(queue->q);
}

void shmq_attached_queue_unlock(struct shmq_attached_queue *queue)
{
    release_lock(queue);
    if (queue->q->look_for_dead || queue->q->h->dying.head != SHMQ_NIL)
        shmq_attached_queue_touch(queue);
}

void shmq_attached_queue_unlock_puts(struct shmq_attached_queue *queue)
{
    int status;

    if (!shmq_unlock_puts(queue->q))
        return;
    status = shmq_attached_queue_lock(queue, true);
    if (status == SHMQ_OK)
        shmq_attached_queue_unlock(queue);
    queue->owes_posts = queue->owes_posts || status == SHMQ_BUSY;
}

bool shmq_attached_queue_tend(struct shmq_attached_queue *queue)
{
    int64_t now = shmq_coarse_now();

    if (queue->gone || now - queue->tended_at < TEND_EVERY)
        return false;
    queue->tended_at = now;
    queue->q->look_for_dead = true;
    queue->engine->hooks->tend(queue);
    return true;
}

/* Holds the lock. */
static void unpin(struct shmq_attached_queue *queue, uint32_t slot)
{
    shmq_unpin(queue->q, slot);
    --*queue->views;
}

void shmq_outgoing_body_gone(struct shmq_outgoing_body *outgoing_body)
{
    struct shmq_attached_queue *queue = outgoing_body->queue;
    int status = lock_even_deleted(queue);

    if (status == SHMQ_OK) { /* else the queue is damaged: nothing of it is used again */
        unpin(queue, outgoing_body->slot);
        release_lock(queue);
    } else if (status == SHMQ_BUSY) {
        shmq_attached_queue_owe(queue, SHMQ_UNPIN_IT, outgoing_body->slot);
    }
    shmq_attached_queue_release(queue);
}

/* ---- deferred work ---- */

void shmq_attached_queue_owe(struct shmq_attached_queue *queue, enum shmq_owed_kind kind,
                             uint64_t what)
{
    uint32_t room = queue->owed_room ? 2 * queue->owed_room : 16;
    struct shmq_owed *owed = queue->owed;

    shmq_attached_queue_later(queue);
    if (queue->owed_count == queue->owed_room) {
        if (!(owed = realloc(owed, room * sizeof *owed)))
            return; /* the visibility timeout, or the end of this process, does it */
        queue->owed = owed;
        queue->owed_room = room;
    }
    owed[queue->owed_count++] = (struct shmq_owed){kind, what};
}

void shmq_attached_queue_do(struct shmq_attached_queue *queue, const struct shmq_owed *owed,
                            int64_t now)
{
    if (owed->kind == SHMQ_UNPIN_IT)
        unpin(queue, (uint32_t)owed->what);
    else if (queue->q->h->state != SHMQ_OPEN)
        return;
    else if (owed->kind == SHMQ_RETURN_IT)
        (void)shmq_return(queue->q, owed->what, now);
    else if (owed->kind == SHMQ_RETURN_UNSEEN)
        (void)shmq_return_unseen(queue->q, owed->what, 0, now);
    else if (owed->kind == SHMQ_RETURN_SOON)
        (void)shmq_extend(queue->q, owed->what, SHMQ_REPORTED_WITHIN, now);
    else
        (void)shmq_abandon(queue->q, owed->what);
}

/* Does up to SHMQ_RUN deferred operations, the last first: whether the lock was free, or the
 * work is obsolete. */
static bool do_some(struct shmq_attached_queue *queue)
{
    int64_t now = shmq_now();
    int status = lock_even_deleted(queue);

    if (status == SHMQ_BUSY)
        return false;
    queue->owes_posts = false;
    if (status != SHMQ_OK) {
        queue->owed_count = 0;
        return true;
    }
    for (uint32_t i = 0; i < SHMQ_RUN && queue->owed_count; i++)
        shmq_attached_queue_do(queue, &queue->owed[--queue->owed_count], now);
    shmq_attached_queue_unlock(queue);
    return true;
}

bool shmq_attached_queue_do_owed(struct shmq_attached_queue *queue)
{
    bool free = true;

    if (queue->held_since || queue->owed_count || queue->owes_posts)
        do
            free = do_some(queue);
        while (free && queue->owed_count);
    return free;
}
