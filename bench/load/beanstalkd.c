/* beanstalkd: put; reserve and delete. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "works.h"

/* ---- put ---- */

static void put_open(struct line *line)
{
    char head[64];

    text_talk(line, "USING", "use %s\r\n", line->crew->plan->queue);
    line->own = memory(sizeof(struct mould));
    snprintf(head, sizeof(head), "put 0 0 600 %zu\r\n", line->crew->plan->size);
    line->crew->batch = 1;
    mould_make(line, line->own, head, "", 1);
}

static void put_ask(struct line *line)
{
    mould_ask(line, line->own);
}

static size_t put_hear(struct line *line, const uint8_t *data, size_t length)
{
    size_t used = text_line(data, length);
    uint64_t id;

    if (!used)
        return 0;
    if (!text_begins(data, used, "INSERTED "))
        text_wrong(data, used);
    id = (uint64_t)text_number(data + 9, NULL);
    if (id <= line->last)
        fail("a job's id did not rise");
    line->last = id;
    ledger_tell(&line->crew->ledger, id);
    line_answer(line);
    line->free++;
    line->crew->done++;
    return used;
}

const struct work beanstalkd_put = {
    .name = "beanstalkd-put",
    .partner = "beanstalkd-reserve",
    .open = put_open,
    .ask = put_ask,
    .hear = put_hear,
};

/* ---- reserve, delete ---- */

struct reserver {
    uint64_t mask;
    bool *deletes; /* whether a request under way is a delete */
};

static void reserve_open(struct line *line)
{
    struct reserver *own = memory(sizeof(*own));

    text_talk(line, "WATCHING 2", "watch %s\r\n", line->crew->plan->queue);
    text_talk(line, "WATCHING 1", "ignore default\r\n");
    own->mask = line->stamp_mask;
    own->deletes = memory(own->mask + 1);
    line->own = own;
    line->crew->batch = 1;
    line_room(line, line->crew->window * 64ull);
}

static void reserve_ask(struct line *line)
{
    struct reserver *own = line->own;

    for (; line->free && !line->dry && line->crew->done < line->crew->ledger.most; line->free--) {
        own->deletes[line_ask(line) & own->mask] = false;
        text_say(line, "reserve-with-timeout 0\r\n");
    }
}

/* RESERVED and a job, whose deletion is requested: its length, or 0 if it is incomplete. */
static size_t reserved(struct line *line, const uint8_t *data, size_t head, size_t length)
{
    struct reserver *own = line->own;
    const uint8_t *after;
    int64_t id = text_number(data + 9, &after);
    size_t size = (size_t)text_number(after + 1, NULL);

    if (length < head + size + 2)
        return 0;
    body_check(line->crew, data + head, size);
    line_answer(line);
    own->deletes[line_ask(line) & own->mask] = true;
    text_say(line, "delete %lld\r\n", (long long)id);
    return head + size + 2;
}

static size_t reserve_hear(struct line *line, const uint8_t *data, size_t length)
{
    struct reserver *own = line->own;
    size_t used = text_line(data, length);

    if (!used)
        return 0;
    if (own->deletes[line->answered & own->mask]) {
        if (!text_begins(data, used, "DELETED"))
            text_wrong(data, used);
        line_answer(line);
        line->crew->done++;
        line->free++;
    } else if (text_begins(data, used, "TIMED_OUT")) {
        line_answer(line);
        line->dry = true;
        line->free++;
    } else if (text_begins(data, used, "RESERVED ")) {
        return reserved(line, data, used, length);
    } else {
        text_wrong(data, used);
    }
    return used;
}

const struct work beanstalkd_reserve = {
    .name = "beanstalkd-reserve",
    .partner = "beanstalkd-put",
    .consumes = true,
    .open = reserve_open,
    .ask = reserve_ask,
    .hear = reserve_hear,
};
