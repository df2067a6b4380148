#include "server/server.h"

#include <stdlib.h>

#include "queue/lock.h"
#include "queue/wait.h"

#define MS 1000000ll
#define LOCK_MOST (2 * MS)    /* that this thread waits for a lock                         */
#define PARK_MOST (100 * MS)  /* that a request waits for one, before it is refused        */
#define RETRY_EVERY (3 * MS)
#define TEND_EVERY 50000000ll /* ns: as often as a blocking wait looks for dead processes */

/* ---- attached queues ---- */

static void dismantle(struct shmq_attached_queue *attached_queue)
{
    attached_queue->engine->hooks->detach(attached_queue->engine, attached_queue);
    free(attached_queue->held_leases);
    free(attached_queue->owed);
    free(attached_queue);
}

void shmq_attached_queue_release(struct shmq_attached_queue *attached_queue)
{
    if (--attached_queue->users)
        return;
    attached_queue->unused_at = shmq_coarse_now();
    if (attached_queue->gone && !attached_queue->touched)
        dismantle(attached_queue);
}

void shmq_attached_queue_touch(struct shmq_attached_queue *attached_queue)
{
    if (attached_queue->touched || attached_queue->gone)
        return;
    attached_queue->touched = true;
    attached_queue->users++;
    attached_queue->next_touched = attached_queue->engine->touched;
    attached_queue->engine->touched = attached_queue;
}

/* ---- the lock ---- */

void shmq_attached_queue_later(struct shmq_attached_queue *attached_queue)
{
    struct shmq_engine *engine = attached_queue->engine;
    int64_t at = shmq_coarse_now() + RETRY_EVERY;

    if (at < engine->retry_at)
        engine->retry_at = at;
    if (attached_queue->pending)
        return;
    attached_queue->pending = true;
    attached_queue->users++;
    attached_queue->next_pending = engine->pending;
    engine->pending = attached_queue;
}

static void note_lock(struct shmq_attached_queue *attached_queue, int status)
{
    if (__builtin_expect(status == SHMQ_BUSY, 0)) {
        if (!attached_queue->held_since)
            attached_queue->held_since = shmq_coarse_now();
        shmq_attached_queue_later(attached_queue);
    } else if (__builtin_expect(attached_queue->held_since != 0, 0)) {
        attached_queue->held_since = 0;
    }
}

int shmq_attached_queue_lock(struct shmq_attached_queue *attached_queue, bool whole)
{
    int status = whole ? shmq_lock(attached_queue->q) : shmq_lock_gets(attached_queue->q);

    if (status == SHMQ_BUSY && !attached_queue->held_since)
        status = shmq_lock_slowly(attached_queue->q, LOCK_MOST);
    note_lock(attached_queue, status);
    return status;
}

static int lock_even_deleted(struct shmq_attached_queue *attached_queue)
{
    int status = shmq_lock_even_deleted(attached_queue->q,
                                        attached_queue->held_since ? 0 : LOCK_MOST);

    note_lock(attached_queue, status);
    return status;
}

bool shmq_attached_queue_is_awaited(const struct shmq_attached_queue *attached_queue)
{
    return attached_queue->held_since && shmq_coarse_now() - attached_queue->held_since < PARK_MOST;
}

static void release_lock(struct shmq_attached_queue *attached_queue)
{
    uint32_t post[2];

    shmq_unlock(attached_queue->q, post);
    shmq_post(attached_queue->semaphores, post);
    if (shmq_must_wake(attached_queue->q))
        shmq_wake_parties(attached_queue->q);
}

void shmq_attached_queue_unlock(struct shmq_attached_queue *attached_queue)
{
    release_lock(attached_queue);
    if (attached_queue->q->look_for_dead || attached_queue->q->h->dying.head != SHMQ_NIL)
        shmq_attached_queue_touch(attached_queue);
}

