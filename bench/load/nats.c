/* NATS JetStream, a stream in memory or in files: PUB with an acknowledgement; pull and +ACK. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "works.h"

#define STREAM "LOAD"
#define CONSUMER "GROUP"
/* The longest subject for acknowledgements. */
#define SUBJECT 200

/* ---- greeting, the stream, the consumer ---- */

static void greet(struct line *line)
{
    char heard[8192];

    line_converse(line, "", 0, heard, sizeof(heard)); /* INFO */
    text_talk(line, "PONG", "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,"
              "\"no_responders\":true,\"lang\":\"c\",\"version\":\"1\",\"protocol\":1}\r\nPING\r\n");
}

/* Send JetStream a request and read its answer; with `must` an error ends the process. */
static void request(struct line *line, const char *what, const char *json, bool must)
{
    char said[1024], head[8192], answer[8192] = "";
    const uint8_t *at = (uint8_t *)head;
    size_t length;

    snprintf(said, sizeof(said), "PUB $JS.API.%s answer %zu\r\n%s\r\n", what, strlen(json), json);
    length = line_converse(line, said, strlen(said), head, sizeof(head));
    if (!text_begins(at, length, "MSG answer 1 "))
        text_wrong(at, length);
    length = (size_t)text_number(at + 13, NULL);
    if (length + 2 >= sizeof(answer))
        fail("an answer of %zu bytes came to %s", length, what);
    line_read_all(line, answer, length + 2);
    if (must && strstr(answer, "\"error\""))
        fail("%s: %s", what, answer);
}

static void leave(struct line *line)
{
    request(line, "STREAM.DELETE." STREAM, "", false);
}

static void ready(struct line *line)
{
    char json[512];

    greet(line);
    line_write_all(line, "SUB answer 1\r\n", 14);
    leave(line);
    snprintf(json, sizeof(json), "{\"name\":\"" STREAM "\",\"subjects\":[\"%s\"],"
             "\"storage\":\"%s\",\"retention\":\"workqueue\",\"num_replicas\":1}",
             line->crew->plan->queue, line->crew->plan->files ? "file" : "memory");
    request(line, "STREAM.CREATE." STREAM, json, true);
    request(line, "CONSUMER.DURABLE.CREATE." STREAM "." CONSUMER,
            "{\"stream_name\":\"" STREAM "\",\"config\":{\"durable_name\":\"" CONSUMER "\","
            "\"ack_policy\":\"explicit\",\"deliver_policy\":\"all\",\"replay_policy\":\"instant\","
            "\"ack_wait\":600000000000,\"max_ack_pending\":65536}}", true);
}

/* Take input other than messages: answer a PING, skip an INFO. */
static size_t aside(struct line *line, const uint8_t *data, size_t used)
{
    if (text_begins(data, used, "PING"))
        line_say(line, "PONG\r\n", 6);
    else if (!text_begins(data, used, "INFO"))
        text_wrong(data, used);
    return used;
}

/* MSG subject 1 [reply] size: the size is the last word; takes 0 bytes if it is incomplete. */
static size_t message(const uint8_t *data, size_t head, size_t length, size_t *size)
{
    const uint8_t *at = data + head - 2;

    while (at[-1] != ' ')
        at--;
    *size = (size_t)text_number(at, NULL);
    return length < head + *size + 2 ? 0 : head + *size + 2;
}

/* ---- PUB ---- */

static void publish_open(struct line *line)
{
    char head[256];

    greet(line);
    line->own = memory(sizeof(struct mould));
    text_talk(line, "PONG", "SUB told.%u 1\r\nPING\r\n", (unsigned)(line - line->crew->lines));
    snprintf(head, sizeof(head), "PUB %s told.%u %zu\r\n", line->crew->plan->queue,
             (unsigned)(line - line->crew->lines), line->crew->plan->size);
    line->crew->batch = 1;
    mould_make(line, line->own, head, "", 1);
}

static void publish_ask(struct line *line)
{
    mould_ask(line, line->own);
}

