#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t text_line(const uint8_t *data, size_t length)
{
    const uint8_t *end = memchr(data, '\n', length);

    return end ? (size_t)(end - data) + 1 : 0;
}

int64_t text_number(const uint8_t *data, const uint8_t **after)
{
    bool negative = *data == '-';
    int64_t value = 0;

    for (data += negative; *data >= '0' && *data <= '9'; data++)
        value = value * 10 + (*data - '0');
    if (after)
        *after = data;
    return negative ? -value : value;
}

bool text_begins(const uint8_t *data, size_t length, const char *what)
{
    return length >= strlen(what) && !memcmp(data, what, strlen(what));
}

void text_say(struct line *line, const char *format, ...)
{
    char said[1024];
    va_list values;
    int length;

    va_start(values, format);
    length = vsnprintf(said, sizeof(said), format, values);
    va_end(values);
    if (length < 0 || (size_t)length >= sizeof(said))
        fail("a request is longer than %zu bytes", sizeof(said));
    line_say(line, said, (size_t)length);
}

void text_talk(struct line *line, const char *expected, const char *format, ...)
{
    char said[1024], heard[8192];
    va_list values;
    size_t length;

    va_start(values, format);
    vsnprintf(said, sizeof(said), format, values);
    va_end(values);
    length = line_converse(line, said, strlen(said), heard, sizeof(heard));
    if (!text_begins((uint8_t *)heard, length, expected))
        fail("%s was answered with %s", said, heard);
}

void text_wrong(const uint8_t *data, size_t length)
{
    fail("an answer came that is not due: %.*s", (int)(length < 200 ? length : 200), data);
}

/* ---- requests of equal form ---- */

void mould_make(struct line *line, struct mould *mould, const char *head, const char *before,
                unsigned count)
{
    size_t size = line->crew->plan->size;

    mould->head = strlen(head);
    mould->before = strlen(before);
    mould->count = count;
    mould->frame = mould->head + count * (mould->before + size + 2);
    if (line->free < count)
        line->free = count;
    line_room(line, mould->frame * (line->free / count));
    for (uint8_t *at = line->out; at < line->out + line->room;) {
        memcpy(at, head, mould->head);
        at += mould->head;
        for (unsigned n = 0; n < count; n++) {
            memcpy(at, before, mould->before);
            body_make(at + mould->before, size, 0);
            memcpy(at + mould->before + size, "\r\n", 2);
            at += mould->before + size + 2;
        }
    }
}

void mould_ask(struct line *line, const struct mould *mould)
{
    struct crew *crew = line->crew;
    size_t step = mould->before + crew->plan->size + 2;

    for (; line->free >= mould->count && crew->next < crew->ledger.most;
         line->free -= mould->count) {
        uint8_t *body = line_place(line, mould->frame) + mould->head + mould->before;

        line_ask(line);
        for (unsigned n = 0; n < mould->count; n++, body += step)
            body_number(body, crew->base + crew->next++);
    }
}

/* ---- RESP ---- */

size_t resp_length(const uint8_t *data, size_t length)
{
    size_t used = text_line(data, length), inner;
    int64_t count;

    if (!used || data[0] == ':' || data[0] == '+')
        return used;
    if (data[0] != '$' && data[0] != '*')
        text_wrong(data, used);
    count = text_number(data + 1, NULL);
    if (count < 0)
        return used;
    if (data[0] == '$')
        return used + (size_t)count + 2 <= length ? used + (size_t)count + 2 : 0;
    for (; count; count--, used += inner) {
        inner = used < length ? resp_length(data + used, length - used) : 0;
        if (!inner)
            return 0;
    }
    return used;
}