void shmq_attached_queue_unlock_puts(struct shmq_attached_queue *attached_queue)
{
    int status;

    if (!shmq_unlock_puts(attached_queue->q))
        return;
    status = shmq_attached_queue_lock(attached_queue, true);
    if (status == SHMQ_OK)
        shmq_attached_queue_unlock(attached_queue);
    attached_queue->owes_posts = attached_queue->owes_posts || status == SHMQ_BUSY;
}

bool shmq_attached_queue_tend(struct shmq_attached_queue *attached_queue)
{
    int64_t now = shmq_coarse_now();

    if (attached_queue->gone || now - attached_queue->tended_at < TEND_EVERY)
        return false;
    attached_queue->tended_at = now;
    attached_queue->q->look_for_dead = true;
    attached_queue->engine->hooks->tend(attached_queue);
    return true;
}

/* Holds the lock. */
static void unpin(struct shmq_attached_queue *attached_queue, uint32_t slot)
{
    shmq_unpin(attached_queue->q, slot);
    --*attached_queue->views;
}

void shmq_outgoing_body_gone(struct shmq_outgoing_body *outgoing_body)
{
    struct shmq_attached_queue *attached_queue = outgoing_body->attached_queue;
    int status = lock_even_deleted(attached_queue);

    if (status == SHMQ_OK) { /* else the queue is damaged: nothing of it is used again */
        unpin(attached_queue, outgoing_body->slot);
        release_lock(attached_queue);
    } else if (status == SHMQ_BUSY) {
        shmq_attached_queue_owe(attached_queue, SHMQ_UNPIN_IT, outgoing_body->slot);
    }
    shmq_attached_queue_release(attached_queue);
}

/* ---- deferred work ---- */

void shmq_attached_queue_owe(struct shmq_attached_queue *attached_queue, enum shmq_owed_kind kind,
                             uint64_t what)
{
    uint32_t room = attached_queue->owed_room ? 2 * attached_queue->owed_room : 16;
    struct shmq_owed *owed = attached_queue->owed;

    shmq_attached_queue_later(attached_queue);
    if (attached_queue->owed_count == attached_queue->owed_room) {
        if (!(owed = realloc(owed, room * sizeof *owed)))
            return; /* the visibility timeout, or the end of this process, does it */
        attached_queue->owed = owed;
        attached_queue->owed_room = room;
    }
    owed[attached_queue->owed_count++] = (struct shmq_owed){kind, what};
}

/* Holds the lock. */
static void do_one(struct shmq_attached_queue *attached_queue, const struct shmq_owed *owed,
                   int64_t now)
{
    if (owed->kind == SHMQ_UNPIN_IT)
        unpin(attached_queue, (uint32_t)owed->what);
    else if (attached_queue->q->h->state != SHMQ_OPEN)
        return;
    else if (owed->kind == SHMQ_RETURN_IT)
        (void)shmq_return(attached_queue->q, owed->what, now);
    else if (owed->kind == SHMQ_RETURN_UNSEEN)
        (void)shmq_return_unseen(attached_queue->q, owed->what, now);
    else
        (void)shmq_abandon(attached_queue->q, owed->what);
}

/* Does up to SHMQ_RUN deferred operations, the last first: whether the lock was free, or the
 * work is obsolete. */
static bool do_some(struct shmq_attached_queue *attached_queue)
{
    int64_t now = shmq_now();
    int status = lock_even_deleted(attached_queue);

    if (status == SHMQ_BUSY)
        return false;
    attached_queue->owes_posts = false;
    if (status != SHMQ_OK) {
        attached_queue->owed_count = 0;
        return true;
    }
    for (uint32_t i = 0; i < SHMQ_RUN && attached_queue->owed_count; i++)
        do_one(attached_queue, &attached_queue->owed[--attached_queue->owed_count], now);
    shmq_attached_queue_unlock(attached_queue);
    return true;
}

bool shmq_attached_queue_do_owed(struct shmq_attached_queue *attached_queue)
{
    bool free = true;

    if (attached_queue->held_since || attached_queue->owed_count || attached_queue->owes_posts)
        do
            free = do_some(attached_queue);
        while (free && attached_queue->owed_count);
    return free;
}
