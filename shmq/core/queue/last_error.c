#include "queue/last_error.h"

#include "base/msgpack.h"

#define MARK " \xE2\x80\xA6 " /* an ellipsis, in place of what is left out */
#define MARK_BYTES 5u
#define MOST_TYPE 200u
#define LEAST_LINE 128u /* of the text, before a traceback gets any room */
#define TEXT_HEAD 3u /* of a str of up to 64 KiB */
/* The map's head, and the keys and heads of its parts, but the time. */
#define FRAME (1 + (5 + TEXT_HEAD) + (5 + TEXT_HEAD) + (6 + TEXT_HEAD))
#define MOST_TIME (3 + 9) /* with its key */

_Static_assert(SHMQ_LEAST_ERROR > FRAME + MOST_TIME, "a truncated error has some text");
_Static_assert(SHMQ_ERROR_BYTES <= UINT16_MAX, "its texts have short heads");

/* The parts of an error; empty if absent. */
struct parts {
    struct shmq_text line, type, trace;
    struct shmq_text at; /* the packed number */
};

static struct parts parts_of(struct shmq_text error)
{
    struct shmq_reader r = {error.at, error.at + error.bytes, false};
    struct shmq_msgpack map, key, value;
    struct parts parts = {0};

    shmq_msgpack_read(&r, &map);
    for (uint32_t i = 0; !r.bad && map.kind == SHMQ_MSGPACK_MAP && i < map.count; i++) {
        const unsigned char *at;
        struct shmq_text text;

        shmq_msgpack_read(&r, &key);
        shmq_msgpack_skip(&r, &key);
        at = r.at;
        shmq_msgpack_read(&r, &value);
        if (r.bad)
            break;
        text = (struct shmq_text){value.bytes, value.count};
        if (value.kind == SHMQ_MSGPACK_STR && shmq_msgpack_is(&key, "line"))
            parts.line = text;
        else if (value.kind == SHMQ_MSGPACK_STR && shmq_msgpack_is(&key, "type"))
            parts.type = text;
        else if (value.kind == SHMQ_MSGPACK_STR && shmq_msgpack_is(&key, "trace"))
            parts.trace = text;
        else if ((value.kind == SHMQ_MSGPACK_INT || value.kind == SHMQ_MSGPACK_FLOAT) &&
                 shmq_msgpack_is(&key, "at"))
            parts.at = (struct shmq_text){at, (uint32_t)(r.at - at)};
        shmq_msgpack_skip(&r, &value);
    }
    return parts;
}

struct shmq_text shmq_error_type(struct shmq_text error) { return parts_of(error).type; }

/* ---- truncation ---- */

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Whether a character begins at byte `at` of the text, or the text ends there. */
static bool is_border(struct shmq_text text, uint32_t at)
{
    return at >= text.bytes || (text.at[at] & 0xC0) != 0x80;
}

static unsigned char *append(unsigned char *to, const void *from, uint32_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    return to + bytes;
}

/* Appends at most `most` bytes of the text, without its middle if it is longer. */
static unsigned char *append_part(unsigned char *to, struct shmq_text text, uint32_t most)
{
    uint32_t room, begin, end;

    if (text.bytes <= most)
        return append(to, text.at, text.bytes);
    if (most <= MARK_BYTES)
        return to;
    room = most - MARK_BYTES;
    begin = room - room / 2;
    end = text.bytes - room / 2;
    while (begin && !is_border(text, begin))
        begin--;
    while (!is_border(text, end))
        end++;
    to = append(append(to, text.at, begin), MARK, MARK_BYTES);
    return append(to, text.at + end, text.bytes - end);
}

/* A text, and the most bytes that are kept of it. */
struct part {
    struct shmq_text text;
    uint32_t most;
};

/* Adds to the map that begins at `map` an entry at `to`: both parts, one after the other, as one text;
 * nothing if both are empty. */
static unsigned char *add_entry(unsigned char *map, unsigned char *to, const char *key,
                                struct part first, struct part second)
{
    uint32_t size = (uint32_t)strlen(key); /* below 32 */
    unsigned char *text;

    if (!first.text.bytes && !second.text.bytes)
        return to;
    ++*map;
    *to++ = (unsigned char)(0xA0 | size);
    text = append(to, key, size) + TEXT_HEAD;
    to = append_part(append_part(text, first.text, first.most), second.text, second.most);
    text[-3] = 0xDA;
    shmq_store16(text - 2, (uint16_t)(to - text));
    return to;
}

struct shmq_text shmq_fit_error(struct shmq_text error, uint32_t most, unsigned char *to)
{
    struct part name = {0}, none = {0}, text, trace;
    unsigned char *at = to;
    struct parts parts;
    uint32_t room, line;

    most = least(most, SHMQ_ERROR_BYTES);
    if (error.bytes <= most)
        return error;
    if (most < SHMQ_LEAST_ERROR)
        return none.text;
    parts = parts_of(error);
    room = most - FRAME - MOST_TIME;
    name.text = parts.type;
    name.most = least(room / 4, MOST_TYPE);
    room -= 2 * least(name.text.bytes, name.most); /* the line has it, too */
    text.text = parts.line;
    line = least(room, room / 4 > LEAST_LINE ? room / 4 : LEAST_LINE);
    text.most = room - least(parts.trace.bytes, room - line);
    *at++ = 0x80;
    if (parts.at.bytes) {
        ++*to;
        at = append(append(at,
                           "\xA2"
                           "at",
                           3),
                    parts.at.at, parts.at.bytes);
    }
    at = add_entry(to, at, "type", name, none);
    if (text.text.bytes >= name.text.bytes && name.text.bytes &&
        !memcmp(text.text.at, name.text.at, name.text.bytes)) {
        text.text.at += name.text.bytes;
        text.text.bytes -= name.text.bytes;
    } else {
        name = none;
    }
    at = add_entry(to, at, "line", name, text);
    trace.text = parts.trace;
    trace.most = (uint32_t)(to + most - at) - (6 + TEXT_HEAD);
    at = add_entry(to, at, "trace", trace, none);
    return (struct shmq_text){to, (uint32_t)(at - to)};
}
