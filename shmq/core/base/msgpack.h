/* Parsing msgpack without building objects:
 * https://github.com/msgpack/msgpack/blob/master/spec.md. It is stricter than the specification
 * where a Python reader would fail: a str must be UTF-8, a map key hashable, and the nesting at
 * most SHMQ_MSGPACK_DEPTH deep. Anything else makes the reader bad. */
#pragma once

#include "base/endian.h"

#define SHMQ_MSGPACK_DEPTH 128

enum shmq_msgpack_kind {
    SHMQ_MSGPACK_NIL,
    SHMQ_MSGPACK_BOOL,
    SHMQ_MSGPACK_INT,
    SHMQ_MSGPACK_FLOAT,
    SHMQ_MSGPACK_STR,
    SHMQ_MSGPACK_BIN,
    SHMQ_MSGPACK_EXT,
    SHMQ_MSGPACK_ARRAY,
    SHMQ_MSGPACK_MAP,
};

struct shmq_msgpack {
    enum shmq_msgpack_kind kind;
    int64_t number;             /* of an int, limited to INT64_MAX; of a bool: 0 or 1    */
    double real;                /* of a float                                           */
    const unsigned char *bytes; /* of a str, bin or ext                                 */
    uint32_t count;             /* its bytes, or the entries of an array or a map       */
};

/* Whether the bytes are ASCII. */
static inline bool shmq_is_ascii(const unsigned char *at, uint32_t size)
{
    uint64_t bits = 0;

    if (size >= 8) {
        for (uint32_t i = 0; i < size - 8; i += 8)
            bits |= shmq_load64(at + i);
        bits |= shmq_load64(at + size - 8);
    } else if (size >= 4) {
        bits = shmq_load32(at) | shmq_load32(at + size - 4);
    } else {
        for (uint32_t i = 0; i < size; i++)
            bits |= at[i];
    }
    return !(bits & 0x8080808080808080ull);
}

/* Reads one value; of an array or a map only its head. */
void shmq_msgpack_read_any(struct shmq_reader *r, struct shmq_msgpack *value);

/* The same for the values that properties mostly have: a short ASCII text, short bytes. False,
 * and nothing is read, if the value is not one of them. */
static inline bool shmq_msgpack_read_short(struct shmq_reader *r, struct shmq_msgpack *value)
{
    size_t left = shmq_left(r);
    bool is_text;
    uint32_t head, size;

    if (r->bad || left < 2)
        return false;
    is_text = r->at[0] >> 5 == 5;
    if (!is_text && r->at[0] != 0xC4)
        return false;
    head = is_text ? 1 : 2;
    size = is_text ? r->at[0] & 0x1F : r->at[1];
    if (size > left - head || (is_text && !shmq_is_ascii(r->at + head, size)))
        return false;
    value->kind = is_text ? SHMQ_MSGPACK_STR : SHMQ_MSGPACK_BIN;
    value->number = 0;
    value->real = 0;
    value->bytes = r->at + head;
    value->count = size;
    r->at += head + size;
    return true;
}

static inline void shmq_msgpack_read(struct shmq_reader *r, struct shmq_msgpack *value)
{
    if (!shmq_msgpack_read_short(r, value))
        shmq_msgpack_read_any(r, value);
}

/* Skips the contents of `value`, an array or a map that was just read. */
void shmq_msgpack_skip_many(struct shmq_reader *r, const struct shmq_msgpack *value);

/* Skips the contents of `value`, which was just read, if it has any. */
static inline void shmq_msgpack_skip(struct shmq_reader *r, const struct shmq_msgpack *value)
{
    if (value->kind == SHMQ_MSGPACK_ARRAY || value->kind == SHMQ_MSGPACK_MAP)
        shmq_msgpack_skip_many(r, value);
}

/* Whether the bytes are exactly one map. */
bool shmq_msgpack_is_map(const void *bytes, size_t size);

/* Whether the bytes are text. */
bool shmq_is_utf8(const unsigned char *at, uint32_t size);

static inline bool shmq_msgpack_is(const struct shmq_msgpack *value, const char *text)
{
    return value->kind == SHMQ_MSGPACK_STR && value->count == strlen(text) &&
           !memcmp(value->bytes, text, value->count);
}
