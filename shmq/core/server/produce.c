#include "server/requests.h"

#include "queue/lock.h"
#include "queue/put_ring.h"
#include "server/server.h"

#define MOST_COPIED (1u << 20) /* bytes copied in one critical section */

static const char no_such_flag[] = "no such flag exists";

/* ---- putting ---- */

static void set_body(struct shmq_item *item, const unsigned char *body, size_t bytes)
{
    item->put.body = body;
    item->put.body_bytes = bytes;
}

static bool is_large(const struct shmq_item *item) { return item->put.body_bytes >= SHMQ_DIRECT; }

/* Puts what it can without the get-side lock, from the first on; returns how many. */
static uint32_t put_quickly(struct shmq_attached_queue *queue, struct shmq_item *items,
                            uint32_t count)
{
    struct shmq_queue *q = queue->q;
    uint32_t done = 0;
    uint64_t copied = 0;
    int64_t now;

    if (is_large(&items[0]) || !shmq_is_plain(q, &items[0].put) || shmq_lock_puts(q) != SHMQ_OK)
        return 0;
    now = shmq_time_of_put(q, &items[0].put);
    while (done < count && copied < MOST_COPIED && !is_large(&items[done]) &&
           shmq_quick_put(q, &items[done].put, now, &items[done].seq) == SHMQ_OK) {
        copied += items[done].put.body_bytes;
        done++;
    }
    shmq_attached_queue_unlock_puts(queue);
    return done;
}

/* Puts under both locks until one is refused; returns how many were put. */
static uint32_t put_wholly(struct shmq_attached_queue *queue, struct shmq_item *items,
                           uint32_t count)
{
    uint64_t copied = 0;
    uint32_t done = 0;
    int64_t now;
    int outcome = shmq_attached_queue_lock(queue, true);

    if (outcome != SHMQ_OK) {
        items[0].status = shmq_attached_queue_status(queue, outcome);
        return 0;
    }
    now = shmq_now();
    while (done < count && copied < MOST_COPIED && !is_large(&items[done])) {
        outcome = shmq_put(queue->q, &items[done].put, now, &items[done].seq);
        if (outcome != SHMQ_OK && outcome != SHMQ_DUPLICATE)
            break;
        items[done].status = outcome == SHMQ_OK ? SHMQ_S_OK : SHMQ_S_DUPLICATE;
        copied += items[done].put.body_bytes;
        done++;
        outcome = SHMQ_OK;
    }
    shmq_attached_queue_unlock(queue);
    if (outcome != SHMQ_OK)
        items[done].status = shmq_attached_queue_status(queue, outcome);
    return done;
}

static uint32_t put_more(struct shmq_attached_queue *queue, struct shmq_item *items, uint32_t count)
{
    uint32_t done;

    if (is_large(&items[0])) {
        shmq_put_large(queue, &items[0]);
        return shmq_item_is_refused(&items[0]) ? 0 : 1;
    }
    done = put_quickly(queue, items, count);
    return done ? done : put_wholly(queue, items, count);
}

/* Puts admitted items until one is refused; returns how many were put. A full queue is tried once
 * more after what dead processes held was freed. */
static uint32_t put_some(struct shmq_attached_queue *queue, struct shmq_item *items, uint32_t count)
{
    uint32_t done = 0;

    while (done < count) {
        struct shmq_item *next;

        done += put_more(queue, items + done, count - done);
        next = &items[done];
        if (done == count || !shmq_item_is_refused(next))
            continue;
        if (next->status != SHMQ_S_QUEUE_FULL || !shmq_attached_queue_tend(queue))
            break;
        next->status = SHMQ_S_OK;
    }
    return done;
}

/* ---- PRODUCE ---- */

/* Reads a whole PRODUCE: NULL, or what is wrong with its form. */
static const char *read_produce(const struct shmq_frame *frame, const unsigned char *payload,
                                struct shmq_name *name, struct shmq_item *item)
{
    struct shmq_reader r = {payload, payload + frame->length, false};
    const char *why;

    memset(item, 0, sizeof *item);
    if (!shmq_read_name(&r, name))
        why = SHMQ_WHY_NAME;
    else
        why = shmq_read_item(&r, item);
    item->id = frame->id;
    item->from = payload - SHMQ_FRAME_HEADER;
    if (!why)
        set_body(item, r.at, shmq_left(&r));
    return why;
}

static bool has_good_flags(const struct shmq_item *item, uint8_t known)
{
    return !(item->flags & ~known);
}

#define KNOWN_FLAGS (SHMQ_FLAG_PROPERTIES | SHMQ_FLAG_DURABLE)

/* Gathers PRODUCEs to the same queue that follow and are admitted. */
static uint32_t gather(struct shmq_queue_session *queue_session, struct shmq_name name,
                       struct shmq_item *items, struct shmq_frames *frames)
{
    struct shmq_frame frame;
    struct shmq_name other;
    uint32_t count = 1;

