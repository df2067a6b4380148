#include "server/attached_queue.h"

#include <stdlib.h>

#include "queue/lock.h"
#include "server/durable_reply.h"
#include "queue/wakeup_post.h"
#include "server/connection.h"
#include "queue/wait.h"
#include "server/lease_table.h"
#include "server/waiters.h"

#define MS 1000000ll
#define LOCK_MOST (2 * MS)    /* that this thread waits for a lock                         */
#define PARK_MOST (100 * MS)  /* that a request waits for one, before it is refused        */
#define RETRY_EVERY (3 * MS)
#define TEND_EVERY 50000000ll /* ns: as often as a blocking wait looks for the dead */
#define MOST_EMPTY_SESSIONS 64

static bool is_of_a_name(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
}

bool shmq_read_name(struct shmq_reader *r, struct shmq_name *name)
{
    name->bytes = shmq_read16(r);
    name->at = shmq_read_bytes(r, name->bytes);
    if (r->bad || name->bytes < 1 || name->bytes > SHMQ_NAME_MAX)
        return false;
    for (uint16_t i = 0; i < name->bytes; i++)
        if (!is_of_a_name(name->at[i]))
            return false;
    return true;
}

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/ */
static struct shmq_attached_queue **bucket_of(struct shmq_engine *engine, struct shmq_name name)
{
    uint32_t hash = 2166136261u;

    for (uint16_t i = 0; i < name.bytes; i++)
        hash = (hash ^ name.at[i]) * 16777619u;
    return &engine->buckets[(hash ^ hash >> 16) % SHMQ_BUCKETS];
}

static struct shmq_name name_of(const struct shmq_attached_queue *attached_queue)
{
    return (struct shmq_name){(const unsigned char *)attached_queue->name,
                              attached_queue->name_bytes};
}

static bool is_called(const struct shmq_attached_queue *attached_queue, struct shmq_name name)
{
    return shmq_same_name(name_of(attached_queue), name);
}

static bool is_open(const struct shmq_attached_queue *attached_queue)
{
    return !attached_queue->gone &&
           atomic_load_explicit(&attached_queue->q->h->state, memory_order_relaxed) == SHMQ_OPEN;
}

/* ---- attached queues ---- */

static void dismantle(struct shmq_attached_queue *attached_queue)
{
    attached_queue->engine->hooks->detach(attached_queue->engine, attached_queue);
    free(attached_queue->held_leases);
    free(attached_queue->owed);
    free(attached_queue);
}

static uint16_t attach(struct shmq_session *session, struct shmq_attached_queue *attached_queue)
{
    struct shmq_engine *engine = session->engine;
    uint16_t status = engine->hooks->attach(session, attached_queue);

    if (status)
        return status;
    attached_queue->held_leases = calloc(attached_queue->q->capacity,
                                         sizeof *attached_queue->held_leases);
    if (attached_queue->held_leases)
        return SHMQ_S_OK;
    engine->hooks->detach(engine, attached_queue);
    return SHMQ_S_INTERNAL;
}

static struct shmq_attached_queue *open_attached_queue(struct shmq_session *session,
                                                       struct shmq_name name, uint16_t *status)
{
    struct shmq_engine *engine = session->engine;
    struct shmq_attached_queue **bucket = bucket_of(engine, name), *attached_queue;

