/* Redis, a stream with a group: XADD; XREADGROUP; XACK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "works.h"

#define GROUP "group"
/* The longest id of an entry. */
#define ID 48

static const char *queue_of(const struct line *line)
{
    return line->crew->plan->queue;
}

static void leave(struct line *line)
{
    text_talk(line, ":", "DEL %s\r\n", queue_of(line));
}

static void ready(struct line *line)
{
    leave(line);
    text_talk(line, "+OK", "XGROUP CREATE %s " GROUP " 0 MKSTREAM\r\n", queue_of(line));
}

/* ---- XADD ---- */

static void add_open(struct line *line)
{
    char head[256], before[32];

    line->own = memory(sizeof(struct mould));
    snprintf(head, sizeof(head), "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nb\r\n",
             strlen(queue_of(line)), queue_of(line));
    snprintf(before, sizeof(before), "$%zu\r\n", line->crew->plan->size);
    line->crew->batch = 1;
    mould_make(line, line->own, head, before, 1);
}

static void add_ask(struct line *line)
{
    mould_ask(line, line->own);
}

/* The id of an entry, milliseconds and a number, as one number in the same order. */
static uint64_t sequence_of(const uint8_t *id)
{
    const uint8_t *after;
    uint64_t milliseconds = (uint64_t)text_number(id, &after);

    return milliseconds << 20 | (uint64_t)text_number(after + 1, NULL);
}

static size_t add_hear(struct line *line, const uint8_t *data, size_t length)
{
    size_t used = resp_length(data, length);
    uint64_t sequence;

    if (!used)
        return 0;
    if (data[0] != '$')
        text_wrong(data, used);
    sequence = sequence_of(data + text_line(data, used));
    if (sequence <= line->last)
        fail("an entry's id did not rise");
    line->last = sequence;
    ledger_tell(&line->crew->ledger, sequence);
    line_answer(line);
    line->free++;
    line->crew->done++;
    return used;
}

const struct work redis_add = {
    .name = "redis-add",
    .partner = "redis-group",
    .ready = ready,
    .leave = leave,
    .open = add_open,
    .ask = add_ask,
    .hear = add_hear,
};

/* ---- XREADGROUP and XACK ---- */

enum { READ, ACK, TRIM };

struct reader {
    uint64_t mask;
    struct { uint8_t type; uint32_t messages; } *requests;
    unsigned unacked;
    char (*ids)[ID];
};

static void group_open(struct line *line)
{
    struct crew *crew = line->crew;
    struct reader *own = memory(sizeof(*own));

    if (crew->batch > crew->window)
        crew->batch = crew->window;
    own->mask = line->stamp_mask;
    own->requests = memory((own->mask + 1) * sizeof(*own->requests));
    own->ids = memory(crew->batch * sizeof(*own->ids));
    line->own = own;
    line_room(line, (own->mask + 1) * 512 + crew->window * 64ull);
}

static void note(struct line *line, uint8_t type, uint32_t messages)
{
    struct reader *own = line->own;
    uint64_t place = line_ask(line) & own->mask;

    own->requests[place].type = type;
    own->requests[place].messages = messages;
}

static void acknowledge(struct line *line)
{
    struct reader *own = line->own;

    text_say(line, "*%u\r\n$4\r\nXACK\r\n$%zu\r\n%s\r\n$5\r\n" GROUP "\r\n", own->unacked + 3,
             strlen(queue_of(line)), queue_of(line));
    for (unsigned n = 0; n < own->unacked; n++)
        line_say(line, own->ids[n], strlen(own->ids[n]));
    note(line, ACK, own->unacked);
    own->unacked = 0;
}

static void group_ask(struct line *line)
{
    struct crew *crew = line->crew;
    unsigned number = (unsigned)(line - crew->lines);

    while (line->free >= crew->batch && !line->dry && crew->done < crew->ledger.most) {
        text_say(line, "XREADGROUP GROUP " GROUP " c%u COUNT %u STREAMS %s >\r\n", number,
                 crew->batch, queue_of(line));
        note(line, READ, crew->batch);
        line->free -= crew->batch;
    }
}

/* Take the entries of one complete XREADGROUP answer; returns their number. */
static unsigned entries(struct line *line, const uint8_t *at, const uint8_t *end)
{
    struct reader *own = line->own;
    unsigned count;

    at += text_line(at, (size_t)(end - at)); /* one stream */
    at += text_line(at, (size_t)(end - at)); /* its name and its entries */
    at += resp_length(at, (size_t)(end - at));
    count = (unsigned)text_number(at + 1, NULL);
    at += text_line(at, (size_t)(end - at));
    for (unsigned n = 0; n < count; n++) {
        size_t length, head;

        at += text_line(at, (size_t)(end - at));
        length = resp_length(at, (size_t)(end - at));
        if (length >= ID)
            fail("an entry's id has %zu bytes", length);
        snprintf(own->ids[own->unacked++], ID, "%.*s", (int)length, (const char *)at);
        at += length;
        at += text_line(at, (size_t)(end - at));
        at += resp_length(at, (size_t)(end - at));
        length = resp_length(at, (size_t)(end - at));
        head = text_line(at, length);
        body_check(line->crew, at + head, length - head - 2);
        at += length;
    }
    return count;
}

static size_t group_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct reader *own = line->own;
    size_t used = resp_length(data, length);
    uint32_t messages, came;
    uint64_t place;

    if (!used)
        return 0;
    place = line_answer(line) & own->mask;
    messages = own->requests[place].messages;
    if (own->requests[place].type == ACK) {
        if (data[0] != ':' || text_number(data + 1, NULL) != messages)
            text_wrong(data, used);
        line->crew->done += messages;
        line->free += messages;
    } else if (own->requests[place].type == READ && text_begins(data, used, "*-1")) {
        line->dry = true;
        line->free += messages;
    } else if (own->requests[place].type == READ) {
        came = entries(line, data, data + used);
        line->free += messages - came;
        acknowledge(line);
    }
    return used;
}

/* Trim the stream, which keeps acknowledged entries. */
static void group_end(struct line *line)
{
    text_say(line, "XTRIM %s MAXLEN 0\r\n", queue_of(line));
    note(line, TRIM, 0);
}

const struct work redis_group = {
    .name = "redis-group",
    .partner = "redis-add",
    .consumes = true,
    .ready = ready,
    .leave = leave,
    .open = group_open,
    .ask = group_ask,
    .end = group_end,
    .hear = group_hear,
};
