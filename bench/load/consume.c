/* CONSUME and SUBSCRIBE, each with acknowledgements whose answers are awaited.
 *
 * A message occupies the window from its request until its ACK is answered. */
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "queue.h"
#include "works.h"

/* A consumer's requests in flight, in the order in which they were made. */
struct request {
    uint8_t type;
    uint32_t messages; /* CONSUME: asked for, not delivered yet; ACK: receipts */
};

struct consumer {
    uint64_t mask;
    struct request *requests;
    uint32_t subscription;
    unsigned held;    /* messages that no ACK was sent for */
    unsigned unacked; /* receipts to be acknowledged with the next ACK */
    uint64_t *receipts;
};

static void consumer_open(struct line *line)
{
    struct crew *crew = line->crew;
    struct consumer *own = memory(sizeof(*own));
    size_t name = 2 + strlen(crew->plan->queue);

    if (!crew->batch || crew->batch > crew->window)
        crew->batch = crew->window;
    own->mask = line->stamp_mask;
    own->requests = memory((own->mask + 1) * sizeof(*own->requests));
    own->receipts = memory(crew->batch * sizeof(*own->receipts));
    line->own = own;
    line_room(line, (own->mask + 1) * (SHMQ_FRAME_HEADER + name + 16) + crew->window * 8ull);
}

static void say(struct line *line, uint8_t type, const uint8_t *payload, size_t length,
                uint32_t messages)
{
    struct consumer *own = line->own;
    uint64_t number = line_ask(line);
    uint8_t header[SHMQ_FRAME_HEADER];

    frame_begin(header, type, (uint32_t)number + 1, length);
    line_say(line, header, sizeof(header));
    line_say(line, payload, length);
    own->requests[number & own->mask] = (struct request){type, messages};
}

static void acknowledge(struct line *line)
{
    struct consumer *own = line->own;
    uint8_t payload[256];
    uint8_t header[SHMQ_FRAME_HEADER];
    size_t name = (size_t)(frame_name(payload, line->crew->plan->queue) - payload);
    uint64_t number;

    if (!own->unacked)
        return;
    number = line_ask(line);
    frame_begin(header, SHMQ_T_ACK, (uint32_t)number + 1, name + own->unacked * 8ull);
    line_say(line, header, sizeof(header));
    line_say(line, payload, name);
    line_say(line, own->receipts, own->unacked * 8ull);
    own->requests[number & own->mask] = (struct request){SHMQ_T_ACK, own->unacked};
    own->held -= own->unacked;
    own->unacked = 0;
}

/* Check a delivered message: it is new and whole. Then add it to the next ACK. */
static void delivered(struct line *line, const struct frame *frame)
{
    struct consumer *own = line->own;
    uint64_t sequence;

    if (frame->length < 20)
        fail("a DELIVER has %zu bytes", frame->length);
    sequence = shmq_load64(frame->payload);
    if (shmq_load16(frame->payload + 16) != 1 || frame->payload[19])
        fail("a message came with delivery count %u and flags 0x%02x",
             shmq_load16(frame->payload + 16), frame->payload[19]);
    if (sequence <= line->last)
        fail("message %llu was delivered after %llu", (unsigned long long)sequence,
             (unsigned long long)line->last);
    line->last = sequence;
    body_check(line->crew, frame->payload + 20, frame->length - 20);
    own->held++;
    memcpy(&own->receipts[own->unacked++], frame->payload + 8, 8);
    if (own->unacked == line->crew->batch)
        acknowledge(line);
}

/* The answer to the oldest request in flight is complete. */
static void answered(struct line *line, const struct frame *frame, uint16_t status)
{
    struct consumer *own = line->own;
    uint64_t number = line_answer(line);
    const struct request *request = &own->requests[number & own->mask];

    frame_expect(frame, (uint32_t)number + 1, status);
    if (frame->length && frame->status == SHMQ_S_OK)
        fail("an answer that should be empty has %zu bytes", frame->length);
    if (request->type == SHMQ_T_ACK) {
        line->crew->done += request->messages;
        line->free += request->messages;
    } else if (status == SHMQ_S_QUEUE_EMPTY && request->type == SHMQ_T_CONSUME) {
        line->free += request->messages;
        line->dry = true;
    }
}