    for (attached_queue = *bucket; attached_queue; attached_queue = attached_queue->next)
        if (is_called(attached_queue, name))
            break;
    if (attached_queue && is_open(attached_queue))
        return attached_queue;
    if (attached_queue)
        (void)shmq_attached_queue_status(attached_queue, SHMQ_DELETED);
    if (!(attached_queue = calloc(1, sizeof *attached_queue))) {
        *status = SHMQ_S_INTERNAL;
        return NULL;
    }
    attached_queue->engine = engine;
    attached_queue->name_bytes = (uint8_t)name.bytes;
    memcpy(attached_queue->name, name.at, name.bytes);
    if ((*status = attach(session, attached_queue))) {
        free(attached_queue);
        return NULL;
    }
    attached_queue->next = *bucket;
    *bucket = attached_queue;
    return attached_queue;
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

void shmq_attached_queue_forget(struct shmq_attached_queue *attached_queue, uint16_t status)
{
    struct shmq_attached_queue **at = bucket_of(attached_queue->engine, name_of(attached_queue));

    if (attached_queue->gone)
        return;
    while (*at != attached_queue)
        at = &(*at)->next;
    *at = attached_queue->next;
    attached_queue->gone = true;
    attached_queue->users++;
    shmq_waiters_end(attached_queue, status);
    shmq_durable_replies_end(attached_queue, status);
    shmq_held_leases_void(attached_queue);
    shmq_attached_queue_release(attached_queue);
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

uint16_t shmq_attached_queue_status(struct shmq_attached_queue *attached_queue, int status)
{
    switch (status) {
    case SHMQ_OK: return SHMQ_S_OK;
    case SHMQ_FULL: return SHMQ_S_QUEUE_FULL;
    case SHMQ_EMPTY: return SHMQ_S_QUEUE_EMPTY;
    case SHMQ_TOO_LARGE: return SHMQ_S_TOO_LARGE;
    case SHMQ_STALE: return SHMQ_S_LEASE_EXPIRED;
    case SHMQ_DUPLICATE: return SHMQ_S_DUPLICATE;
    case SHMQ_NO_SPACE: return SHMQ_S_NO_SPACE;
    case SHMQ_BUSY: return SHMQ_S_BUSY;
    case SHMQ_DELETED:
        shmq_attached_queue_forget(attached_queue, SHMQ_S_NO_QUEUE);
        return SHMQ_S_NO_QUEUE;
    case SHMQ_DAMAGED:
        attached_queue->engine->hooks->failed(attached_queue);
        shmq_attached_queue_forget(attached_queue, SHMQ_S_INTERNAL);
        return SHMQ_S_INTERNAL;
    default: return SHMQ_S_INTERNAL;
    }
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

/* ---- what waits for the lock ---- */

void shmq_attached_queue_owe(struct shmq_attached_queue *attached_queue, enum shmq_deed deed,
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
    owed[attached_queue->owed_count++] = (struct shmq_owed){deed, what};
}

/* Holds the lock. */
static void do_deed(struct shmq_attached_queue *attached_queue, const struct shmq_owed *owed,
                    int64_t now)
{
    if (owed->deed == SHMQ_UNPIN_IT)
        unpin(attached_queue, (uint32_t)owed->what);
    else if (attached_queue->q->h->state != SHMQ_OPEN)
        return;
    else if (owed->deed == SHMQ_RETURN_IT)
        (void)shmq_return(attached_queue->q, owed->what, now);
    else if (owed->deed == SHMQ_RETURN_UNSEEN)
        (void)shmq_return_unseen(attached_queue->q, owed->what, now);
    else
        (void)shmq_abandon(attached_queue->q, owed->what);
}

/* Up to SHMQ_RUN of what is owed, the last first: whether the lock could be had, or is of no
 * use any more. */
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
        do_deed(attached_queue, &attached_queue->owed[--attached_queue->owed_count], now);
    shmq_attached_queue_unlock(attached_queue);
    return true;
}

static void unpark_all(struct shmq_attached_queue *attached_queue)
{
    for (struct shmq_session *s = attached_queue->engine->sessions; s; s = s->next)
        if (s->parked && s->parked_at == attached_queue)
            shmq_unpark(s);
}

/* What waited for the lock goes on, and so does whoever waits for messages; requests that have
 * waited for long enough are carried out, too: they are refused. */
static void retry(struct shmq_attached_queue *attached_queue)
{
    bool free = true;

    if (attached_queue->held_since || attached_queue->owed_count || attached_queue->owes_posts)
        do
            free = do_some(attached_queue);
        while (free && attached_queue->owed_count);
    if (free)
        shmq_attached_queue_touch(attached_queue);
    else
        shmq_attached_queue_later(attached_queue);
    if (shmq_attached_queue_is_awaited(attached_queue))
        return;
    unpark_all(attached_queue);
    if (!free)
        shmq_waiters_refuse(attached_queue);
}

void shmq_attached_queues_retry(struct shmq_engine *engine)
{
    struct shmq_attached_queue *attached_queue = engine->pending, *next;

    engine->pending = NULL;
    engine->retry_at = INT64_MAX;
    for (; attached_queue; attached_queue = next) {
        next = attached_queue->next_pending;
        attached_queue->pending = false;
        retry(attached_queue);
        shmq_attached_queue_release(attached_queue);
    }
}

void shmq_attached_queues_give_up(struct shmq_engine *engine)
{
    while (engine->pending) {
        struct shmq_attached_queue *attached_queue = engine->pending;

        engine->pending = attached_queue->next_pending;
        attached_queue->pending = false;
        shmq_attached_queue_release(attached_queue);
    }
}

/* ---- queue sessions ---- */

static void leave(struct shmq_queue_session *queue_session)
{
    struct shmq_attached_queue *attached_queue = queue_session->attached_queue;

    free(queue_session);
    shmq_attached_queue_release(attached_queue);
}

void shmq_queue_sessions_leave(struct shmq_session *session)
{
    while (session->queue_sessions) {
        struct shmq_queue_session *queue_session = session->queue_sessions;

        session->queue_sessions = queue_session->next;
        leave(queue_session);
    }
}

static bool is_idle(const struct shmq_queue_session *queue_session)
{
    const struct shmq_large_body *large_body = &queue_session->session->large_body;

    return !queue_session->count && !queue_session->waiters &&
           !(large_body->active && large_body->queue_session == queue_session);
}

/* Whether the queue session need not be kept: its queue is gone, or there are many such. */
static bool is_dispensable(const struct shmq_queue_session *queue_session, uint32_t *idle)
{
    return is_idle(queue_session) &&
           (queue_session->attached_queue->gone || ++*idle > MOST_EMPTY_SESSIONS);
}

/* The queue session of that name, moved to the engine; queue sessions that are of no more use are
 * left. */
static struct shmq_queue_session *find_queue_session(struct shmq_session *session,
                                                     struct shmq_name name)
{
    struct shmq_queue_session **at = &session->queue_sessions, *queue_session;
    uint32_t idle = 0;

    while ((queue_session = *at)) {
        if (is_called(queue_session->attached_queue, name) &&
            is_open(queue_session->attached_queue)) {
            *at = queue_session->next;
            queue_session->next = session->queue_sessions;
            return session->queue_sessions = queue_session;
        }
        if (is_dispensable(queue_session, &idle)) {
            *at = queue_session->next;
            leave(queue_session);
        } else {
            at = &queue_session->next;
        }
    }
    return NULL;
}

static struct shmq_queue_session *take_queue_session(struct shmq_session *session,
                                                     struct shmq_attached_queue *attached_queue)
{
    struct shmq_queue_session *queue_session = calloc(1, sizeof *queue_session);

    if (!queue_session)
        return NULL;
    queue_session->attached_queue = attached_queue;
    queue_session->session = session;
    queue_session->first = queue_session->last = SHMQ_NIL;
    queue_session->next = session->queue_sessions;
    session->queue_sessions = queue_session;
    attached_queue->users++;
    return queue_session;
}

static uint8_t ask_rights(struct shmq_session *session, struct shmq_name name)
{
    char text[SHMQ_NAME_MAX + 1] = {0};

    memcpy(text, name.at, name.bytes);
    return session->engine->hooks->rights(session, text);
}

struct shmq_queue_session *shmq_queue_session_at(struct shmq_session *session,
                                                 struct shmq_name name, uint16_t *status)
{
    struct shmq_queue_session *queue_session = session->queue_sessions;
    struct shmq_attached_queue *attached_queue;
    uint8_t rights;

    if (!queue_session || !is_called(queue_session->attached_queue, name) ||
        !is_open(queue_session->attached_queue))
        queue_session = find_queue_session(session, name);
    if (queue_session && queue_session->rights != SHMQ_NOT_ASKED) {
        *status = SHMQ_S_OK;
        return queue_session;
    }
    *status = SHMQ_S_NO_QUEUE;
    if (!(rights = ask_rights(session, name)))
        return NULL;
    if (!queue_session && !(attached_queue = open_attached_queue(session, name, status)))
        return NULL;
    if (!queue_session && !(queue_session = take_queue_session(session, attached_queue))) {
        *status = SHMQ_S_INTERNAL;
        return NULL;
    }
    queue_session->rights = rights;
    *status = SHMQ_S_OK;
    return queue_session;
}
