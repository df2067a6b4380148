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

static struct shmq_name name_of(const struct shmq_attached_queue *queue)
{
    return (struct shmq_name){(const unsigned char *)queue->name, queue->name_bytes};
}

static bool is_called(const struct shmq_attached_queue *queue, struct shmq_name name)
{
    return shmq_same_name(name_of(queue), name);
}

static bool is_open(const struct shmq_attached_queue *queue)
{
    return !queue->gone && GET_RELAXED(queue->q->h->state) == SHMQ_OPEN;
}

/* ---- the queues that the engine is attached to ---- */

void shmq_attached_queue_forget(struct shmq_attached_queue *queue, uint16_t status)
{
    struct shmq_attached_queue **at = bucket_of(queue->engine, name_of(queue));

    if (queue->gone)
        return;
    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    queue->gone = true;
    queue->users++;
    shmq_waiters_end(queue, status);
    shmq_durable_replies_end(queue, status);
    shmq_held_leases_void(queue);
    shmq_attached_queue_release(queue);
}

uint16_t shmq_attached_queue_status(struct shmq_attached_queue *queue, int status)
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
    case SHMQ_DELETED: shmq_attached_queue_forget(queue, SHMQ_S_NO_QUEUE); return SHMQ_S_NO_QUEUE;
    case SHMQ_DAMAGED:
        queue->engine->hooks->failed(queue);
        shmq_attached_queue_forget(queue, SHMQ_S_INTERNAL);
        return SHMQ_S_INTERNAL;
    default: return SHMQ_S_INTERNAL;
    }
}

static uint16_t attach(struct shmq_session *session, struct shmq_attached_queue *queue)
{
    struct shmq_engine *engine = session->engine;
    uint16_t status = engine->hooks->attach(session, queue);

    if (status)
        return status;
    queue->held_leases = calloc(queue->q->geo.slots_max, sizeof *queue->held_leases);
    if (queue->held_leases)
        return SHMQ_S_OK;
    engine->hooks->detach(engine, queue);
    return SHMQ_S_INTERNAL;
}

static struct shmq_attached_queue *open_attached_queue(struct shmq_session *session,
                                                       struct shmq_name name, uint16_t *status)
{
    struct shmq_engine *engine = session->engine;
    struct shmq_attached_queue **bucket = bucket_of(engine, name), *queue;

    for (queue = *bucket; queue; queue = queue->next)
        if (is_called(queue, name))
            break;
    if (queue && is_open(queue))
        return queue;
    if (queue)
        (void)shmq_attached_queue_status(queue, SHMQ_DELETED);
    if (!(queue = calloc(1, sizeof *queue))) {
        *status = SHMQ_S_INTERNAL;
        return NULL;
    }
    queue->engine = engine;
    queue->name_bytes = (uint8_t)name.bytes;
    memcpy(queue->name, name.at, name.bytes);
    if ((*status = attach(session, queue))) {
        free(queue);
        return NULL;
    }
    queue->next = *bucket;
    *bucket = queue;
    return queue;
}

/* ---- queue sessions ---- */

static void leave(struct shmq_queue_session *queue_session)
{
    struct shmq_attached_queue *queue = queue_session->queue;

    free(queue_session);
    shmq_attached_queue_release(queue);
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
    return is_idle(queue_session) && (queue_session->queue->gone || ++*idle > MOST_EMPTY_SESSIONS);
}

/* The queue session of that name, moved to the front; queue sessions that are of no more use are
 * left. */
static struct shmq_queue_session *find_queue_session(struct shmq_session *session,
                                                     struct shmq_name name)
{
    struct shmq_queue_session **at = &session->queue_sessions, *queue_session;
    uint32_t idle = 0;

    while ((queue_session = *at)) {
        if (is_called(queue_session->queue, name) && is_open(queue_session->queue)) {
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
                                                     struct shmq_attached_queue *queue)
{
    struct shmq_queue_session *queue_session = calloc(1, sizeof *queue_session);

    if (!queue_session)
        return NULL;
    queue_session->queue = queue;
    queue_session->session = session;
    queue_session->first = queue_session->last = SHMQ_NIL;
    queue_session->next = session->queue_sessions;
    session->queue_sessions = queue_session;
    queue->users++;
    return queue_session;
}

static uint8_t ask_rights(struct shmq_session *session, struct shmq_name name)
{
    char text[SHMQ_NAME_MAX + 1] = {0};

    memcpy(text, name.at, name.bytes);
    return session->engine->hooks->rights(session, text);
}

static void tell_refused(struct shmq_session *session, struct shmq_name name, uint8_t right)
{
    char text[SHMQ_NAME_MAX + 1] = {0};

    memcpy(text, name.at, name.bytes);
    session->engine->hooks->refused(session, session->type, text, right);
}

/* The same, whatever the session's rights to it, as long as it has any. */
static struct shmq_queue_session *enter_queue(struct shmq_session *session, struct shmq_name name,
                                              uint16_t *status)
{
    struct shmq_queue_session *queue_session = session->queue_sessions;
    struct shmq_attached_queue *queue;
    uint8_t rights;

    if (!queue_session || !is_called(queue_session->queue, name) || !is_open(queue_session->queue))
        queue_session = find_queue_session(session, name);
    if (queue_session && queue_session->rights != SHMQ_NOT_ASKED)
        return queue_session;
    *status = SHMQ_S_NO_QUEUE;
    if (!(rights = ask_rights(session, name))) {
        tell_refused(session, name, 0);
        return NULL;
    }
    if (!queue_session && !(queue = open_attached_queue(session, name, status)))
        return NULL;
    *status = SHMQ_S_INTERNAL;
    if (queue_session || (queue_session = take_queue_session(session, queue)))
        queue_session->rights = rights;
    return queue_session;
}

/* Whether the queue session may lease and wait: a queue that ends by itself knows its consumers. */
static bool is_consumer(struct shmq_queue_session *queue_session, uint16_t *status)
{
    struct shmq_attached_queue *queue = queue_session->queue;
    struct shmq_session *session = queue_session->session;
    const struct shmq_options *o = &queue->q->h->options;

    if (queue_session->consumes ||
        !(shmq_policies_now(queue->q->h)->expires || o->auto_delete || o->exclusive))
        return true;
    *status = session->engine->hooks->consume(session, queue, session->engine->why);
    queue_session->consumes = !*status;
    if (*status == SHMQ_S_BUSY)
        (void)shmq_park_at(session, queue, NULL);
    return queue_session->consumes;
}

struct shmq_queue_session *shmq_looking_session_at(struct shmq_session *session,
                                                   struct shmq_name name, enum shmq_right right,
                                                   uint16_t *status)
{
    struct shmq_queue_session *queue_session;

    session->engine->why[0] = 0;
    if (!(queue_session = enter_queue(session, name, status)))
        return NULL;
    *status = queue_session->rights & right ? SHMQ_S_OK : SHMQ_S_FORBIDDEN;
    if (*status == SHMQ_S_OK)
        return queue_session;
    tell_refused(session, name, (uint8_t)right);
    return NULL;
}

struct shmq_queue_session *shmq_queue_session_at(struct shmq_session *session,
                                                 struct shmq_name name, enum shmq_right right,
                                                 uint16_t *status)
{
    struct shmq_queue_session *found = shmq_looking_session_at(session, name, right, status);

    if (found && right == SHMQ_MAY_CONSUME && !is_consumer(found, status))
        return NULL;
    return found;
}