/* ---- CONSUME ---- */

static void consume_ask(struct line *line)
{
    struct crew *crew = line->crew;
    uint8_t payload[256];
    uint8_t *at;

    acknowledge(line);
    while (line->free >= crew->batch && !line->dry && crew->done < crew->ledger.most) {
        at = frame_name(payload, crew->plan->queue);
        at = shmq_store32(at, crew->batch);
        at = shmq_store32(at, 0);
        *at++ = 0;
        say(line, SHMQ_T_CONSUME, payload, (size_t)(at - payload), crew->batch);
        line->free -= crew->batch;
    }
}

static void consume_delivered(struct line *line, const struct frame *frame)
{
    struct consumer *own = line->own;
    uint64_t number = line->answered;
    struct request *request = &own->requests[number & own->mask];

    if (number == line->asked || request->type != SHMQ_T_CONSUME
        || frame->id != (uint32_t)number + 1 || !request->messages)
        fail("a DELIVER with id %u came where another answer is due", frame->id);
    request->messages--;
    delivered(line, frame);
    if (frame->status == SHMQ_FRAME_MORE)
        return;
    if (frame->status)
        fail("a DELIVER has status %u", frame->status);
    line->free += request->messages;
    line_answer(line);
}

static size_t consume_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct consumer *own = line->own;
    struct frame frame;
    size_t used = frame_read(&frame, data, length);

    if (!used)
        return 0;
    if (frame.type == SHMQ_T_DELIVER)
        consume_delivered(line, &frame);
    else if (own->requests[line->answered & own->mask].type == SHMQ_T_CONSUME)
        answered(line, &frame, SHMQ_S_QUEUE_EMPTY);
    else
        answered(line, &frame, SHMQ_S_OK);
    return used;
}

static void consumer_begin(struct line *line)
{
    line->last = 0;
}

const struct work consume = {
    .name = "consume",
    .partner = "batch",
    .consumes = true,
    .ready = queue_create,
    .leave = queue_delete,
    .open = consumer_open,
    .begin = consumer_begin,
    .ask = consume_ask,
    .hear = consume_hear,
};

/* ---- SUBSCRIBE ---- */

static void subscribe_begin(struct line *line)
{
    struct consumer *own = line->own;
    uint8_t payload[256];
    uint8_t *at = frame_name(payload, line->crew->plan->queue);

    line->last = 0;
    at = shmq_store32(at, line->crew->window);
    *at++ = 0;
    own->subscription = (uint32_t)line->asked + 1;
    say(line, SHMQ_T_SUBSCRIBE, payload, (size_t)(at - payload), 0);
}

static void subscribe_end(struct line *line)
{
    struct consumer *own = line->own;
    uint8_t payload[4];

    shmq_store32(payload, own->subscription);
    say(line, SHMQ_T_UNSUBSCRIBE, payload, sizeof(payload), 0);
}

static size_t subscribe_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct consumer *own = line->own;
    struct frame frame;
    size_t used = frame_read(&frame, data, length);

    if (!used)
        return 0;
    if (frame.type != SHMQ_T_DELIVER) {
        answered(line, &frame, SHMQ_S_OK);
        return used;
    }
    if (frame.id != own->subscription || frame.status)
        fail("a DELIVER has id %u and status %u, the subscription %u", frame.id, frame.status,
             own->subscription);
    if (own->held == line->crew->window)
        fail("more than %u messages are unsettled", line->crew->window);
    delivered(line, &frame);
    return used;
}

const struct work subscribe = {
    .name = "subscribe",
    .partner = "batch",
    .consumes = true,
    .ready = queue_create,
    .leave = queue_delete,
    .open = consumer_open,
    .begin = subscribe_begin,
    .end = subscribe_end,
    .ask = acknowledge,
    .hear = subscribe_hear,
};
