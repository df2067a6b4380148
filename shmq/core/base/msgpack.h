/* Reading msgpack without making anything of it: https://github.com/msgpack/msgpack/blob/
 * master/spec.md. Stricter than that page where a reader in Python would fail: a str is
 * UTF-8, a key is hashable, and nothing lies deeper than SHMQ_MSGPACK_DEPTH. What is not so
 * makes the reader bad. */
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
    int64_t number;             /* of an int: beyond int64, INT64_MAX; of a bool: 0 or 1 */
    double real;                /* of a float                                           */
    const unsigned char *bytes; /* of a str, bin or ext                                 */
    uint32_t count;             /* of its bytes; of the entries of an array or a map    */
};

/* Reads one value; of an array or a map the head alone. */
void shmq_msgpack_read(struct shmq_reader *r, struct shmq_msgpack *value);

/* Reads past what `value`, just read, holds. */
void shmq_msgpack_skip(struct shmq_reader *r, const struct shmq_msgpack *value);

/* Whether the bytes are a map and nothing else. */
bool shmq_msgpack_is_map(const void *bytes, size_t size);

static inline bool shmq_msgpack_is(const struct shmq_msgpack *value, const char *text)
{
    return value->kind == SHMQ_MSGPACK_STR && value->count == strlen(text) &&
           !memcmp(value->bytes, text, value->count);
}

#endif
