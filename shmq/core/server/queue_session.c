#include "server/server.h"

#include <stdlib.h>

#define MOST_EMPTY_SESSIONS 64

/* ---- names ---- */

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
    return !attached_queue->gone && GET_RELAXED(attached_queue->q->h->state) == SHMQ_OPEN;
}

/* ---- the queues that the engine is attached to ---- */

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

/* Whether the queue session can be dropped: its queue is gone, or there are many such. */
static bool is_dispensable(const struct shmq_queue_session *queue_session, uint32_t *idle)
{
    return is_idle(queue_session) &&
           (queue_session->attached_queue->gone || ++*idle > MOST_EMPTY_SESSIONS);
}

/* The queue session of that name, moved to the front; queue sessions that are of no more use are
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

/* The same, whatever the session's rights to it, as long as it has any. */
static struct shmq_queue_session *enter_queue(struct shmq_session *session, struct shmq_name name,
                                              uint16_t *status)
{
    struct shmq_queue_session *queue_session = session->queue_sessions;
    struct shmq_attached_queue *attached_queue;
    uint8_t rights;

    if (!queue_session || !is_called(queue_session->attached_queue, name) ||
        !is_open(queue_session->attached_queue))
        queue_session = find_queue_session(session, name);
    if (queue_session && queue_session->rights != SHMQ_NOT_ASKED)
        return queue_session;
    *status = SHMQ_S_NO_QUEUE;
    if (!(rights = ask_rights(session, name)))
        return NULL;
    if (!queue_session && !(attached_queue = open_attached_queue(session, name, status)))
        return NULL;
    *status = SHMQ_S_INTERNAL;
    if (queue_session || (queue_session = take_queue_session(session, attached_queue)))
        queue_session->rights = rights;
    return queue_session;
}

struct shmq_queue_session *shmq_queue_session_at(struct shmq_session *session,
                                                 struct shmq_name name, enum shmq_right right,
                                                 uint16_t *status)
{
    struct shmq_queue_session *queue_session = enter_queue(session, name, status);

    if (queue_session)
        *status = queue_session->rights & right ? SHMQ_S_OK : SHMQ_S_FORBIDDEN;
    return queue_session && !*status ? queue_session : NULL;
}