    while (count < SHMQ_RUN &&
           shmq_next_is(queue_session->session, frames, SHMQ_T_PRODUCE, &frame)) {
        const unsigned char *payload = frames->at + SHMQ_FRAME_HEADER;
        struct shmq_item *item = &items[count];

        if (read_produce(&frame, payload, &other, item) || !shmq_same_name(name, other) ||
            !has_good_flags(item, KNOWN_FLAGS) || !shmq_admit_item(queue_session, item))
            break;
        frames->at = payload + frame.length;
        count++;
    }
    return count;
}

static void answer_items(struct shmq_queue_session *queue_session, const struct shmq_item *items,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        shmq_answer_item(queue_session->session, queue_session->queue, &items[i]);
}

/* Each PRODUCE is answered by itself: a refused one holds back none behind it. One that must
 * wait for the lock is put back, with all that follow it. */
static void put_run(struct shmq_queue_session *queue_session, struct shmq_item *items,
                    uint32_t count)
{
    uint32_t done = 0;

    while (done < count && !queue_session->queue->gone) {
        done += put_some(queue_session->queue, items + done, count - done);
        if (done < count && items[done].status == SHMQ_S_BUSY &&
            shmq_attached_queue_is_awaited(queue_session->queue)) {
            answer_items(queue_session, items, done);
            (void)shmq_park_at(queue_session->session, queue_session->queue, items[done].from);
            return;
        }
        done += done < count;
    }
    for (uint32_t i = done; i < count; i++)
        items[i].status = SHMQ_S_NO_QUEUE;
    answer_items(queue_session, items, count);
}

/* Refuses it before anything was asked of the queue; in order with what else has the flag. */
static void refuse_frame(struct shmq_session *session, uint32_t id, uint8_t flags, uint16_t status,
                         const char *why)
{
    struct shmq_durable_reply durable_reply = {.id = id, .status = status};

    if (id && flags & SHMQ_FLAG_DURABLE)
        shmq_durable_reply(session, &durable_reply, why);
    else
        shmq_refuse_if_asked(session, id, status, why);
}

bool shmq_refuse_durable(struct shmq_session *session, const struct shmq_frame *frame,
                         const unsigned char *payload)
{
    struct shmq_reader r = {payload, payload + frame->length, false};
    struct shmq_name name;

    if (frame->type != SHMQ_T_PRODUCE && frame->type != SHMQ_T_PRODUCE_BATCH)
        return false;
    if (!shmq_read_name(&r, &name) || !(shmq_read8(&r) & SHMQ_FLAG_DURABLE))
        return false;
    refuse_frame(session, frame->id, SHMQ_FLAG_DURABLE, SHMQ_S_SHUTTING_DOWN, NULL);
    return true;
}

void shmq_carry_out_produce(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload, struct shmq_frames *frames)
{
    struct shmq_item items[SHMQ_RUN];
    struct shmq_queue_session *queue_session;
    struct shmq_name name;
    uint16_t status;
    const char *why = read_produce(frame, payload, &name, &items[0]);

    if (why)
        refuse_frame(session, frame->id, items[0].flags, SHMQ_S_BAD_REQUEST, why);
    else if (!has_good_flags(&items[0], KNOWN_FLAGS))
        refuse_frame(session, frame->id, items[0].flags, SHMQ_S_UNSUPPORTED, no_such_flag);
    else if (!(queue_session = shmq_queue_session_at(session, name, SHMQ_MAY_PRODUCE, &status)))
        refuse_frame(session, frame->id, items[0].flags, status, NULL);
    else if (!shmq_admit_item(queue_session, &items[0]))
        shmq_answer_item(session, NULL, &items[0]);
    else
        put_run(queue_session, items, gather(queue_session, name, items, frames));
}

/* ---- PRODUCE_BATCH ---- */

/* Reads one message of a batch: NULL, or what is wrong with its form. */
static const char *read_inner(struct shmq_reader *r, struct shmq_item *item)
{
    const char *why = shmq_read_item(r, item);
    const unsigned char *body;
    uint32_t bytes;

    if (why)
        return why;
    bytes = shmq_read32(r);
    if (!(body = shmq_read_bytes(r, bytes)))
        return "a message of the batch is longer than the frame";
    set_body(item, body, bytes);
    return NULL;
}

/* Goes through a batch without putting anything: NULL, or what is wrong with its form. */
static const char *read_batch(struct shmq_reader r, uint32_t count, bool *good_flags)
{
    struct shmq_item item;

    *good_flags = true;
    for (uint32_t i = 0; i < count; i++) {
        const char *why = read_inner(&r, &item);

        if (why)
            return why;
        *good_flags = *good_flags && has_good_flags(&item, SHMQ_FLAG_PROPERTIES);
    }
    return shmq_left(&r) ? "behind the last message is nothing more" : NULL;
}

struct batch {
    uint64_t first;
    uint64_t highest;
    uint32_t accepted;
    uint32_t id;
    uint16_t status;
    uint8_t flags;
};

