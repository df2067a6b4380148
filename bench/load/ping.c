/* Round trips: PING, and bare bytes for an echo server. */
#include <string.h>

#include "frame.h"
#include "works.h"

/* The largest payload of a PING. */
#define MOST 64

static size_t payload_of(const struct line *line)
{
    size_t size = line->crew->plan->size;

    return size < MOST ? size : MOST;
}

/* ---- PING ---- */

static void ping_open(struct line *line)
{
    size_t size = payload_of(line), frame = SHMQ_FRAME_HEADER + size;

    line_room(line, frame * line->crew->window);
    for (unsigned n = 0; n < line->crew->window; n++)
        body_make(frame_begin(line->out + n * frame, SHMQ_T_PING, 0, size), size, 0);
}

static void ping_ask(struct line *line)
{
    struct crew *crew = line->crew;

    for (; line->free && crew->next < crew->ledger.most; line->free--, crew->next++) {
        uint8_t *frame = line_place(line, SHMQ_FRAME_HEADER + payload_of(line));

        shmq_store32(frame + 12, (uint32_t)line_ask(line) + 1);
        body_number(frame + SHMQ_FRAME_HEADER, crew->base + crew->next);
    }
}

static size_t ping_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct frame frame;
    size_t used = frame_read(&frame, data, length);

    if (!used)
        return 0;
    frame_expect(&frame, (uint32_t)line_answer(line) + 1, SHMQ_S_OK);
    body_check(line->crew, frame.payload, frame.length);
    line->free++;
    line->crew->done++;
    return used;
}

const struct work ping = {
    .name = "ping", .open = ping_open, .ask = ping_ask, .hear = ping_hear,
};

/* ---- bare bytes ---- */

static void echo_open(struct line *line)
{
    size_t size = line->crew->plan->size;

    line_room(line, size * line->crew->window);
    for (unsigned n = 0; n < line->crew->window; n++)
        body_make(line->out + n * size, size, 0);
}

static void echo_ask(struct line *line)
{
    struct crew *crew = line->crew;

    for (; line->free && crew->next < crew->ledger.most; line->free--, crew->next++) {
        line_ask(line);
        body_number(line_place(line, crew->plan->size), crew->base + crew->next);
    }
}

static size_t echo_hear(struct line *line, const uint8_t *data, size_t length)
{
    size_t size = line->crew->plan->size;

    if (length < size)
        return 0;
    line_answer(line);
    body_check(line->crew, data, size);
    line->free++;
    line->crew->done++;
    return size;
}

const struct work echo = {
    .name = "echo", .open = echo_open, .ask = echo_ask, .hear = echo_hear,
};
