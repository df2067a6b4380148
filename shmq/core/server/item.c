#include "server/requests.h"

#include <errno.h>

#include "queue/change_hints.h"
#include "server/server.h"

/* ---- reading ---- */

const char *shmq_read_item(struct shmq_reader *r, struct shmq_item *item)
{
    const unsigned char *meta;
    uint32_t bytes;

    memset(item, 0, sizeof *item);
    item->flags = shmq_read8(r);
    if (!(item->flags & SHMQ_FLAG_PROPERTIES))
        return r->bad ? "behind the name is u8 flags" : NULL;
    bytes = shmq_read32(r);
    if (!(meta = shmq_read_bytes(r, bytes)))
        return "the properties are longer than the frame";
    item->put.meta = meta;
    item->put.meta_bytes = bytes;
    return shmq_properties_read(meta, bytes, &item->properties);
}

static bool refuse_item(struct shmq_item *item, uint16_t status, const char *why)
{
    item->status = status;
    item->why = why;
    return false;
}

/* Whether its journal takes what is to be on disk; what is in the queue already waits. */
static bool admit_durable(const struct shmq_queue *q, struct shmq_item *item)
{
    uint32_t error = shmq_journal_error(q);

    if (!q->journaled)
        return refuse_item(item, SHMQ_S_UNSUPPORTED, SHMQ_WHY_NO_JOURNAL);
    if (error == ENOSPC || error == EDQUOT)
        return refuse_item(item, SHMQ_S_NO_SPACE,
                           "the disk of the queue's journal is full: nothing was taken");
    if (error)
        return refuse_item(item, SHMQ_S_INTERNAL,
                           "the disk of the queue's journal fails: nothing was taken");
    return true;
}

bool shmq_admit_item(const struct shmq_queue_session *queue_session, struct shmq_item *item)
{
    const struct shmq_queue *q = queue_session->queue->q;
    const char *why;

    item->put.priority = q->middle;
    if (item->put.meta &&
        (why = shmq_properties_apply(q, &item->properties, &item->put, item->hash)))
        return refuse_item(item, SHMQ_S_BAD_REQUEST, why);
    if (shmq_policies_now(q->h)->confirm)
        item->flags |= SHMQ_FLAG_DURABLE;
    if (item->flags & SHMQ_FLAG_DURABLE && !admit_durable(q, item))
        return false;
    if (shmq_fits(q, item->put.body_bytes, item->put.meta_bytes) != SHMQ_OK)
        return refuse_item(item, SHMQ_S_TOO_LARGE, NULL);
    return true;
}

static void durable_reply_item(struct shmq_session *session, struct shmq_attached_queue *queue,
                               const struct shmq_item *item)
{
    struct shmq_durable_reply durable_reply = {.id = item->id, .status = item->status};

    if (!shmq_item_is_refused(item)) {
        durable_reply.queue = queue;
        durable_reply.seq = item->seq;
        durable_reply.bytes = 8;
        shmq_store64(durable_reply.payload, item->seq);
    }
    shmq_durable_reply(session, &durable_reply, item->why);
}

void shmq_answer_item(struct shmq_session *session, struct shmq_attached_queue *queue,
                      const struct shmq_item *item)
{
    unsigned char seq[8];

    if (!item->id)
        return;
    if (item->flags & SHMQ_FLAG_DURABLE) {
        durable_reply_item(session, queue, item);
        return;
    }
    if (shmq_item_is_refused(item)) {
        shmq_refuse_request(session, item->id, item->status, item->why);
        return;
    }
    shmq_store64(seq, item->seq);
    shmq_reply(session, item->id, item->status, seq, sizeof seq);
}
