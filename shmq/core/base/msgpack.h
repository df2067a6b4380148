/* Parsing msgpack without building objects:
 * https://github.com/msgpack/msgpack/blob/master/spec.md. It is stricter than the specification
 * where a Python reader would fail: a str must be UTF-8, a map key hashable, and the nesting at
 * most SHMQ_MSGPACK_DEPTH deep. Anything else makes the reader bad. */
#ifndef SHMQ_BASE_MSGPACK_H
#define SHMQ_BASE_MSGPACK_H

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

/* Reads one value; of an array or a map only its head. */
void shmq_msgpack_read(struct shmq_reader *r, struct shmq_msgpack *value);

/* Skips the contents of `value`, which was just read. */
void shmq_msgpack_skip(struct shmq_reader *r, const struct shmq_msgpack *value);

/* Whether the bytes are exactly one map. */
bool shmq_msgpack_is_map(const void *bytes, size_t size);

/* Whether the bytes are text. */
bool shmq_is_utf8(const unsigned char *at, uint32_t size);

static inline bool shmq_msgpack_is(const struct shmq_msgpack *value, const char *text)
{
    return value->kind == SHMQ_MSGPACK_STR && value->count == strlen(text) &&
           !memcmp(value->bytes, text, value->count);
}

#endif
