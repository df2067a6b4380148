/* Redis, a list as a queue: LPUSH; LMOVE to a list of leased messages, one per connection; LREM
 * from that, beginning with its oldest message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "works.h"

static const char *queue_of(const struct line *line)
{
    return line->crew->plan->queue;
}

static void leave(struct line *line)
{
    text_talk(line, ":", "DEL %s\r\n", queue_of(line));
}

/* ---- LPUSH, of as many bodies as a batch has ---- */

static void push_open(struct line *line)
{
    unsigned count = line->crew->batch;
    char head[256], before[32];

    line->own = memory(sizeof(struct mould));
    snprintf(head, sizeof(head), "*%u\r\n$5\r\nLPUSH\r\n$%zu\r\n%s\r\n", count + 2,
             strlen(queue_of(line)), queue_of(line));
    snprintf(before, sizeof(before), "$%zu\r\n", line->crew->plan->size);
    mould_make(line, line->own, head, before, count);
}

static void push_ask(struct line *line)
{
    mould_ask(line, line->own);
}

static size_t push_hear(struct line *line, const uint8_t *data, size_t length)
{
    size_t used = resp_length(data, length);

    if (!used)
        return 0;
    if (data[0] != ':')
        text_wrong(data, used);
    line_answer(line);
    line->free += line->crew->batch;
    line->crew->done += line->crew->batch;
    return used;
}

const struct work redis_push = {
    .name = "redis-push",
    .partner = "redis-move",
    .ready = leave,
    .leave = leave,
    .open = push_open,
    .ask = push_ask,
    .hear = push_hear,
};

/* ---- LMOVE and LREM ---- */

struct mover {
    uint64_t mask;
    bool *removes; /* whether a request under way is an LREM */
    char move[256], remove[256];
};

static void move_open(struct line *line)
{
    const char *queue = queue_of(line);
    struct mover *own = memory(sizeof(*own));
    char held[128];
    int length = snprintf(held, sizeof(held), "%s.%td", queue, line - line->crew->lines);

    own->mask = line->stamp_mask;
    own->removes = memory(own->mask + 1);
    snprintf(own->move, sizeof(own->move),
             "*5\r\n$5\r\nLMOVE\r\n$%zu\r\n%s\r\n$%d\r\n%s\r\n$5\r\nRIGHT\r\n$4\r\nLEFT\r\n",
             strlen(queue), queue, length, held);
    snprintf(own->remove, sizeof(own->remove), "*4\r\n$4\r\nLREM\r\n$%d\r\n%s\r\n$2\r\n-1\r\n",
             length, held);
    line->own = own;
    line_room(line, line->crew->window * (512 + line->crew->plan->size));
}

static void move_ask(struct line *line)
{
    struct mover *own = line->own;

    for (; line->free && !line->dry && line->crew->done < line->crew->ledger.most; line->free--) {
        own->removes[line_ask(line) & own->mask] = false;
        line_say(line, own->move, strlen(own->move));
    }
}

/* A body came, as a RESP string; request its removal from the list of leased messages. */
static void moved(struct line *line, const uint8_t *value, size_t length)
{
    struct mover *own = line->own;
    size_t before = text_line(value, length);

    body_check(line->crew, value + before, length - before - 2);
    own->removes[line_ask(line) & own->mask] = true;
    line_say(line, own->remove, strlen(own->remove));
    line_say(line, value, length);
}

static size_t move_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct mover *own = line->own;
    size_t used = resp_length(data, length);

    if (!used)
        return 0;
    if (own->removes[line_answer(line) & own->mask]) {
        if (!text_begins(data, used, ":1\r\n"))
            text_wrong(data, used);
        line->crew->done++;
        line->free++;
    } else if (text_begins(data, used, "$-1")) {
        line->dry = true;
        line->free++;
    } else {
        moved(line, data, used);
    }
    return used;
}

const struct work redis_move = {
    .name = "redis-move",
    .partner = "redis-push",
    .consumes = true,
    .ready = leave,
    .leave = leave,
    .open = move_open,
    .ask = move_ask,
    .hear = move_hear,
};
