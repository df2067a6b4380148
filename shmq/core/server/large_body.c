#include "server/large_body.h"

#include "server/connection.h"
#include "queue/slot.h"

/* Reserves the space: SHMQ_OK, SHMQ_DUPLICATE, or why not. */
static int reserve(struct shmq_desk *desk, struct shmq_item *item, struct shmq_view *view)
{
    int outcome = shmq_desk_lock(desk, true);

    if (outcome != SHMQ_OK)
        return outcome;
    outcome = shmq_reserve(desk->q, item->put.body_bytes, item->put.meta_bytes, shmq_now(),
                           item->put.dedupe, view, &item->seq);
    shmq_desk_unlock(desk);
    return outcome;
}

static void write_meta(struct shmq_desk *desk, const struct shmq_item *item,
                       const struct shmq_view *view)
{
    struct shmq_slot *s = &desk->q->slots[view->at];
    unsigned char *meta = item->put.meta_bytes ? shmq_meta_of(desk->q, s) : NULL;

    if (meta)
        memcpy(meta, item->put.meta, item->put.meta_bytes);
}

/* Space for the body, with the properties behind it, or NULL and the item's status. */
static unsigned char *make_space(struct shmq_desk *desk, struct shmq_item *item, uint64_t *receipt)
{
    struct shmq_view view;
    int outcome = reserve(desk, item, &view);

    if (outcome == SHMQ_FULL && shmq_desk_tend(desk))
        outcome = reserve(desk, item, &view);
    item->status = shmq_desk_status(desk, outcome);
    if (item->status)
        return NULL;
    *receipt = view.receipt;
    write_meta(desk, item, &view);
    return (unsigned char *)view.body;
}

static void commit(struct shmq_desk *desk, struct shmq_item *item, uint64_t receipt)
{
    int outcome = shmq_desk_lock(desk, true);

    shmq_mark();
    if (outcome == SHMQ_OK) {
        outcome = shmq_fill(desk->q, receipt, &item->put, shmq_now(), &item->seq);
        shmq_desk_unlock(desk);
    }
    item->status = outcome == SHMQ_STALE ? SHMQ_S_INTERNAL : shmq_desk_status(desk, outcome);
}

/* The space goes back at once, or as soon as the lock can be had. */
static void abandon(struct shmq_desk *desk, uint64_t receipt)
{
    int outcome = shmq_desk_lock(desk, true);

    if (outcome == SHMQ_BUSY)
        shmq_desk_owe(desk, SHMQ_ABANDON_IT, receipt);
    if (outcome != SHMQ_OK)
        return;
    (void)shmq_abandon(desk->q, receipt);
    shmq_desk_unlock(desk);
}

void shmq_put_large(struct shmq_desk *desk, struct shmq_item *item)
{
    uint64_t receipt;
    unsigned char *place = make_space(desk, item, &receipt);

    if (!place)
        return;
    memcpy(place, item->put.body, item->put.body_bytes);
    commit(desk, item, receipt);
    if (item->status == SHMQ_S_BUSY)
        abandon(desk, receipt);
}

/* ---- as it comes ---- */

/* Reads all before the body: whether it is there and of good form. What is not is left to be
 * refused once the frame is whole. */
static bool read_prefix(const struct shmq_frame *frame, const struct shmq_frames *frames,
                        struct shmq_name *name, struct shmq_item *item, const unsigned char **body)
{
    const unsigned char *payload = frames->at + SHMQ_FRAME_HEADER;
    struct shmq_reader r = {payload, frames->end, false};

    if (!shmq_read_name(&r, name) || shmq_read_item(&r, item) ||
        item->flags & ~(SHMQ_WITH_PROPERTIES | SHMQ_WHEN_DURABLE) ||
        (size_t)(r.at - payload) > frame->length)
        return false;
    item->id = frame->id;
    item->put.body_bytes = frame->length - (size_t)(r.at - payload);
    *body = r.at;
    return item->put.body_bytes >= SHMQ_DIRECT;
}

/* Decides what becomes of the body; the seat is NULL if there is none. */
static void decide(struct shmq_filling *filling, struct shmq_session *session,
                   struct shmq_name name, struct shmq_item *item)
{
    struct shmq_seat *seat = shmq_seat_at(session, name, &item->status);

    filling->seat = seat;
    filling->place = NULL;
    if (seat && shmq_admit_item(seat, item))
        filling->place = make_space(seat->desk, item, &filling->receipt);
}

static void receive(struct shmq_filling *filling, size_t size)
{
    if (filling->place)
        filling->place += size;
    filling->left -= (uint32_t)size;
}

bool shmq_filling_begin(struct shmq_session *session, const struct shmq_frame *frame,
                        struct shmq_frames *frames)
{
    struct shmq_filling *filling = &session->filling;
    const unsigned char *body;
    struct shmq_name name;
    struct shmq_item *item = &filling->item;
    size_t there;

    if (frame->type != SHMQ_T_PRODUCE || session->front->draining ||
        !read_prefix(frame, frames, &name, item, &body))
        return false;
    decide(filling, session, name, item);
    if (session->unread || (item->status == SHMQ_S_BUSY && filling->seat &&
                            shmq_park_at(session, filling->seat->desk, NULL)))
        return false;
    there = (size_t)(frames->end - body);
    filling->active = true;
    filling->left = (uint32_t)item->put.body_bytes;
    if (filling->place && there)
        memcpy(filling->place, body, there);
    receive(filling, there);
    item->put.meta = NULL; /* it is in the queue, and does not stay where it was read */
    item->properties = (struct shmq_properties){0};
    frames->at = frames->end;
    return true;
}

unsigned char *shmq_filling_space(struct shmq_session *session, size_t *size)
{
    struct shmq_filling *filling = &session->filling;

    *size = filling->left;
    if (filling->place)
        return filling->place;
    if (*size > SHMQ_SCRATCH)
        *size = SHMQ_SCRATCH;
    return session->front->scratch;
}

bool shmq_filling_received(struct shmq_session *session, size_t size)
{
    struct shmq_filling *filling = &session->filling;

    receive(filling, size);
    if (filling->left)
        return false;
    if (filling->place)
        commit(filling->seat->desk, &filling->item, filling->receipt);
    if (filling->place && filling->item.status == SHMQ_S_BUSY) {
        if (shmq_park_at(session, filling->seat->desk, NULL))
            return false;
        abandon(filling->seat->desk, filling->receipt);
    }
    filling->active = false;
    shmq_answer_item(session, filling->seat ? filling->seat->desk : NULL, &filling->item);
    return true;
}

void shmq_filling_drop(struct shmq_session *session)
{
    struct shmq_filling *filling = &session->filling;

    if (filling->active && filling->place)
        abandon(filling->seat->desk, filling->receipt);
    filling->active = false;
}
