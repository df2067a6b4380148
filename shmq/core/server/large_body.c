#include "server/requests.h"

#include "queue/slot.h"
#include "server/server.h"

/* Reserves the space: SHMQ_OK, SHMQ_DUPLICATE, or the error. */
static int reserve(struct shmq_attached_queue *queue, struct shmq_item *item,
                   struct shmq_view *view)
{
    int outcome = shmq_attached_queue_lock(queue, true);

    if (outcome != SHMQ_OK)
        return outcome;
    outcome = shmq_reserve(queue->q, item->put.body_bytes, item->put.meta_bytes, shmq_now(),
                           item->put.dedupe, view, &item->seq);
    shmq_attached_queue_unlock(queue);
    return outcome;
}

static void write_meta(struct shmq_attached_queue *queue, const struct shmq_item *item,
                       const struct shmq_view *view)
{
    struct shmq_slot *s = &queue->q->slots[view->at];
    unsigned char *meta = item->put.meta_bytes ? shmq_put_meta_of(queue->q, s) : NULL;

    if (meta)
        memcpy(meta, item->put.meta, item->put.meta_bytes);
}

/* Space for the body, with the properties behind it, or NULL and the item's status. */
static unsigned char *make_space(struct shmq_attached_queue *queue, struct shmq_item *item,
                                 uint64_t *receipt)
{
    struct shmq_view view;
    int outcome = reserve(queue, item, &view);

    if (outcome == SHMQ_FULL && shmq_attached_queue_tend(queue))
        outcome = reserve(queue, item, &view);
    item->status = shmq_attached_queue_status(queue, outcome);
    if (item->status)
        return NULL;
    *receipt = view.receipt;
    write_meta(queue, item, &view);
    return (unsigned char *)view.body;
}

static void commit(struct shmq_attached_queue *queue, struct shmq_item *item, uint64_t receipt)
{
    int outcome = shmq_attached_queue_lock(queue, true);

    shmq_mark();
    if (outcome == SHMQ_OK) {
        outcome = shmq_fill(queue->q, receipt, &item->put, shmq_now(), &item->seq);
        shmq_attached_queue_unlock(queue);
    }
    item->status = outcome == SHMQ_STALE ? SHMQ_S_INTERNAL
                                         : shmq_attached_queue_status(queue, outcome);
}

/* Releases the space at once, or as soon as the lock is free. */
static void abandon(struct shmq_attached_queue *queue, uint64_t receipt)
{
    int outcome = shmq_attached_queue_lock(queue, true);

    if (outcome == SHMQ_BUSY)
        shmq_attached_queue_owe(queue, SHMQ_ABANDON_IT, receipt);
    if (outcome != SHMQ_OK)
        return;
    (void)shmq_abandon(queue->q, receipt);
    shmq_attached_queue_unlock(queue);
}

void shmq_put_large(struct shmq_attached_queue *queue, struct shmq_item *item)
{
    uint64_t receipt;
    unsigned char *space = make_space(queue, item, &receipt);

    if (!space)
        return;
    memcpy(space, item->put.body, item->put.body_bytes);
    commit(queue, item, receipt);
    if (item->status == SHMQ_S_BUSY)
        abandon(queue, receipt);
}

/* ---- as it comes ---- */

/* Reads everything before the body: whether it is there and well-formed. A malformed frame is
 * refused once it is whole. */
static bool read_prefix(const struct shmq_frame *frame, const struct shmq_frames *frames,
                        struct shmq_name *name, struct shmq_item *item, const unsigned char **body)
{
    const unsigned char *payload = frames->at + SHMQ_FRAME_HEADER;
    struct shmq_reader r = {payload, frames->end, false};

    if (!shmq_read_name(&r, name) || shmq_read_item(&r, item) ||
        item->flags & ~(SHMQ_FLAG_PROPERTIES | SHMQ_FLAG_DURABLE) ||
        (size_t)(r.at - payload) > frame->length)
        return false;
    item->id = frame->id;
    item->put.body_bytes = frame->length - (size_t)(r.at - payload);
    *body = r.at;
    return item->put.body_bytes >= SHMQ_DIRECT;
}

/* Decides whether the body is put or refused; the queue session is NULL if there is none. */
static void decide(struct shmq_large_body *large_body, struct shmq_session *session,
                   struct shmq_name name, struct shmq_item *item)
{
    struct shmq_queue_session *queue_session;

    session->type = SHMQ_T_PRODUCE;
    queue_session = shmq_queue_session_at(session, name, SHMQ_MAY_PRODUCE, &item->status);
    large_body->queue_session = queue_session;
    large_body->next = NULL;
    if (queue_session && shmq_admit_item(queue_session, item))
        large_body->next = make_space(queue_session->queue, item, &large_body->receipt);
}

static void receive(struct shmq_large_body *large_body, size_t size)
{
    if (large_body->next)
        large_body->next += size;
    large_body->left -= (uint32_t)size;
}

bool shmq_large_body_begin(struct shmq_session *session, const struct shmq_frame *frame,
                           struct shmq_frames *frames)
{
    struct shmq_large_body *large_body = &session->large_body;
    const unsigned char *body;
    struct shmq_name name;
    struct shmq_item *item = &large_body->item;
    size_t there;

    if (frame->type != SHMQ_T_PRODUCE || session->engine->draining ||
        !read_prefix(frame, frames, &name, item, &body))
        return false;
    decide(large_body, session, name, item);
    if (session->unread || (item->status == SHMQ_S_BUSY && large_body->queue_session &&
                            shmq_park_at(session, large_body->queue_session->queue, NULL)))
        return false;
    there = (size_t)(frames->end - body);
    large_body->active = true;
    large_body->left = (uint32_t)item->put.body_bytes;
    if (large_body->next && there)
        memcpy(large_body->next, body, there);
    receive(large_body, there);
    item->put.meta = NULL; /* it is in the queue, and does not stay where it was read */
    item->properties = (struct shmq_properties){0};
    frames->at = frames->end;
    return true;
}

unsigned char *shmq_large_body_space(struct shmq_session *session, size_t *size)
{
    struct shmq_large_body *large_body = &session->large_body;

    *size = large_body->left;
    if (large_body->next)
        return large_body->next;
    if (*size > SHMQ_SCRATCH)
        *size = SHMQ_SCRATCH;
    return session->engine->scratch;
}

bool shmq_large_body_received(struct shmq_session *session, size_t size)
{
    struct shmq_large_body *large_body = &session->large_body;

    receive(large_body, size);
    if (large_body->left)
        return false;
    if (large_body->next)
        commit(large_body->queue_session->queue, &large_body->item, large_body->receipt);
    if (large_body->next && large_body->item.status == SHMQ_S_BUSY) {
        if (shmq_park_at(session, large_body->queue_session->queue, NULL))
            return false;
        abandon(large_body->queue_session->queue, large_body->receipt);
    }
    large_body->active = false;
    shmq_answer_item(session, large_body->queue_session ? large_body->queue_session->queue : NULL,
                     &large_body->item);
    return true;
}

void shmq_large_body_drop(struct shmq_session *session)
{
    struct shmq_large_body *large_body = &session->large_body;

    if (large_body->active && large_body->next)
        abandon(large_body->queue_session->queue, large_body->receipt);
    large_body->active = false;
}
