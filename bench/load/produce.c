/* PRODUCE and PRODUCE_BATCH. A connection's output is a ring of frames that are made once:
 * each request changes only its id and the numbers of its bodies. */
#include <string.h>

#include "frame.h"
#include "queue.h"
#include "works.h"

/* Record an answer: `sequence` is the first sequence number of `count` messages. */
static void told(struct line *line, uint64_t sequence, uint64_t count)
{
    struct crew *crew = line->crew;

    if (sequence <= line->last)
        fail("sequence number %llu was told after %llu", (unsigned long long)sequence,
             (unsigned long long)line->last);
    ledger_tell(&crew->ledger, sequence);
    line->last = sequence + count - 1;
    line->free += count;
    crew->done += count;
}

/* The flags of a request: whether it is answered only once it is on disk. */
static uint8_t confirm(const struct plan *plan)
{
    return plan->files ? 0x02 : 0;
}

/* ---- PRODUCE ---- */

static size_t head_of(const struct line *line)
{
    return SHMQ_FRAME_HEADER + 2 + strlen(line->crew->plan->queue) + 1;
}

static void produce_open(struct line *line)
{
    const struct plan *plan = line->crew->plan;
    size_t head = head_of(line), frame = head + plan->size;

    line_room(line, frame * line->crew->window);
    for (unsigned n = 0; n < line->crew->window; n++) {
        uint8_t *at = frame_begin(line->out + n * frame, SHMQ_T_PRODUCE, 0,
                                  frame - SHMQ_FRAME_HEADER);

        at = frame_name(at, plan->queue);
        *at++ = confirm(plan);
        body_make(at, plan->size, 0);
    }
}

static void produce_ask(struct line *line)
{
    struct crew *crew = line->crew;
    size_t head = head_of(line), size = crew->plan->size;

    for (; line->free && crew->next < crew->ledger.most; line->free--, crew->next++) {
        uint8_t *frame = line_place(line, head + size);

        shmq_store32(frame + 12, (uint32_t)line_ask(line) + 1);
        body_number(frame + head, crew->base + crew->next);
    }
}

static size_t produce_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct frame frame;
    size_t used = frame_read(&frame, data, length);

    if (!used)
        return 0;
    frame_expect(&frame, (uint32_t)line_answer(line) + 1, SHMQ_S_OK);
    if (frame.length != 8)
        fail("the answer to a PRODUCE has %zu bytes", frame.length);
    told(line, shmq_load64(frame.payload), 1);
    return used;
}

const struct work produce = {
    .name = "produce",
    .partner = "consume",
    .ready = queue_create,
    .leave = queue_delete,
    .open = produce_open,
    .ask = produce_ask,
    .hear = produce_hear,
};

/* ---- PRODUCE_BATCH ---- */

/* Bytes before a body, in a batch. */
#define ITEM 5u

static size_t batch_head(const struct line *line)
{
    return head_of(line) + 4;
}

static size_t batch_frame(const struct line *line)
{
    return batch_head(line) + line->crew->batch * (ITEM + line->crew->plan->size);
}

static void batch_open(struct line *line)
{
    const struct plan *plan = line->crew->plan;
    size_t frame = batch_frame(line);
    unsigned frames = line->crew->window / line->crew->batch;

    line_room(line, frame * (frames ? frames : 1));
    if (!frames)
        line->free = line->crew->batch;
    for (uint8_t *from = line->out; from < line->out + line->room; from += frame) {
        uint8_t *at = frame_begin(from, SHMQ_T_PRODUCE_BATCH, 0, frame - SHMQ_FRAME_HEADER);

        at = frame_name(at, plan->queue);
        *at++ = confirm(plan);
        at = shmq_store32(at, line->crew->batch);
        for (unsigned n = 0; n < line->crew->batch; n++) {
            *at++ = 0;
            at = shmq_store32(at, (uint32_t)plan->size);
            body_make(at, plan->size, 0);
            at += plan->size;
        }
    }
}

static void batch_ask(struct line *line)
{
    struct crew *crew = line->crew;
    size_t head = batch_head(line), frame = batch_frame(line), size = crew->plan->size;

    for (; line->free >= crew->batch && crew->next < crew->ledger.most; line->free -= crew->batch) {
        uint8_t *from = line_place(line, frame), *body = from + head + ITEM;

        shmq_store32(from + 12, (uint32_t)line_ask(line) + 1);
        for (unsigned n = 0; n < crew->batch; n++, body += ITEM + size)
            body_number(body, crew->base + crew->next++);
    }
}

static size_t batch_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct frame frame;
    size_t used = frame_read(&frame, data, length);

    if (!used)
        return 0;
    frame_expect(&frame, (uint32_t)line_answer(line) + 1, SHMQ_S_OK);
    if (frame.length != 12)
        fail("the answer to a PRODUCE_BATCH has %zu bytes", frame.length);
    if (shmq_load32(frame.payload) != line->crew->batch)
        fail("%u messages of a batch of %u were accepted", shmq_load32(frame.payload),
             line->crew->batch);
    told(line, shmq_load64(frame.payload + 4), line->crew->batch);
    return used;
}

const struct work batch = {
    .name = "batch",
    .partner = "consume",
    .ready = queue_create,
    .leave = queue_delete,
    .open = batch_open,
    .ask = batch_ask,
    .hear = batch_hear,
};