static size_t publish_hear(struct line *line, const uint8_t *data, size_t length)
{
    size_t head = text_line(data, length), used, size;
    const char *found;
    uint64_t sequence;

    if (!head)
        return 0;
    if (text_begins(data, head, "PING")) {
        line_write_all(line, "PONG\r\n", 6); /* the ring has room for messages only */
        return head;
    }
    if (!text_begins(data, head, "MSG "))
        return aside(line, data, head);
    used = message(data, head, length, &size);
    if (!used)
        return 0;
    found = memmem(data + head, size, "\"seq\":", 6);
    if (!found)
        text_wrong(data, used);
    sequence = (uint64_t)text_number((const uint8_t *)found + 6 + (found[6] == ' '), NULL);
    if (sequence <= line->last)
        fail("a message's number did not rise");
    line->last = sequence;
    ledger_tell(&line->crew->ledger, sequence);
    line_answer(line);
    line->free++;
    line->crew->done++;
    return used;
}

const struct work nats_publish = {
    .name = "nats-publish",
    .partner = "nats-fetch",
    .ready = ready,
    .leave = leave,
    .open = publish_open,
    .ask = publish_ask,
    .hear = publish_hear,
};

/* ---- pulls, and acknowledgements, which have no answer ---- */

struct fetcher {
    uint64_t mask;
    uint32_t *wanted; /* messages that each pull under way still brings */
};

static void fetch_open(struct line *line)
{
    struct fetcher *own = memory(sizeof(*own));

    greet(line);
    text_talk(line, "PONG", "SUB pulled.%u 1\r\nPING\r\n", (unsigned)(line - line->crew->lines));
    if (line->crew->batch > line->crew->window)
        line->crew->batch = line->crew->window;
    own->mask = line->stamp_mask;
    own->wanted = memory((own->mask + 1) * sizeof(*own->wanted));
    line->own = own;
    line_room(line, (own->mask + 1) * 256 + line->crew->window * SUBJECT);
}

/* All pulls together request exactly the messages of the round. */
static void fetch_ask(struct line *line)
{
    struct crew *crew = line->crew;
    struct fetcher *own = line->own;

    while (line->free >= crew->batch && crew->next < crew->ledger.most) {
        uint64_t left = crew->ledger.most - crew->next;
        uint32_t count = left < crew->batch ? (uint32_t)left : crew->batch;
        char json[64];

        snprintf(json, sizeof(json), "{\"batch\":%u}", count);
        text_say(line, "PUB $JS.API.CONSUMER.MSG.NEXT." STREAM "." CONSUMER " pulled.%u %zu\r\n"
                 "%s\r\n", (unsigned)(line - crew->lines), strlen(json), json);
        own->wanted[line_ask(line) & own->mask] = count;
        crew->next += count;
        line->free -= count;
    }
}

static void fetched(struct line *line, const uint8_t *data, size_t head, size_t size)
{
    struct fetcher *own = line->own;
    const uint8_t *reply = memmem(data, head, "$JS.ACK." STREAM "." CONSUMER ".", 19);
    const uint8_t *end = reply ? memchr(reply, ' ', head) : NULL;

    if (!end || text_number(reply + 19, NULL) != 1)
        text_wrong(data, head);
    body_check(line->crew, data + head, size);
    line_say(line, "PUB ", 4);
    line_say(line, reply, (size_t)(end - reply));
    line_say(line, " 4\r\n+ACK\r\n", 10);
    line->crew->done++;
    line->free++;
    if (!--own->wanted[line->answered & own->mask])
        line_answer(line);
}

static size_t fetch_hear(struct line *line, const uint8_t *data, size_t length)
{
    size_t head = text_line(data, length), used, size;

    if (!head)
        return 0;
    if (text_begins(data, head, "PONG")) {
        line_answer(line);
        return head;
    }
    if (!text_begins(data, head, "MSG "))
        return aside(line, data, head);
    used = message(data, head, length, &size);
    if (used)
        fetched(line, data, head, size);
    return used;
}

/* The server handles acknowledgements in order, so the answer to a PING confirms them. */
static void fetch_end(struct line *line)
{
    line_ask(line);
    line_say(line, "PING\r\n", 6);
}

const struct work nats_fetch = {
    .name = "nats-fetch",
    .partner = "nats-publish",
    .consumes = true,
    .ready = ready,
    .leave = leave,
    .open = fetch_open,
    .ask = fetch_ask,
    .end = fetch_end,
    .hear = fetch_hear,
};