static void answer_batch(struct shmq_queue_session *queue_session, const struct batch *batch)
{
    struct shmq_durable_reply durable_reply = {
        .id = batch->id, .status = batch->status, .bytes = 12};

    if (!batch->id)
        return;
    shmq_store64(shmq_store32(durable_reply.payload, batch->accepted), batch->first);
    if (batch->flags & SHMQ_FLAG_DURABLE) {
        durable_reply.queue = batch->accepted ? queue_session->queue : NULL;
        durable_reply.seq = batch->highest;
        shmq_durable_reply(queue_session->session, &durable_reply, NULL);
        return;
    }
    shmq_reply(queue_session->session, batch->id, batch->status, durable_reply.payload,
               durable_reply.bytes);
}

static void count_accepted(struct batch *batch, const struct shmq_item *items, uint32_t done)
{
    if (done && !batch->accepted)
        batch->first = items[0].seq;
    for (uint32_t i = 0; i < done; i++)
        if (items[i].seq > batch->highest)
            batch->highest = items[i].seq;
    batch->accepted += done;
}

/* Reads up to `most` messages and admits them: how many, up to one that is refused, which is
 * `refusal`. */
static uint32_t next_items(struct shmq_queue_session *queue_session, struct shmq_reader *r,
                           struct shmq_item *items, uint32_t most, uint8_t flags, uint16_t *refusal)
{
    uint32_t count = 0;

    *refusal = SHMQ_S_OK;
    while (count < most) {
        (void)read_inner(r, &items[count]);
        items[count].flags |= flags;
        if (!shmq_admit_item(queue_session, &items[count])) {
            *refusal = items[count].status;
            break;
        }
        count++;
    }
    return count;
}

/* Checks the properties of a message of the batch for this queue: NULL, or the fault. Nothing is
 * put before all of them were checked. */
static const char *check_batch(const struct shmq_queue *q, struct shmq_reader r, uint32_t count)
{
    struct shmq_item item;

    for (uint32_t i = 0; i < count; i++) {
        const char *why;

        (void)read_inner(&r, &item);
        if (item.put.meta &&
            (why = shmq_properties_apply(q, &item.properties, &item.put, item.hash)))
            return why;
    }
    return NULL;
}

/* Puts them from the first on, until one is refused. */
static void put_batch(struct shmq_queue_session *queue_session, struct shmq_reader *r,
                      uint32_t count, struct batch *batch)
{
    struct shmq_item items[SHMQ_RUN];

    while (count && !batch->status) {
        uint32_t most = count < SHMQ_RUN ? count : SHMQ_RUN;
        uint16_t refusal;
        uint32_t admitted = next_items(queue_session, r, items, most, batch->flags, &refusal);
        uint32_t done = admitted ? put_some(queue_session->queue, items, admitted) : 0;

        count_accepted(batch, items, done);
        batch->status = done < admitted ? items[done].status : refusal;
        count -= most;
    }
}

void shmq_carry_out_batch(struct shmq_session *session, const struct shmq_frame *frame,
                          const unsigned char *payload)
{
    struct shmq_reader r = {payload, payload + frame->length, false};
    struct batch batch = {.id = frame->id};
    struct shmq_queue_session *queue_session;
    struct shmq_name name;
    const char *why = NULL;
    bool good_flags = true;
    uint32_t count = 0;

    if (!shmq_read_name(&r, &name)) {
        why = SHMQ_WHY_NAME;
    } else {
        batch.flags = shmq_read8(&r);
        count = shmq_read32(&r);
        why = r.bad ? "behind the name are u8 flags and u32 count"
                    : read_batch(r, count, &good_flags);
    }
    if (why)
        refuse_frame(session, frame->id, batch.flags, SHMQ_S_BAD_REQUEST, why);
    else if (!good_flags || batch.flags & ~SHMQ_FLAG_DURABLE)
        refuse_frame(session, frame->id, batch.flags, SHMQ_S_UNSUPPORTED, no_such_flag);
    else if (!(queue_session = shmq_queue_session_at(session, name, SHMQ_MAY_PRODUCE,
                                                     &batch.status)))
        refuse_frame(session, frame->id, batch.flags, batch.status, NULL);
    else if (!count)
        refuse_frame(session, frame->id, batch.flags, SHMQ_S_BAD_REQUEST,
                     "a batch has one message or more");
    else if (batch.flags & SHMQ_FLAG_DURABLE && !queue_session->queue->q->journaled)
        refuse_frame(session, frame->id, batch.flags, SHMQ_S_UNSUPPORTED, SHMQ_WHY_NO_JOURNAL);
    else if ((why = check_batch(queue_session->queue->q, r, count)))
        refuse_frame(session, frame->id, batch.flags, SHMQ_S_BAD_REQUEST, why);
    else {
        if (shmq_policies_now(queue_session->queue->q->h)->confirm)
            batch.flags |= SHMQ_FLAG_DURABLE;
        put_batch(queue_session, &r, count, &batch);
        if (batch.status != SHMQ_S_BUSY || batch.accepted ||
            !shmq_park_at(session, queue_session->queue, NULL))
            answer_batch(queue_session, &batch);
    }
}
